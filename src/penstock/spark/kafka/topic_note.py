"""Where a stream began to read a topic: sources/EVENT.topic in the state directory, sealed JSON.

    {"kind": "topic of a source", "event": "Transfer", "directory": "9f3c…", "topic": "transfers",
     "id": "HStFWBIvRyiB/XeIGGNCww", "start": {"0": 120, "1": 0}, …}

Until the first batch is done Spark asks for it at every start, and "the earliest record" would be another one each
time. It is written durably before an offset counts from it. The topic's id tells a topic that was deleted and made
again, whose offsets mean other records. Partitions that came later are read from 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.commit.disk import Disk
from penstock.commit.identity import directory_of, refuse_foreign
from penstock.commit.sealed import read_sealed, seal
from penstock.errors import StateError
from penstock.spark.listing import SOURCES

SUFFIX = ".topic"
KIND = "topic of a source"


@dataclass(frozen=True, slots=True)
class TopicNote:
    topic: str
    id: str
    start: dict[int, int]

    def begin(self, partition: int) -> int:
        return self.start.get(partition, 0)


def topic_note_path(state: Path, event: str) -> Path:
    return state / SOURCES / f"{event}{SUFFIX}"


def read_topic_note(path: Path, disk: Disk | None = None) -> TopicNote | None:
    """None where there is none yet."""
    disk = disk or Disk()
    try:
        content = read_sealed(disk, path, "kind", "event", "topic", "id", "start")
    except FileNotFoundError:
        return None
    refuse_foreign(disk, path, content, path.parent.parent, "restore its own")
    if content["kind"] != KIND or content["event"] != path.stem:
        raise StateError(
            f"{path} is another file: the {content['kind']} of event '{content['event']}'; restore its own"
        )
    return TopicNote(content["topic"], content["id"], {int(p): offset for p, offset in content["start"].items()})


def read_or_write_topic_note(path: Path, begin: Callable[[], TopicNote]) -> TopicNote:
    """As it was written; or as it is from now on."""
    known, disk = read_topic_note(path), Disk()
    if known is not None:
        return known
    made = begin()
    start = {str(p): made.start[p] for p in sorted(made.start)}
    content: dict[str, Any] = {"kind": KIND, "event": path.stem, "directory": directory_of(disk, path.parent.parent)}
    disk.ensure_dir(path.parent)
    disk.replace(path, seal({**content, "topic": made.topic, "id": made.id, "start": start}))
    return made
