"""A window that is half filled survives SIGKILL at every file operation of a small job."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from faulty import Killing
from from_files import from_file

import penstock as ps
from penstock.commit import Disk
from penstock.testing import assert_same_outcomes, assert_same_tables

pytestmark = pytest.mark.faults
app = ps.App("window crash")
BATCHES, REOPEN_AT = 6, 3


@app.table
class Note:
    key: str = ps.key()
    entered: int = 0
    expired: int = 0


@app.event
class Put:
    ts: int = ps.order()
    key: str
    n: int


@app.window(rows=4, slide=3)
class Recent:
    key: str = ps.key()
    n: int


@app.window(time=12, slide=5)
class Span:
    n: int


@app.trigger
def noted(w: Recent) -> None:
    note = Note.get(w.key)
    note.entered += len(w.entered)
    note.expired += len(w.expired)


@app.transaction
def put(e: Put) -> dict[str, int]:
    recent = Recent[e.key]
    recent.add(n=e.n)
    Span.add(n=e.n)
    ps.require(e.n != 3, "three")
    return {"recent": recent.n.sum(), "span": Span.n.sum(), "many": len(Span)}


def batch(k: int) -> list[Any]:
    return [Put(ts=7 * k + i, key="abc"[(k + i * i) % 3], n=(k + i) % 5) for i in range(7)]


def handed(folder: Path, log: Any, k: int) -> Any:
    return from_file(folder / f"batch{k}.parquet", batch(k)) if log == "source" else batch(k)


@cache
def wanted() -> tuple[list[Any], list[Any]]:
    """Outcomes, and the table before the first batch and after each."""
    with app.reference() as reference:
        tables, outcomes = [reference.table(Note)], []
        for k in range(BATCHES):
            outcomes.append(reference.run(batch(k)))
            tables.append(reference.table(Note))
    return outcomes, tables


def job(path: Path, log: Any, acknowledge: Callable[[int], object], disk: Disk | None = None) -> None:
    for stop in (REOPEN_AT, BATCHES):
        with app.open(path, log=log, retain=3, snapshot_every=2, background=False, disk=disk) as db:
            for k in range(db.version, stop):
                db.run(handed(path.parent, log, k), id=k)
                acknowledge(k + 1)


def check(path: Path, log: Any, acknowledged: int) -> None:
    """The directory holds a prefix; what follows runs on windows that are as they were."""
    outcomes, tables = wanted()
    with app.open(path, log=log, background=False) as db:
        assert acknowledged <= db.version <= acknowledged + 1
        assert_same_tables(db.table(Note), tables[db.version], ["key"])
        for k in range(db.version, BATCHES):
            assert_same_outcomes(db.run(handed(path.parent, log, k), id=k), outcomes[k])
        assert_same_tables(db.table(Note), tables[BATCHES], ["key"])


def killed(folder: Path, log: str, at: int) -> bool:
    """Kills the job before its at-th file operation, and looks at what is left; whether there was such an operation."""
    path, (told, telling) = folder / f"state{at}", os.pipe()
    process = os.fork()
    if process == 0:
        os.close(told)
        try:
            job(path, log, lambda k: os.write(telling, bytes([k])), Killing(at))
        finally:
            os._exit(0)
    os.close(telling)
    acknowledged = 0
    while byte := os.read(told, 1):
        acknowledged = byte[0]
    os.close(told)
    was_killed = os.WIFSIGNALED(os.waitpid(process, 0)[1])
    assert was_killed or acknowledged == BATCHES
    check(path, log, acknowledged)
    shutil.rmtree(path)
    return was_killed


@pytest.mark.parametrize("log", ["changes", "input", "source"])
def test_killed_at_every_file_operation(log: str, folder: Path) -> None:
    job(folder / "whole", log, lambda k: None)  # compiled before any fork
    at = 1
    while killed(folder, log, at):
        at += 1
    assert at > 60
