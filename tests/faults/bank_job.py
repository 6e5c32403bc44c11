"""One small job on a durable database, for whatever may go wrong with it.

It runs batches of a bank with transfers, inserts and deletes, over two openings, with snapshots and pruning. The
reference, run beside it, knows what every prefix of the batches leaves. Whatever happens to the job, the directory must
then hold exactly one of those prefixes, with every acknowledged batch in it and at most one more; running all ids again
must then give the same outcomes, and end where the reference ends.

    way           log      besides
    changes       changes
    input         input
    ahead         changes  each batch runs before it is asked for, and every third time another one is asked for
    held          input    a watermark holds events back from batch to batch
    held ahead    changes  both
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.commit import Disk
from penstock.testing import assert_same_outcomes, assert_same_tables

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


WAYS = ["changes", "input", "ahead", "held", "held ahead"]
BATCHES = 9
REOPEN_AT = 6
RETAIN = 3
# The times of two batches in a row overlap by so much: with a watermark of it, nothing is late.
OVERLAP = 15
ROWS = [{"id": f"a{k}", "balance": 20} for k in range(6)]


@cache
def batch(k: int) -> list[Any]:
    rng = random.Random(k)
    names = [f"a{i}" for i in range(8)]
    events: list[Any] = []
    for i in range(30):
        ts = k * 40 + rng.randrange(40 + OVERLAP)
        if rng.random() < 0.2:
            events.append(Close(ts=ts, id_=rng.choice(names)))
        else:
            events.append(Move(ts=ts, src=rng.choice(names), dst=rng.choice(names), amount=rng.randrange(1 + i)))
    return events


class Prefixes:
    """What the reference says of every prefix. Of held events it knows nothing: there the engine in memory is asked,
    and the reference says what all of them leave when they run as one batch."""

    def __init__(self, way: str) -> None:
        with bank.open() if _held(way) else bank.reference() as prophet:
            prophet.load(Account, ROWS)
            self.tables = [prophet.table(Account)]
            self.outcomes = []
            for k in range(BATCHES):
                self.outcomes.append(prophet.run(batch(k), **_when(way, k)))
                self.tables.append(prophet.table(Account))
        if _held(way):
            reference = bank.reference()
            reference.load(Account, ROWS)
            reference.run([event for k in range(BATCHES) for event in batch(k)])
            assert_same_tables(self.tables[-1], reference.table(Account), ["id"])


@cache
def prefixes(way: str) -> Prefixes:
    return Prefixes(way)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the job, and the version that it makes."""

    name: str
    make: Callable[[], Any]
    version: int | None = None
    of: int | None = None  # it only reads: the outcomes of this version


def open_db(path: Path, way: str, disk: Disk | None = None, background: bool = False) -> Any:
    log = "input" if way in ("input", "held") else "changes"
    return bank.open(path, log=log, retain=RETAIN, snapshot_every=2, background=background, disk=disk)


def calls(db: Any, way: str, stop: int) -> Iterator[Call]:
    """What the job does between opening and closing, from wherever the directory is up to a version."""
    yield Call("load", lambda: fill(db))
    for version in range(max(1, db.version - 1), db.version + 1):
        yield Call(f"outcomes {version}", lambda v=version: db.outcomes(v), of=version)
        yield Call(f"stored {version - 1}", lambda v=version: db.stored(v - 1), of=version)
    for k in range(db.version, stop):
        if _ahead(way):
            yield Call(f"run_ahead {k}", lambda k=k: run_ahead(db, way, k, k + (k % 3 == 0)))
        yield Call(f"run {k}", lambda k=k: run(db, way, k), k + 1)
    if _ahead(way) and stop < BATCHES:
        yield Call(f"run_ahead {stop}", lambda: run_ahead(db, way, stop, stop))


def fill(db: Any) -> None:
    if db.table(Account).num_rows == 0:
        db.load(Account, ROWS)


def run(db: Any, way: str, k: int) -> Any:
    when = _when(way, k)
    source = "s" if _ahead(way) and not when.get("flush") else None  # the end of a stream is no batch of it
    return db.run(batch(k), id=k, source=source, offsets=str(k), **when)


def run_ahead(db: Any, way: str, k: int, expected: int) -> None:
    """The batch that is expected, right or wrong, in the place of batch k."""
    watermark = {"watermark": OVERLAP} if _held(way) else {}
    db.run_ahead(batch(expected), id=k, source="s", offsets=str(expected), **watermark)


def job(
    path: Path, way: str, acknowledge: Callable[[int], object], disk: Disk | None = None, background: bool = False
) -> None:
    for stop in (REOPEN_AT, BATCHES):
        with open_db(path, way, disk, background) as db:
            for call in calls(db, way, stop):
                call.make()
                if call.version is not None:
                    acknowledge(call.version)


def check(path: Path, way: str, acknowledged: int) -> None:
    """The directory holds a prefix, and what was acknowledged of it; run again, each id happens once."""
    right = prefixes(way)
    with open_db(path, way) as db:
        assert acknowledged <= db.version <= acknowledged + 1
        found = db.table(Account)
        if db.version or found.num_rows:
            assert_same_tables(found, right.tables[db.version], ["id"])
        fill(db)
        oldest = max(0, db.version - RETAIN)
        for k in range(oldest, BATCHES):
            assert_same_outcomes(db.run(batch(k), id=k, **_when(way, k)), right.outcomes[k])
        assert (db.version, db.held) == (BATCHES, 0)
        assert_same_tables(db.table(Account), right.tables[BATCHES], ["id"])


def _held(way: str) -> bool:
    return way.startswith("held")


def _ahead(way: str) -> bool:
    return way.endswith("ahead")


def _when(way: str, k: int) -> dict[str, Any]:
    return {"watermark": OVERLAP, "flush": k == BATCHES - 1} if _held(way) else {}
