"""What a reader says of a directory that is damaged, pruned under it, replaced, or read in a forked process."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from test_belonging import Counter, app, segment, write

import penstock as ps
from penstock.commit import Disk, Journal
from penstock.commit.log import read_contents
from penstock.replica.reader import Reader

pytestmark = pytest.mark.faults


def until(true: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def reaches(reader: Reader, version: int) -> None:
    """It goes on once what is wrong is mended."""

    def there() -> bool:
        try:
            return reader.version >= version
        except ps.StateError:
            return False

    until(there)
    assert reader.get("Counter", "a") == {"id": "a", "n": reader.version}


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """A directory at version 4, and the same at version 12; each version is a commit, snapshots are at 3, 6, 9, 12."""
    older = write(tmp_path / "older", 4)
    newer = tmp_path / "newer"
    shutil.copytree(older, newer)
    return older, write(newer, 8)


def flipped(file: Path) -> bytes:
    """With another bit in what it wrote to the table."""
    contents, data = read_contents(Disk(), file), bytearray(file.read_bytes())
    offset, length, _ = contents.parts["written:Counter"]
    data[contents.start + offset + length // 2] ^= 1
    return bytes(data)


def put(path: Path, data: bytes) -> None:
    """At once, as a writer does."""
    other = path.with_suffix(".other")
    other.write_bytes(data)
    os.replace(other, path)


def test_damage_is_told_until_it_is_mended(two: tuple[Path, Path]) -> None:
    older, newer = two
    with ps.reader(older) as reader:
        cut = reader.cut()
        put(segment(older, 5), flipped(segment(newer, 5)))
        names = r"000000000005.seg is damaged: the checksum of its part '\w+:\w+' does not hold"
        with pytest.raises(ps.StateError, match=names):
            reader.wait(5)
        readings: list[Callable[[], Any]] = [
            lambda: reader.version,
            lambda: reader.get("Counter", "a"),
            lambda: reader.get_many("Counter", ["a"]),
            lambda: reader.get_arrow("Counter", pa.array(["a"])),
            lambda: reader.table("Counter"),
            lambda: reader.sql("select 1"),
            lambda: reader.history("Counter", "a"),
            lambda: next(reader.follow()),
            reader.cut,
        ]
        for reading in readings:
            with pytest.raises(ps.StateError, match=names):
                reading()
        assert "000000000005.seg is damaged" in str(reader.lag().failure)
        assert cut.get("Counter", "a") == {"id": "a", "n": 4}  # what it has it has
        put(segment(older, 5), segment(newer, 5).read_bytes())
        reaches(reader, 5)
        assert reader.lag().failure is None


def test_a_newer_snapshot_leads_behind_the_damage(two: tuple[Path, Path]) -> None:
    older, newer = two
    with ps.reader(older) as reader:
        put(segment(older, 5), flipped(segment(newer, 5)))
        with pytest.raises(ps.StateError, match="is damaged"):
            reader.wait(5)
        for seq in range(6, 13):
            shutil.copy(segment(newer, seq), segment(older, seq))
        shutil.copytree(newer / "snapshots" / f"{9:012d}", older / "snapshots" / f"{9:012d}")
        reaches(reader, 12)


def test_a_commit_of_another_copy_is_named(two: tuple[Path, Path], tmp_path: Path) -> None:
    older, _ = two
    third = tmp_path / "third"
    shutil.copytree(older, third)
    write(third, 2, by=5)
    write(third, 1)
    with ps.reader(older) as reader:
        put(segment(older, 6), segment(third, 6).read_bytes())  # 5 is missing
        put(segment(older, 5), segment(two[1], 5).read_bytes())
        with pytest.raises(ps.StateError, match=r"000000000006.seg does not follow commit 5 of this directory"):
            reader.wait(6)


def test_a_commit_that_cannot_be_applied_is_not_shown_in_part(tmp_path: Path) -> None:
    path = write(tmp_path / "state", 3)
    with ps.reader(path) as reader:
        with Journal.open(path, {"app": "count"}) as journal:
            wrong = pa.table({"id": pa.array(["a", "b"])})
            journal.commit({"kind": "batch", "id": None, "log": "changes"}, {"written:Counter": wrong})
        with pytest.raises(ps.StateError, match="failed: KeyError"):
            reader.wait(4)
        with pytest.raises(ps.StateError, match="failed: KeyError"):
            reader.get("Counter", "b")


class Slow(Disk):
    """A reader's: it sees no new commit until it may go on."""

    def __init__(self) -> None:
        self.may = threading.Event()

    def exists(self, path: Path) -> bool:
        if path.suffix == ".seg":
            self.may.wait()
        return super().exists(path)


def test_a_reader_that_was_too_slow_begins_anew(tmp_path: Path) -> None:
    path, disk = write(tmp_path / "state", 3), Slow()
    with Reader(path, disk=disk) as reader:
        cut, changes = reader.cut(), reader.follow()
        write(path, 20, retain=1, snapshot_every=2)
        assert not segment(path, 4).exists()
        assert reader.version == 3
        disk.may.set()
        assert reader.wait(23, timeout=120) == 23
        assert reader.get("Counter", "a") == {"id": "a", "n": 23}
        assert cut.get("Counter", "a") == {"id": "a", "n": 3}
        with pytest.raises(ps.NotRetainedError):
            next(changes)
        with pytest.raises(ps.NotRetainedError):
            reader.follow(after=3)
        assert next(reader.follow(after=22))[0] == 23
        with pytest.raises(ps.FutureVersionError):
            reader.follow(after=24)


def test_a_directory_in_the_place_of_another_is_told(tmp_path: Path) -> None:
    path = write(tmp_path / "state", 3)
    with ps.reader(path) as reader:
        path.rename(tmp_path / "before")
        write(path, 2)
        until(lambda: reader.lag().failure is not None)
        with pytest.raises(ps.StateError, match="is another state directory now"):
            reader.get("Counter", "a")


def test_a_forked_process_is_told_to_open_it_itself(tmp_path: Path) -> None:
    path = write(tmp_path / "state", 3)
    with ps.reader(path) as reader:
        told, telling = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                reader.get("Counter", "a")
            except ps.StateError as error:
                os.write(telling, str(error).encode())
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        os.close(telling)
        with os.fdopen(told) as words:
            assert words.read().endswith("was opened before this process was forked; open it here")
        assert reader.get(Counter, "a") == {"id": "a", "n": 3}


def test_nothing_is_locked_or_written(tmp_path: Path) -> None:
    path = write(tmp_path / "state", 3)

    def files() -> dict[str, tuple[int, int]]:
        found = ((str(f), f.stat()) for f in path.rglob("*"))
        return {name: (status.st_mtime_ns, status.st_size) for name, status in found}

    before = files()
    with ps.reader(path) as reader:
        reader.table("Counter"), reader.history("Counter", "a"), reader.lag()
        assert files() == before
        with app.open(path) as db:  # nobody is in its way
            assert db.version == 3
