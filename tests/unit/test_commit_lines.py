"""A list that only grows: what was appended comes back, whatever else is in the file is found and named."""

from __future__ import annotations

import json
import os
import random
import stat
from pathlib import Path
from typing import Any

import pytest

from penstock.commit import Disk
from penstock.commit.identity import IDENTITY, directory_of
from penstock.commit.lines import ChainedLines
from penstock.commit.sealed import seal
from penstock.errors import StateError

HEADER = {"kind": "files", "event": "Transfer", "directory": "9f3c"}
NAMES = ["part-0000.parquet", "päckchen \udcff\n.parquet", {"version": 3, "crc": 17}, "part-0003.parquet"]


def lines(path: Path, **header: Any) -> ChainedLines:
    return ChainedLines(Disk(), path, {**HEADER, **header})


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A line for each name."""
    path = tmp_path / "sources" / "Transfer.list"
    for name in NAMES:
        lines(path).append([name])
    return path


def test_what_was_appended_comes_back(kept: Path) -> None:
    assert lines(kept).read() == NAMES
    again = lines(kept)
    again.append(["a"])
    again.append([])
    again.append(["b", "c"])
    assert again.read() == lines(kept).read() == [*NAMES, "a", "b", "c"]
    for line in kept.read_text().splitlines():
        json.loads(line)


def test_where_there_is_no_list_there_are_no_lines(tmp_path: Path) -> None:
    none = lines(tmp_path / "none" / "list")
    assert none.read() == []
    none.append([])
    assert not (tmp_path / "none").exists()


def test_the_file_and_its_folder_are_their_owners_alone(kept: Path) -> None:
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700


def test_every_flipped_bit_is_found(kept: Path) -> None:
    whole = kept.read_bytes()
    for at in range(len(whole)):
        for bit in range(8):
            broken = bytearray(whole)
            broken[at] ^= 1 << bit
            kept.write_bytes(broken)
            line = whole[:at].count(b"\n") + 1
            with pytest.raises(StateError, match=rf"Transfer.list is damaged in line {line}: .*; restore it from"):
                lines(kept).read()
            with pytest.raises(StateError, match="is damaged in line"):
                lines(kept).append(["more"])
            assert kept.read_bytes() == broken


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda x: [*x[:2], *x[3:]], 3),
        (lambda x: [*x[:2], x[3], x[2], *x[4:]], 3),
        (lambda x: [*x[:3], x[2], *x[3:]], 4),
        (lambda x: x[1:], 1),
        (lambda x: [*x[:3], b"\n", *x[3:]], 4),
        (lambda x: [*x, x[-1]], 6),
    ],
    ids=["dropped", "swapped", "doubled", "headless", "blank", "doubled at the end"],
)
def test_lines_that_are_not_where_they_were(kept: Path, change: Any, line: int) -> None:
    kept.write_bytes(b"".join(change(kept.read_bytes().splitlines(keepends=True))))
    with pytest.raises(StateError, match=f"is damaged in line {line}: "):
        lines(kept).read()


def test_a_torn_last_line_is_dropped_and_cut_off(kept: Path) -> None:
    before = len(kept.read_bytes())
    lines(kept).append(["one", "two"])
    whole = kept.read_bytes()
    for size in range(before, len(whole) - 1):  # Its newline comes once it is synced.
        for zeros in (b"", b"\0", b"\0" * 20):
            kept.write_bytes(whole[:size] + zeros)
            torn = lines(kept)
            assert torn.read() == NAMES
            torn.append(["new"])
            assert torn.read() == lines(kept).read() == [*NAMES, "new"]


def test_a_last_line_that_is_whole_but_for_its_newline_counts(kept: Path) -> None:
    kept.write_bytes(kept.read_bytes()[:-1])
    short = lines(kept)
    assert short.read() == NAMES
    short.append(["new"])
    assert short.read() == lines(kept).read() == [*NAMES, "new"]
    assert kept.read_bytes().count(b"\n") == len(NAMES) + 2


class LosesWhatItFailsToSync(Disk):
    """A sync that fails drops what was written since the one before, which can be read until the power is lost."""

    def __init__(self, fail_at: int) -> None:
        super().__init__()
        self.fail_at, self.syncs = fail_at, 0
        self.pending: list[tuple[int, bytes]] = []
        self.durable = b""

    def write_at(self, fd: int, data: Any, offset: int, path: Path) -> None:
        super().write_at(fd, data, offset, path)
        self.pending.append((offset, bytes(data)))

    def fsync(self, fd: int, path: Path) -> None:
        self.syncs += 1
        pending, self.pending = self.pending, []
        if self.syncs == self.fail_at:
            raise StateError(f"cannot sync {path}")
        for offset, data in pending:
            self.durable = self.durable.ljust(offset, b"\0")[:offset] + data + self.durable[offset + len(data) :]


@pytest.mark.parametrize("fail_at", range(1, 5))
def test_what_a_failed_sync_lost_is_written_again(tmp_path: Path, fail_at: int) -> None:
    disk = LosesWhatItFailsToSync(fail_at)
    path = tmp_path / "Transfer.jsonl"

    def anew() -> ChainedLines:
        return ChainedLines(disk, path, {"kind": "files"})

    added: list[str] = []
    for name in ("a", "b", "c"):
        try:
            anew().append([name])
        except StateError:
            anew().append([] if name in anew().read() else [name])
        added.append(name)
        path.with_name("after").write_bytes(disk.durable)
        assert ChainedLines(Disk(), path.with_name("after"), {"kind": "files"}).read() == added
    assert disk.syncs > fail_at


def test_one_append_is_one_line(kept: Path) -> None:
    lines(kept).append(["one", "two", "three"])
    assert kept.read_bytes().count(b"\n") == len(NAMES) + 2
    assert lines(kept).read() == [*NAMES, "one", "two", "three"]


def test_a_torn_header_is_no_list_yet(kept: Path) -> None:
    header = kept.read_bytes().splitlines()[0]
    for size in range(len(header) + 1):
        kept.write_bytes(header[:size])
        assert lines(kept).read() == []
        lines(kept).append(["new"])
        assert lines(kept).read() == ["new"]


@pytest.mark.parametrize(("key", "other"), [("event", "Deposit"), ("directory", "77aa"), ("kind", "outcomes")])
def test_a_list_of_another_is_refused_by_name(kept: Path, key: str, other: str) -> None:
    with pytest.raises(StateError, match=rf"Transfer.list is the list of another {key}: '.*', not '{other}'; put"):
        lines(kept, **{key: other}).read()
    with pytest.raises(StateError, match="is the list of another"):
        lines(kept, **{key: other}).append(["x"])


def test_what_is_not_known_is_not_compared(kept: Path, tmp_path: Path) -> None:
    assert lines(kept, directory=None).read() == NAMES
    lines(tmp_path / "early", directory=None).append(["x"])
    assert "directory" not in (tmp_path / "early").read_text()
    assert lines(tmp_path / "early").read() == ["x"]


def test_a_format_of_a_later_penstock(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.unlink()
    with monkeypatch.context() as patch:
        patch.setattr("penstock.commit.lines.FORMAT", 2)
        lines(kept).append(["x"])
    with pytest.raises(StateError, match="has format 2, which this Penstock does not know; use the Penstock that"):
        lines(kept).read()


class Looking(Disk):
    """Counts the bytes that are read."""

    read_bytes = 0

    def pread(self, fd: int, length: int, offset: int, path: Path) -> Any:
        self.read_bytes += length
        return super().pread(fd, length, offset, path)


def test_a_look_costs_what_is_new(tmp_path: Path) -> None:
    path, disk = tmp_path / "list", Looking()
    lines(path).append([f"part-{i:06}" for i in range(1000)])
    reader = ChainedLines(disk, path, HEADER)
    first = reader.read()
    assert disk.read_bytes == path.stat().st_size
    disk.read_bytes = 0
    reader.read()
    assert disk.read_bytes == 0
    lines(path).append(["new"])
    assert reader.read() is first and first[-1] == "new"
    assert disk.read_bytes < 100


def test_a_file_that_became_another_is_read_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "list"
    reader = lines(path)
    reader.append(["a", "b"])
    assert reader.read() == ["a", "b"]
    lines(tmp_path / "other").append(["c", "d", "e"])
    os.replace(tmp_path / "other", path)
    assert reader.read() == ["c", "d", "e"]
    path.unlink()
    assert reader.read() == []
    reader.append(["f"])
    # In place, and longer than it was: only the checksums tell.
    lines(tmp_path / "other").append(["g", "h", "i", "j"])
    path.write_bytes((tmp_path / "other").read_bytes())
    assert reader.read() == ["g", "h", "i", "j"]


def test_a_second_writer_is_kept_away(kept: Path) -> None:
    disk = Disk()
    fd = disk.touch(kept)
    disk.lock_file(fd)
    with pytest.raises(StateError, match=r"Transfer.list is being written by another process; stop that one"):
        lines(kept).append(["x"])
    disk.close(fd)
    lines(kept).append(["x"])


def test_lines_are_added_behind_those_that_the_caller_knows(kept: Path) -> None:
    mine, other = lines(kept), lines(kept)
    known = len(mine.read())
    assert other.append(["x"], after=known)
    assert not mine.append(["x"], after=known)
    assert mine.append(["y"], after=known + 1)
    assert lines(kept).read() == [*NAMES, "x", "y"]


def test_a_list_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "list").symlink_to(tmp_path / "gone")
    with pytest.raises(StateError, match=r"cannot open .*list: too many levels of symbolic links; a symbolic link is"):
        lines(tmp_path / "list").append(["x"])


def test_the_directory_that_a_list_belongs_to(tmp_path: Path) -> None:
    assert directory_of(Disk(), tmp_path) is None
    (tmp_path / IDENTITY).write_bytes(seal({"app": "bank", "log": "changes"}))
    assert directory_of(Disk(), tmp_path) is None
    (tmp_path / IDENTITY).write_bytes(seal({"app": "bank", "directory": "9f3c", "log": "changes"}))
    assert directory_of(Disk(), tmp_path) == "9f3c"
    (tmp_path / IDENTITY).write_bytes(b"")
    with pytest.raises(StateError, match=r"penstock.json is damaged"):
        directory_of(Disk(), tmp_path)


def test_random_damage_never_gives_other_lines(tmp_path: Path) -> None:
    chance, path = random.Random(5), tmp_path / "list"
    names = [f"part-{i:04}.parquet" for i in range(50)]
    lines(path).append(names)
    whole = path.read_bytes()
    for _ in range(2000):
        broken = bytearray(whole)
        start = chance.randrange(len(whole))
        stop = chance.randrange(start, min(len(whole), start + 100)) + 1
        broken[start:stop] = chance.randbytes(chance.randrange(0, 100))
        path.write_bytes(broken)
        try:
            found = lines(path).read()
        except StateError:
            continue
        assert found == names[: len(found)]
