"""Calls in flight, and a kill or an error at any file operation: what was answered is there, and no id runs twice.

Threads call, four times three at once, beside batches with a watermark that hold one call back. Each id has an account
of its own, whose balance counts how often it ran.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from failing_disk import kinds, nothing_left
from faulty import CODES, Failing, Killing

import penstock as ps
from penstock.commit import Disk

pytestmark = pytest.mark.faults

app = ps.App("calls")


@app.table
class Account:
    id: str = ps.key()
    count: int = 0


@app.event
class Put:
    ts: int = ps.order()
    id: str = ps.id()


@app.event
class Give:
    id: str = ps.id()


@app.transaction
def put(e: Put):
    Account.get(e.id).count += 1


@app.transaction
def give(e: Give):
    account = Account.get(e.id)
    account.count += 1
    return {"count": account.count}


HELD = "held"
IDS = [*(f"{turn}.{thread}" for turn in range(4) for thread in range(3)), HELD]
WAYS = ("changes", "input")


@pytest.fixture(autouse=True, scope="module")
def _compiled() -> None:
    """Before any fork."""
    app.open().close()


def opened(path: Path, log: Any, disk: Disk | None = None) -> Any:
    return app.open(path, log=log, retain=50, snapshot_every=3, background=False, scrub=None, disk=disk)


def event(id: str) -> Any:
    return Put(ts=8, id=id) if id == HELD else Give(id=id)


def job(path: Path, log: str, disk: Disk | None, tell: Callable[[str, Any], object]) -> None:
    """tell: of each answer, which is an outcome, or an error's `committed`."""
    with ThreadPoolExecutor(4) as pool, opened(path, log, disk) as db:

        def call(id: str) -> None:
            try:
                tell(id, db.call(event(id)))
            except ps.StateError as error:
                tell(id, error.committed)
                raise

        held = None
        for turn in range(4):
            if turn == 1:
                db.run([Put(ts=10, id="t")], watermark=5)
                held = pool.submit(call, HELD)
                while db.held < 2 and not held.done():
                    pass
            if turn == 3:
                db.run([Put(ts=30, id="u")], watermark=5)
            for one in [pool.submit(call, f"{turn}.{thread}") for thread in range(3)]:
                one.result()
        assert held is not None
        held.result()


def check(path: Path, log: str, told: dict[str, Any]) -> None:
    """What was told is true; called again, each id has run once."""
    with opened(path, log) as db, ThreadPoolExecutor(1) as pool:
        found = counts(db)
        for id, said in told.items():
            # Of one that is held back the arrival may be durable, although it has not run.
            is_known = said is not None and not (id == HELD and said is True)
            assert not is_known or found.get(id, 0) == (said is not False), f"{id}: told {said}, there is {found}"
        again = {id: db.call(event(id)) for id in IDS if id != HELD}
        held = pool.submit(db.call, event(HELD))
        while not held.done() and not db._calls._waiting:
            pass
        db.run([], flush=True)
        again[HELD] = held.result(60)
        assert all(again[id] == said for id, said in told.items() if isinstance(said, dict))
        found = counts(db)
        assert all(found[id] == 1 for id in IDS), f"lost or twice: {found}"


def counts(db: Any) -> dict[str, int]:
    return {row["id"]: row["count"] for row in db.table(Account).to_pylist()}


def kill(path: Path, log: str, at: int) -> bool:
    """Whether there was an at-th operation to be killed at."""
    told, telling = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(told)
            job(path, log, Killing(at), lambda id, _: os.write(telling, bytes([IDS.index(id)])))
        finally:
            os._exit(0)
    os.close(telling)
    with os.fdopen(told, "rb") as pipe:
        known = pipe.read()
    killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
    assert killed or len(known) == len(IDS)
    check(path, log, {IDS[place]: True for place in known})
    shutil.rmtree(path)
    return killed


def fail(path: Path, log: str, at: int, code: str, how: str) -> bool:
    disk, told = Failing(), dict[str, Any]()
    disk.fail(at, CODES[code], persists=how == "persists", done=how == "done")
    with nothing_left():
        with suppress(ps.StateError):
            job(path, log, disk, told.__setitem__)
        disk.heal()
        check(path, log, told)
    shutil.rmtree(path)
    return disk.met


@pytest.mark.parametrize("log", WAYS)
def test_killed_at_some_file_operations(log: str, folder: Path) -> None:
    at = random.SystemRandom().randrange(1, 15)
    while kill(folder / "state", log, at):
        at += 15
    # Commits, snapshots and an opening: fewer would mean that the hook missed most.
    assert at > 80


@pytest.mark.long
@pytest.mark.parametrize("log", WAYS)
def test_killed_at_every_file_operation(log: str, folder: Path) -> None:
    at = 1
    while kill(folder / "state", log, at):
        at += 1


def faults(log: str, folder: Path) -> list[tuple[int, str, str]]:
    """Threads share versions as it happens, so an operation may be another one the next time."""
    disk = Failing()
    job(folder / "first", log, disk, lambda id, outcome: None)
    return [(at, *kind) for at, what in enumerate(disk.seen, 1) for kind in kinds(what)]


@pytest.mark.parametrize("log", WAYS)
def test_a_disk_that_fails_at_some_operation(log: str, folder: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    for number, fault in enumerate(random.Random(seed).sample(faults(log, folder), 12)):
        print(fault)
        fail(folder / str(number), log, *fault)


@pytest.mark.long
@pytest.mark.parametrize("log", WAYS)
def test_a_disk_that_fails_at_any_operation(log: str, folder: Path) -> None:
    for number, fault in enumerate(faults(log, folder)):
        print(fault)
        fail(folder / str(number), log, *fault)


def test_one_is_killed_while_another_process_calls(folder: Path) -> None:
    """The client knows what it was told; the rest it calls again."""
    path = folder / "state"
    for at in (30, 60, 90):
        ready, readies = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                with opened(path, "changes", Killing(at)) as db:
                    db.serve_calls()
                    os.write(readies, b".")
                    signal.pause()
            finally:
                os._exit(0)
        os.close(readies)
        assert os.read(ready, 1) == b"."
        os.close(ready)
        told: dict[str, Any] = {}
        unknown: list[Any] = []
        with app.connect(path) as there:
            for number in range(100):
                try:
                    told[f"w{number}"] = there.call(Give(id=f"w{number}"))
                except ps.StateError as error:
                    unknown.append(error.committed)
                    break
        os.waitpid(child, 0)
        assert unknown == [None] and told
        with opened(path, "changes") as db:
            last = f"w{len(told)}"
            assert counts(db).keys() >= told.keys()
            assert db.call(Give(id=last))["count"] == 1
            for id, outcome in told.items():
                assert db.call(Give(id=id)) == outcome
            assert set(counts(db).values()) == {1}
        shutil.rmtree(path)
