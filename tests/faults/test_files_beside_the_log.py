"""The files beside the log survive what the log survives: a kill before any operation, torn writes, a power cut, a
full disk.

One small job is used throughout: a list of files in an older version's shape is taken over and grows, outcomes of
each batch go to their file, and each of two runs ends with a drain. A run begins as a query does: with the outcomes
of the newest batch, which a crash may have kept from being written.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faulty import Killing
from test_journal_faults import Full, PowerCut

from penstock.commit import Disk
from penstock.commit.identity import IDENTITY
from penstock.commit.sealed import seal
from penstock.errors import StateError
from penstock.publish.files import OutcomeFiles
from penstock.publish.manifest import check_outcomes
from penstock.spark.drained import DrainNote
from penstock.spark.listing import FileList, list_path

pytestmark = pytest.mark.faults

OLD = ["old-1.parquet", "old-2.parquet"]
BATCHES = 6


def names_upto(batch: int) -> list[str]:
    return [*OLD, *(f"{part}-{n}.parquet" for n in range(1, batch + 1) for part in "ab")]


def outcomes(version: int) -> pa.Table:
    return pa.table({"ts": [version, version + 1], "id": ["a", "b"], "version": [version, version]})


def made(root: Path, disk: Disk) -> Path:
    """A state directory of an older version, durably."""
    state = root / "state"
    disk.ensure_dir(state / "sources")
    disk.replace(state / IDENTITY, seal({"app": "bank", "directory": "9f3c", "log": "changes"}))
    old = "".join(f'"{name}"\n' for name in OLD) + '"torn'
    disk.replace(state / "sources" / "Transfer.jsonl", old.encode())
    return state


def listed(state: Path, disk: Disk) -> FileList:
    return FileList(list_path(state, "Transfer"), "Transfer", "9f3c", disk)


def job(state: Path, disk: Disk, acknowledge: Callable[[int], object] = lambda batch: None) -> None:
    """Brings the directory from wherever it is to its last batch."""
    for stop in (BATCHES - 2, BATCHES):
        known, files = listed(state, disk), OutcomeFiles(str(state / "out"), str(state), disk)
        batch = (len(known.names()) - len(OLD)) // 2
        if batch:
            files.write(outcomes(batch))
        while batch < stop:
            batch += 1
            known.add(names_upto(batch)[len(known.names()) :])
            files.write(outcomes(batch))
            acknowledge(batch)
        note = DrainNote(state, disk)
        if not note.says(batch, can_repeat=False):
            note.write(batch)


def check(state: Path, acknowledged: int) -> None:
    """What was acknowledged is there and sound; the job can go on, and then all is."""
    names = listed(state, Disk()).names()
    assert names == names_upto(BATCHES)[: len(names)] and len(names) >= len(names_upto(acknowledged))
    wrong = list(check_outcomes(state / "out", "9f3c")) if acknowledged else []
    assert all(f"{acknowledged + 1:012}.parquet is missing; the next start" in finding for finding in wrong), wrong
    job(state, Disk())
    assert listed(state, Disk()).names() == names_upto(BATCHES)
    assert list(check_outcomes(state / "out", "9f3c")) == []
    files = sorted((state / "out").glob("*.parquet"))
    assert [pq.read_table(f).equals(outcomes(n)) for n, f in enumerate(files, 1)] == [True] * BATCHES
    assert DrainNote(state, Disk()).says(BATCHES, can_repeat=False)
    assert not list(state.rglob("*.tmp")) and not list(state.rglob("*.jsonl"))


class Tearing(Disk):
    """Kills the process in the middle of the k-th write."""

    def __init__(self, at: int) -> None:
        self.left = at

    def write(self, fd: int, buffers: Any, path: Path) -> None:
        self._tear(fd, b"".join(buffers), 0)
        super().write(fd, buffers, path)

    def write_at(self, fd: int, data: bytes, offset: int, path: Path) -> None:
        self._tear(fd, data, offset)
        super().write_at(fd, data, offset, path)

    def _tear(self, fd: int, data: bytes, offset: int) -> None:
        self.left -= 1
        if not self.left:
            os.pwrite(fd, data[: len(data) // 2], offset)
            os.kill(os.getpid(), signal.SIGKILL)


def run_in_child(state: Path, disk: Disk) -> tuple[int, bool]:
    """The last batch that the job acknowledged, and whether it was killed."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            job(state, disk, lambda batch: os.write(write, bytes([batch])))
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        acknowledged = pipe.read()
    _, status = os.waitpid(pid, 0)
    return max(acknowledged, default=0), os.WIFSIGNALED(status)


@pytest.mark.parametrize(("faulty", "at_least"), [(Killing, 90), (Tearing, 20)])
def test_a_kill_at_every_operation(folder: Path, faulty: Callable[[int], Disk], at_least: int) -> None:
    for at in range(1, 2000):
        state = made(folder / str(at), Disk())
        acknowledged, killed = run_in_child(state, faulty(at))
        if not killed:
            break
        check(state, acknowledged)
        shutil.rmtree(folder / str(at))
    assert acknowledged == BATCHES and at > at_least


def test_a_power_cut_before_every_operation(folder: Path) -> None:
    (folder / "live").mkdir()
    disk = PowerCut(folder / "live", folder / "images")
    try:
        state = made(folder / "live", disk)
        disk.made.clear()
        shutil.rmtree(folder / "images")
        job(state, disk, lambda batch: setattr(disk, "acknowledged", batch))
    finally:
        for fd in disk.kept:
            os.close(fd)
    assert len(disk.made) > 270
    for image, acknowledged in disk.made:
        try:
            check(image, acknowledged)
        except BaseException as error:
            error.add_note(f"{image} after {acknowledged} acknowledged batches")
            raise


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_full_disk_at_every_operation(folder: Path, code: int) -> None:
    acknowledged: list[int] = []
    for at in range(1, 1000):
        state = made(folder / str(at), Disk())
        acknowledged.clear()
        try:
            job(state, Full(at, code), acknowledged.append)
        except StateError as error:
            told = str(error)
        else:
            break
        assert f"{os.strerror(code).lower()}; " in told and str(folder / str(at)) in told
        check(state, len(acknowledged))
        shutil.rmtree(folder / str(at))
    assert len(acknowledged) == BATCHES and at > 80
