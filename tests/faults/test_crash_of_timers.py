"""Timers through SIGKILL at every file operation: whatever was left, each of them runs once, and at its time."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from faulty import Killing
from from_files import from_file
from test_crash import Child

import penstock as ps
from penstock.commit import Disk
from penstock.testing import assert_same_outcomes, assert_same_tables

pytestmark = pytest.mark.faults

hall = ps.App("hall")


@hall.table
class Seat:
    id: str = ps.key()
    booking: str = ""
    freed: int = 0


@hall.event
class Book:
    ts: int = ps.order()
    id: str = ps.id()
    seat: str


@hall.event
class Expire:
    seat: str
    booking: str


@hall.transaction
def book(e: Book):
    seat = Seat[e.seat]
    ps.require(seat.booking == "", "taken")
    seat.booking = e.id
    ps.emit(Expire(seat=e.seat, booking=e.id), at=e.ts + 3)


@hall.transaction
def expire(e: Expire):
    seat = Seat[e.seat]
    seat.booking = ""
    seat.freed += 1
    if seat.freed % 2:
        ps.emit(Expire(seat=e.seat, booking=e.booking), at=ps.now() + 2)


# A batch, or what the clock is set to; each makes one version. The directory is opened again before the last ones.
STEPS: list[Any] = [
    [Book(ts=ts, id=f"a{ts}", seat="AB"[ts % 2]) for ts in range(6)],
    8,
    [Book(ts=ts, id=f"b{ts}", seat="AB"[ts % 2]) for ts in (9, 10)],
    [Book(ts=11, id="c", seat="A")],
    30,
]
REOPEN_AT = 3


def step(db: Any, k: int, files: Path | None = None) -> Any:
    """files: where batches come from, if they come from files."""
    if isinstance(STEPS[k], int):
        return db.advance(STEPS[k])
    return db.run(STEPS[k] if files is None else from_file(files / f"batch{k}.parquet", STEPS[k]))


def open_db(path: Path, log: str, disk: Disk | None = None) -> Any:
    return hall.open(path, log=log, snapshot_every=2, background=False, disk=disk)


def fill(db: Any) -> None:
    if db.table(Seat).num_rows == 0:
        db.load(Seat, [{"id": "A"}, {"id": "B"}])


def job(path: Path, log: str, acknowledge: Callable[[int], object], disk: Disk) -> None:
    for stop in (REOPEN_AT, len(STEPS)):
        with open_db(path, log, disk) as db:
            fill(db)
            while db.version < stop:
                step(db, db.version, path.parent if log == "source" else None)
                acknowledge(db.version)


@cache
def right() -> list[tuple[Any, Any, Any]]:
    """Behind every version: its outcomes, the seats, the timers."""
    reference = hall.reference()
    fill(reference)
    return [(step(reference, k), reference.table(Seat), reference.pending(Expire)) for k in range(len(STEPS))]


@pytest.mark.parametrize("log", ["changes", "source", pytest.param("input", marks=pytest.mark.long)])
def test_killed_at_every_file_operation_each_timer_runs_once(log: str, folder: Path) -> None:
    assert sum(out.num_rows for out, _, _ in right()) > 15
    hall.open().close()  # compiled before any fork
    killed, at = True, 0
    while killed:
        at += 1
        path = folder / f"state{at}"
        child = Child(lambda ack, p=path, at=at: job(p, log, ack, Killing(at)))
        killed = child.ended()
        with open_db(path, log) as db:
            assert child.acknowledged <= db.version <= child.acknowledged + 1
            if db.version:
                _, seats, timers = right()[db.version - 1]
                assert_same_tables(db.table(Seat), seats, ["id"])
                assert db.pending(Expire).to_pylist() == timers.to_pylist()
            fill(db)
            while db.version < len(STEPS):
                step(db, db.version, folder if log == "source" else None)
            for version, (outcomes, _, _) in enumerate(right(), 1):
                assert_same_outcomes(db.outcomes(version), outcomes)
            assert_same_tables(db.table(Seat), right()[-1][1], ["id"])
            assert db.pending(Expire).num_rows == 0
        shutil.rmtree(path)
    assert at > 60
