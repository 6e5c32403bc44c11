"""sinks/NAME.topic in the state directory: how far a topic that outcomes go to is, as far as we know. Sealed JSON.

    {"kind": "outcomes in a topic", "directory": "9f3c…", "topic": "outcomes", "sending": 8, "done": 7,
     "ends": {"0": 190}, …}

What is being sent was sent, or was not: the topic knows (sink.py). A bare number, which a person may write where the
topic does not know any more, is a version that is done.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.commit.disk import Disk
from penstock.commit.identity import SINKS, directory_of, refuse_foreign
from penstock.commit.sealed import bare_number, read_sealed, seal
from penstock.errors import StateError

SUFFIX = ".topic"
KIND = "outcomes in a topic"


@dataclass(frozen=True, slots=True)
class SinkNote:
    topic: str
    sending: int
    done: int
    ends: dict[int, int] | None  # no message of a later version is before these; None: not known


def sink_path(state: Path, what: str) -> Path:
    return state / SINKS / f"{what}{SUFFIX}"


def read_sink_note(disk: Disk, path: Path) -> SinkNote | None:
    """None where nothing was ever sent."""
    try:
        data = disk.read(path)
    except FileNotFoundError:
        return None
    if (by_hand := bare_number(data)) is not None:
        return SinkNote("", by_hand, by_hand, None)
    content = read_sealed(disk, path, "kind", "what", "topic", "sending", "done", "ends")
    refuse_foreign(disk, path, content, path.parent.parent, "restore its own")
    if (content["kind"], content["what"]) != (KIND, path.stem):
        found = f"the {content['kind']} of {content['what']}"
        raise StateError(f"{path} is another file: {found}; restore its own")
    ends = {int(p): end for p, end in content["ends"].items()}
    return SinkNote(content["topic"], content["sending"], content["done"], ends)


def write_sink_note(disk: Disk, path: Path, note: SinkNote) -> None:
    disk.ensure_dir(path.parent)
    who = {"kind": KIND, "what": path.stem, "directory": directory_of(disk, path.parent.parent)}
    known = {"sending": note.sending, "done": note.done, "ends": {str(p): end for p, end in (note.ends or {}).items()}}
    disk.replace(path, seal({**who, "topic": note.topic, **known}))
