"""A journal survives: a kill before any file operation, torn writes, a power cut, a full disk.

One small job is used throughout: loads, batches, snapshots and pruning, over two openings. It acknowledges
each commit after `commit` returned. Whatever happens to it, the directory must then hold a prefix of
the job's commits that has every acknowledged one, and at most one more; and the job must be able to go on.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from faulty import READING, Counting, Killing

from penstock.commit import Disk, Journal
from penstock.commit.log import read_segment
from penstock.errors import StateError

pytestmark = pytest.mark.faults

IDENTITY = {"app": "bank", "tables": {"Rows": {"columns": {"row": "int"}}}}
COMMITS = 14
RETAIN = 3
# These commits are loads: they make no version.
LOADS = (1, 6)


def table(*rows: int) -> pa.Table:
    return pa.table({"row": pa.array(rows, pa.int64())})


def open_journal(path: Path, disk: Disk | None = None) -> Journal:
    return Journal.open(path, IDENTITY, retain=RETAIN, snapshot_every=3, background=False, disk=disk)


def job(path: Path, disk: Disk | None = None, acknowledge: Callable[[int], object] = lambda seq: None) -> None:
    """Brings the directory from wherever it is to COMMITS commits."""
    for stop in (COMMITS - 4, COMMITS):
        journal = open_journal(path, disk)
        try:
            rows = recovered(journal)
            while journal.seq < stop:
                seq = journal.seq + 1
                kind, id = ("load", None) if seq in LOADS else ("batch", seq * 10)
                journal.commit({"kind": kind, "id": id}, {"changes": table(seq), "more": table(seq, seq)})
                rows.append(seq)
                acknowledge(seq)
                if journal.due:
                    journal.snapshot({}, {"Rows": table(*rows), "Other": table(*rows)})
        finally:
            journal.close()


def recovered(journal: Journal, upto: int | None = None) -> list[int]:
    recovery = journal.recover(upto)
    rows = recovery.snapshot.tables["Rows"]["row"].to_pylist() if recovery.snapshot else []
    for segment in recovery.segments:
        rows += segment.parts["changes"]["row"].to_pylist()
    return list(rows)


def version_of(seq: int) -> int:
    return sum(other not in LOADS for other in range(1, seq + 1))


def commits_upto(version: int, count: int) -> list[int]:
    return [seq for seq in range(1, count + 1) if version_of(seq) <= version]


def check(path: Path, acknowledged: int) -> None:
    """Every acknowledged commit is there, nothing is there that was never made, and the job can go on."""
    with open_journal(path) as journal:
        rows = recovered(journal)
        assert rows == list(range(1, len(rows) + 1))
        assert acknowledged <= len(rows) <= acknowledged + 1
        assert (journal.seq, journal.version) == (len(rows), version_of(len(rows)))
        for version in range(max(0, journal.version - RETAIN), journal.version + 1):
            assert recovered(journal, version) == commits_upto(version, len(rows))
        assert not list(path.rglob("*.open"))
    job(path)
    with Journal.read_only(path) as reader:
        assert recovered(reader) == list(range(1, COMMITS + 1))


class Tearing(Disk):
    """Kills the process in the middle of the k-th write."""

    def __init__(self, at: int) -> None:
        self.left = at

    def write(self, fd: int, buffers: Any, path: Path) -> None:
        self.left -= 1
        if not self.left:
            data = b"".join(buffers)
            os.write(fd, data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        super().write(fd, buffers, path)


def run_in_child(path: Path, disk: Disk) -> tuple[int, int]:
    """The last commit that the job acknowledged, and the signal that ended it."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            job(path, disk, lambda seq: os.write(write, bytes([seq])))
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        acknowledged = pipe.read()
    _, status = os.waitpid(pid, 0)
    return max(acknowledged, default=0), os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


@pytest.mark.parametrize(("faulty", "at_least"), [(Killing, 200), (Tearing, 25)])
def test_a_kill_at_every_operation(folder: Path, faulty: Callable[[int], Disk], at_least: int) -> None:
    # A kill after the k-th operation is one before the next; after the last, the job is done.
    for at in range(1, 2000):
        path = folder / str(at)
        acknowledged, ended_by = run_in_child(path, faulty(at))
        if not ended_by:
            break
        check(path, acknowledged)
        shutil.rmtree(path)
    assert acknowledged == COMMITS and at > at_least


class PowerCut(Disk):
    """Makes, before each operation, what a power cut may leave of the directory.

    A file's bytes are sure since its last fsync, and a directory's names since its last fsync_dir. Of the
    rest the disk may have kept all or nothing, independently for bytes and for names. Descriptors are
    kept open, so that no inode is used twice.
    """

    def __init__(self, root: Path, images: Path) -> None:
        self.root, self.images = root, images
        self.bytes: dict[int, bytes] = {}
        self.names: dict[int, dict[str, tuple[int, bool]]] = {}
        self.kept: list[int] = []
        self.acknowledged = 0
        self.made: list[tuple[Path, int]] = []
        self.seen: set[int] = set()

    @contextmanager
    def step(self, what: str, path: Path) -> Iterator[None]:
        if what not in READING:
            for old_names, old_bytes in ((True, True), (False, True), (True, False)):
                image = self.images / str(len(self.made))
                self.make(os.stat(self.root).st_ino, self.root, image, old_names, old_bytes)
                self.made.append((image / "state", self.acknowledged))
        with super().step(what, path):
            yield

    def fsync(self, fd: int, path: Path) -> None:
        super().fsync(fd, path)
        self.kept.append(os.dup(fd))
        self.bytes[os.fstat(fd).st_ino] = os.pread(fd, 1 << 20, 0)

    def fsync_dir(self, path: Path) -> None:
        super().fsync_dir(path)
        fd = os.open(path, os.O_RDONLY)
        self.kept.append(fd)
        self.names[os.fstat(fd).st_ino] = self.listing(path)

    def listing(self, path: Path) -> dict[str, tuple[int, bool]]:
        return {entry.name: (entry.inode(), entry.is_dir()) for entry in os.scandir(path)}

    def make(self, inode: int, live: Path | None, image: Path, old_names: bool, old_bytes: bool) -> None:
        image.mkdir(parents=True)
        current = self.listing(live) if live else {}
        names = self.names.get(inode, {}) if old_names or not live else current
        for name, (inner, is_dir) in names.items():
            alive = live / name if live and current.get(name) == (inner, is_dir) else None
            if is_dir:
                self.make(inner, alive, image / name, old_names, old_bytes)
            else:
                data = self.bytes.get(inner, b"") if old_bytes or not alive else alive.read_bytes()
                (image / name).write_bytes(data)


def test_a_power_cut_before_every_operation(folder: Path) -> None:
    (folder / "live").mkdir()
    disk = PowerCut(folder / "live", folder / "images")
    try:
        job(folder / "live" / "state", disk, lambda seq: setattr(disk, "acknowledged", seq))
    finally:
        for fd in disk.kept:
            os.close(fd)
    assert len(disk.made) > 300
    for path, acknowledged in disk.made:
        try:
            check(path, acknowledged)
        except BaseException as error:
            error.add_note(f"{path} after {acknowledged} acknowledged commits")
            raise


class Full(Counting):
    """The k-th operation that needs space, or every one from there on, finds none."""

    def __init__(self, at: int, code: int = errno.ENOSPC) -> None:
        super().__init__()
        self.at = at
        self.code = code

    @contextmanager
    def step(self, what: str, path: Path) -> Iterator[None]:
        if what in (*READING, "remove"):
            with Disk.step(self, what, path):
                yield
            return
        with super().step(what, path):
            if self.count == self.at:
                raise OSError(self.code, os.strerror(self.code))
            yield


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_full_disk_at_every_operation(folder: Path, code: int) -> None:
    acknowledged: list[int] = []
    for at in range(1, 1000):
        path = folder / str(at)
        acknowledged.clear()
        try:
            job(path, Full(at, code), acknowledged.append)
        except StateError as error:
            told = str(error)
        else:
            break
        assert f"{os.strerror(code).lower()}; " in told and str(path.parent) in told
        check(path, len(acknowledged))
        shutil.rmtree(path)
    assert len(acknowledged) == COMMITS and at > 150


def test_a_broken_journal_takes_no_more_commits(tmp_path: Path) -> None:
    open_journal(tmp_path).close()
    journal = open_journal(tmp_path, disk := Full(0))
    disk.at = disk.count + 2
    with pytest.raises(StateError, match=r"cannot write .*log/000000000001.*no space left on device; free some space"):
        journal.commit({}, {})
    for _ in range(2):
        with pytest.raises(StateError, match="reopen"):
            journal.commit({}, {})
    with pytest.raises(StateError, match="reopen"):
        journal.snapshot({}, {})
    journal.close()
    check(tmp_path, 0)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "small"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(path)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("no mount command")
    if done.returncode:
        pytest.skip(f"mount is not permitted: {done.stderr.strip()}")
    yield path
    subprocess.run(["umount", str(path)], check=True)


def test_a_disk_that_is_really_full(small_disk: Path) -> None:
    journal, count = open_journal(small_disk / "state"), 0
    with pytest.raises(StateError, match=r"cannot (write|create) .*no space left on device"):  # noqa: PT012
        while True:
            journal.commit({"id": count}, {"changes": table(count + 1), "bulk": table(*range(20_000))})
            count += 1
    journal.close()
    assert count > 5
    # Nothing can be written, but all can be read; with space, the writer goes on.
    with Journal.read_only(small_disk / "state") as reader:
        assert recovered(reader) == list(range(1, count + 1))
    with open_journal(small_disk / "state") as journal:
        assert recovered(journal) == list(range(1, count + 1))
        journal.commit({"id": count}, {"changes": table(count + 1)})
        assert recovered(journal)[-1] == count + 1


def test_the_order_of_a_commit(tmp_path: Path) -> None:
    steps: list[tuple[str, str]] = []

    class Recording(Disk):
        @contextmanager
        def step(self, what: str, path: Path) -> Iterator[None]:
            steps.append((what, path.name.split(".")[-1] if path.parent.name == "log" else path.name))
            with super().step(what, path):
                yield

    with open_journal(tmp_path, Recording()) as journal:
        steps.clear()
        journal.commit({}, {"changes": table(1)})
        assert steps == [
            ("create", "open"),
            ("write", "open"),
            ("sync", "open"),
            ("look at", "writer.lock"),
            ("open", "writer.json"),
            ("read", "writer.json"),
            ("link", "seg"),
            ("remove", "open"),
            ("sync", "log"),
            ("write", "head"),
        ]
        assert read_segment(Disk(), tmp_path / "log" / "000000000001.seg").header["seq"] == 1
