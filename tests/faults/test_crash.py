"""A durable database survives SIGKILL: at every file operation of a small job, and at random moments.

The job runs batches of a bank with transfers, inserts and deletes, over two openings, in both ways to log, and ahead of
what is asked. It acknowledges each batch after `run` returned. The reference, run beside it, knows what every prefix of
the batches leaves. After the kill the directory must hold exactly one of those prefixes, with every acknowledged batch
in it and at most one more; replaying all ids then must end where the reference ends.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from faulty import Killing

import penstock as ps
from penstock.commit import Disk
from penstock.testing import assert_same_outcomes, assert_same_tables

pytestmark = pytest.mark.faults

bank = ps.App("crash")


@bank.table
class Account:
    id: str = ps.key()
    balance: ps.decimal(18, 2) = 0

    @ps.check("insufficient funds")
    def solvent(self):
        return self.balance >= 0


@bank.event
class Move:
    ts: int = ps.order()
    src: str
    dst: str
    amount: ps.decimal(18, 2)


@bank.event
class Close:
    ts: int = ps.order()
    id_: str


@bank.transaction
def move(e: Move):
    src, dst = Account[e.src], Account.get(e.dst)
    src.balance -= e.amount
    dst.balance += e.amount
    return {"left": src.balance}


@bank.transaction
def close(e: Close):
    ps.require(Account[e.id_].balance == 0, "not empty")
    del Account[e.id_]


BATCHES = 9
REOPEN_AT = 6
ROWS = [{"id": f"a{k}", "balance": 20} for k in range(6)]


def batch(k: int) -> list[Any]:
    rng = random.Random(k)
    names = [f"a{i}" for i in range(8)]
    events: list[Any] = []
    for i in range(30):
        if rng.random() < 0.2:
            events.append(Close(ts=rng.randrange(40), id_=rng.choice(names)))
        else:
            events.append(
                Move(ts=rng.randrange(40), src=rng.choice(names), dst=rng.choice(names), amount=rng.randrange(1 + i))
            )
    return events


class Prefixes:
    """What the reference says of every prefix."""

    def __init__(self) -> None:
        reference = bank.reference()
        reference.load(Account, ROWS)
        self.tables = [reference.table(Account)]
        self.outcomes = []
        for k in range(BATCHES):
            self.outcomes.append(reference.run(batch(k)))
            self.tables.append(reference.table(Account))


@pytest.fixture(scope="module")
def prefixes() -> Prefixes:
    bank.open().close()  # Compile before any fork.
    return Prefixes()


# "ahead": a stream whose next batch is run before it is asked for, and every third time another one is asked for.
WAYS = ["changes", "input", "ahead"]


def open_db(path: Path, way: str, disk: Disk | None = None, background: bool = False) -> Any:
    log = "changes" if way == "ahead" else way
    return bank.open(path, log=log, retain=3, snapshot_every=2, background=background, disk=disk)


def job(
    path: Path, way: str, acknowledge: Callable[[int], object], disk: Disk | None = None, background: bool = False
) -> None:
    for stop in (REOPEN_AT, BATCHES):
        with open_db(path, way, disk, background) as db:
            if db.table(Account).num_rows == 0:
                db.load(Account, ROWS)
            for k in range(db.version, stop):
                if way == "ahead":
                    expected = k + (k % 3 == 0)
                    db.run_ahead(batch(expected), id=k, source="s", offsets=str(expected))
                db.run(batch(k), id=k, source="s" if way == "ahead" else None, offsets=str(k))
                acknowledge(k + 1)
            if way == "ahead":
                db.run_ahead(batch(stop), id=stop, source="s")


def killed(
    path: Path, run: Callable[[Callable[[int], object]], None], after_s: float | None = None
) -> tuple[bool, int]:
    """Run it in a child; whether it was killed, and the last batch that it acknowledged."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            run(lambda k: os.write(writing, bytes([k])))
        finally:
            os._exit(0)
    os.close(writing)
    if after_s is not None:
        time.sleep(after_s)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    said = os.read(reading, 1000)
    os.close(reading)
    return os.WIFSIGNALED(status), said[-1] if said else 0


def check(path: Path, way: str, acknowledged: int, prefixes: Prefixes) -> None:
    with open_db(path, way) as db:
        assert acknowledged <= db.version <= acknowledged + 1
        found = db.table(Account)
        if db.version or found.num_rows:
            assert_same_tables(found, prefixes.tables[db.version], ["id"])
        else:
            db.load(Account, ROWS)
        oldest = max(0, db.version - 3)
        for k in range(BATCHES):
            if k >= oldest or k >= db.version:
                assert_same_outcomes(db.run(batch(k), id=k), prefixes.outcomes[k])
        assert_same_tables(db.table(Account), prefixes.tables[BATCHES], ["id"])


@pytest.mark.parametrize("way", WAYS)
def test_killed_at_every_file_operation(way: str, folder: Path, prefixes: Prefixes) -> None:
    at = 0
    while True:
        at += 1
        path = folder / f"state{at}"
        was_killed, acknowledged = killed(path, lambda ack, p=path, k=at: job(p, way, ack, Killing(k)))
        if not was_killed:
            assert acknowledged == BATCHES
            break
        check(path, way, acknowledged, prefixes)
        shutil.rmtree(path)
    # Loads, commits, snapshots, pruning, two openings: fewer operations would mean that the hook missed most.
    assert at > 100


@pytest.mark.parametrize("way", WAYS)
def test_killed_at_random_moments_with_snapshots_in_the_background(way: str, folder: Path, prefixes: Prefixes) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    begun = time.perf_counter()
    assert killed(folder / "whole", lambda ack: job(folder / "whole", way, ack, background=True)) == (False, BATCHES)
    whole = time.perf_counter() - begun
    kills = 0
    for n in range(25):
        path = folder / f"state{n}"
        after = rng.random() * whole
        was_killed, acknowledged = killed(path, lambda ack, p=path: job(p, way, ack, background=True), after)
        kills += was_killed
        if not was_killed:
            whole *= 0.8  # the machine has become faster since that was measured
        check(path, way, acknowledged, prefixes)
    assert kills > 5
