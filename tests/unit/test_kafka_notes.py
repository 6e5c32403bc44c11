"""Notes beside the state of topics that are read and written: damage, and those of others, are named; no broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.commit import Disk
from penstock.commit.identity import IDENTITY
from penstock.commit.sealed import seal
from penstock.errors import StateError
from penstock.spark.check import check_beside
from penstock.spark.kafka.sink_note import SinkNote, read_sink_note, sink_path, write_sink_note
from penstock.spark.kafka.topic_note import TopicNote, read_or_write_topic_note, read_topic_note, topic_note_path

BEGUN = TopicNote("transfers", "an-id", {0: 5, 10: 7, 2: 0})
SENT = SinkNote("outcomes", sending=8, done=7, ends={0: 190, 1: 3})


def write_source(state: Path) -> Path:
    path = topic_note_path(state, "Transfer")
    assert read_or_write_topic_note(path, lambda: BEGUN) == BEGUN
    return path


def write_sink(state: Path) -> Path:
    path = sink_path(state, "outcomes")
    write_sink_note(Disk(), path, SENT)
    return path


def read_sink(path: Path) -> SinkNote | None:
    return read_sink_note(Disk(), path)


BOTH: Any = pytest.mark.parametrize(
    ("write", "read", "wanted"),
    [(write_source, read_topic_note, BEGUN), (write_sink, read_sink, SENT)],
    ids=["source", "sink"],
)
Write, Read = Callable[[Path], Path], Callable[[Path], Any]


def own(state: Path, directory: str) -> None:
    state.mkdir(exist_ok=True)
    (state / IDENTITY).write_bytes(seal({"app": "bank", "directory": directory, "log": "changes"}))


@BOTH
def test_a_note_is_read_as_it_was_written(tmp_path: Path, write: Write, read: Read, wanted: Any) -> None:
    own(tmp_path, "9f3c")
    assert read(tmp_path / "sources" / "Transfer.topic") is None
    assert read(write(tmp_path)) == wanted


def test_where_a_stream_began_stays(tmp_path: Path) -> None:
    path = write_source(tmp_path)
    assert read_or_write_topic_note(path, lambda: TopicNote("other", "other", {})) == BEGUN
    assert (BEGUN.begin(10), BEGUN.begin(11)) == (7, 0)


@BOTH
def test_a_note_of_another_directory_or_name_is_refused(tmp_path: Path, write: Write, read: Read, wanted: Any) -> None:
    own(tmp_path, "9f3c")
    path = write(tmp_path)
    path.rename(path.with_name("Deposit.topic"))
    with pytest.raises(StateError, match=r"is another file: the .*; restore its own"):
        read(path.with_name("Deposit.topic"))
    write(tmp_path)
    own(tmp_path, "ffff")
    with pytest.raises(StateError, match="belongs to another state directory, '9f3c', not 'ffff'"):
        read(path)


@BOTH
def test_damage_is_named_and_found_by_check(tmp_path: Path, write: Write, read: Read, wanted: Any) -> None:
    own(tmp_path, "9f3c")
    path = write(tmp_path)
    name = f"{path.parent.name}/{path.name}"
    assert [(one.file, one.problem) for one in check_beside(tmp_path)] == [(name, "")]
    path.write_bytes(path.read_bytes().replace(b"7", b"6"))
    with pytest.raises(StateError, match=f"{path} is damaged: its checksum does not hold"):
        read(path)
    (found,) = check_beside(tmp_path)
    assert (found.file, found.ok) == (name, False)
    assert "its checksum does not hold" in found.problem


def test_a_person_may_say_what_is_done(tmp_path: Path) -> None:
    path = write_sink(tmp_path)
    path.write_text("8\n")
    assert read_sink(path) == SinkNote("", sending=8, done=8, ends=None)
    path.write_text("8" * 5000)
    with pytest.raises(StateError, match="is damaged"):
        read_sink(path)
