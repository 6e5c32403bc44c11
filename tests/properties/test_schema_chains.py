"""Chains of schema changes, with batches, held events, timers, windows and a failing disk between them: what is on disk
is what the reference holds that went the same way, and each version reads as it was written."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from settings import EXAMPLES

import penstock as ps
from penstock.commit import Disk
from penstock.database import Database
from penstock.errors import StateError
from penstock.plan.migration import Words
from penstock.replica.directory import Directory
from penstock.testing import assert_same_outcomes, assert_same_tables


@dataclass(frozen=True)
class Stage:
    """One of the declarations that an app goes through, in this order; it may leave some out."""

    app: ps.App
    balance: str  # what the column is called
    event: Callable[[int, int, str, int], Any]  # ts, number, account, amount


def _first() -> Stage:
    app = ps.App("chain")

    @app.table
    class Account:
        id: str = ps.key()
        amount: int = 0
        note: str = "-"

    @app.table
    class Old:
        id: str = ps.key()
        n: int = 0

    @app.event
    class Pay:
        ts: int = ps.order()
        id: int = ps.id()
        account: str
        amount: int
        memo: str

    @app.event
    class Refund:
        account: str
        amount: int
        memo: str

    @app.transaction
    def pay(e: Pay):
        Account.get(e.account).amount += e.amount
        Old.get(e.memo).n += 1
        ps.emit(Refund(account=e.account, amount=1, memo=e.memo), at=e.ts + 4)
        return {"left": Account[e.account].amount}

    @app.transaction
    def refund(e: Refund):
        Account.get(e.account).amount -= e.amount

    return Stage(app, "amount", lambda ts, n, a, v: Pay(ts=ts, id=n, account=a, amount=v, memo=a))


def _renamed() -> Stage:
    app = ps.App("chain")

    @app.table
    class Account:
        id: str = ps.key()
        balance: int = 0
        note: str | None = "-"
        times: int = 3

    @app.table
    class Old:
        id: str = ps.key()
        n: int = 0

    @app.event
    class Pay:
        ts: int = ps.order()
        id: int = ps.id()
        account: str
        amount: int
        memo: str

    @app.event
    class Refund:
        account: str
        amount: int

    @app.transaction
    def pay(e: Pay):
        account = Account.get(e.account)
        account.balance += e.amount
        account.note = e.memo
        account.times += 1
        Old.get(e.memo).n += 2
        ps.emit(Refund(account=e.account, amount=1), at=e.ts + 3)

    @app.transaction
    def refund(e: Refund):
        Account.get(e.account).balance -= e.amount

    return Stage(app, "balance", lambda ts, n, a, v: Pay(ts=ts, id=n, account=a, amount=v, memo=a * 2))


def _decimals() -> Stage:
    app = ps.App("chain")

    @app.table
    class Account:
        id: str = ps.key()
        balance: Decimal = ps.decimal(12, 1, default=0)
        times: int | None = 3
        owner: str | None = None

        @ps.check("poor")
        def solvent(self) -> bool:
            return self.balance > -5

    @app.table
    class Fee:
        account: str = ps.key()
        paid: Decimal = ps.decimal(9, 2, default=0)

    @app.window(rows=3)
    class Last:
        account: str = ps.key()
        amount: Decimal = ps.decimal(9, 2)

    @app.event
    class Pay:
        ts: int = ps.order()
        id: int = ps.id()
        account: str
        amount: Decimal = ps.decimal(9, 2)

    @app.event
    class Refund:
        account: str
        amount: Decimal = ps.decimal(9, 1)

    @app.transaction
    def pay(e: Pay):
        Account.get(e.account).balance += e.amount
        Last[e.account].add(amount=e.amount)
        Fee.get(e.account).paid = sum((r.amount for r in Last[e.account]), Decimal("0.00"))
        ps.emit(Refund(account=e.account, amount=Decimal("0.5")), at=e.ts + 5)
        return {"paid": Fee[e.account].paid}

    @app.transaction
    def refund(e: Refund):
        Account.get(e.account).balance -= e.amount

    return Stage(app, "balance", lambda ts, n, a, v: Pay(ts=ts, id=n, account=a, amount=Decimal(v) / 4))


def _last() -> Stage:
    app = ps.App("chain")

    @app.table
    class Account:
        id: str = ps.key()
        balance: Decimal = ps.decimal(15, 3, default=1)
        owner: str | None = None
        note: int = 7  # a new one, of a name that there was before

        @ps.check("poor")
        def solvent(self) -> bool:
            return self.balance > -3

    @app.table
    class Fee:
        account: str = ps.key()
        paid: Decimal = ps.decimal(9, 2, default=0)

    @app.table
    class Old:
        id: str = ps.key()
        text: str = "new"

    @app.window(rows=3)
    class Last:
        account: str = ps.key()
        amount: Decimal = ps.decimal(9, 2)

    @app.event
    class Pay:
        ts: int = ps.order()
        id: int = ps.id()
        account: str
        amount: Decimal = ps.decimal(9, 2)
        by: str | None = None
        rank: int = 3

    @app.event
    class Refund:
        account: str
        amount: Decimal = ps.decimal(10, 2)
        why: str | None = None

    @app.transaction
    def pay(e: Pay):
        account = Account.get(e.account)
        account.balance += e.amount
        account.note += e.rank
        account.owner = e.by
        Last[e.account].add(amount=e.amount)
        Fee.get(e.account).paid += sum((r.amount for r in Last[e.account]), Decimal("0.00"))
        Old.get(e.account).text = e.account
        ps.emit(Refund(account=e.account, amount=Decimal("0.25")), at=e.ts + 2)

    @app.transaction
    def refund(e: Refund):
        Account.get(e.account).balance -= e.amount

    return Stage(app, "balance", lambda ts, n, a, v: Pay(ts=ts, id=n, account=a, amount=Decimal(v) / 4, by=a, rank=n))


STAGES = (_first, _renamed, _decimals, _last)


@cache
def stages() -> tuple[Stage, ...]:
    return tuple(make() for make in STAGES)


def words(before: Stage, now: Stage, there: dict[str, dict[str, str]]) -> Words:
    """What has to be said to come from the one to the other. there: the tables of the directory."""
    tables = {t.name: {c.name for c in t.columns} for t in now.app.program.tables}
    rename = {} if before.balance == now.balance else {f"Account.{before.balance}": now.balance}
    gone = [f"{t}.{c}" for t, columns in there.items() if t in tables for c in columns if c not in tables[t]]
    return Words(rename, [one for one in gone if one not in rename], [t for t in there if t not in tables])


# Where a stage is left out, a table or column of another type may come in the place of one of the same name, which is
# refused: then the chain goes through the stage between.
_NEEDS_THE_THIRD = 3


@dataclass(frozen=True)
class Step:
    payments: list[tuple[int, str, int]]  # ts, account, amount
    watermark: int | None
    flush: bool
    reopened: bool
    fails_at: int  # which operation of the disk fails, if there are so many


payment = st.tuples(st.integers(1, 30), st.sampled_from("abc"), st.integers(-9, 40))
one_step = st.builds(
    Step,
    st.lists(payment, max_size=5),
    st.sampled_from((None, 0, 3, 8)),
    st.booleans(),
    st.booleans(),
    st.integers(0, 30),
)
chains = st.lists(
    st.tuples(st.sampled_from(range(len(STAGES))), st.lists(one_step, min_size=1, max_size=3)), min_size=2, max_size=5
)


class Failing(Disk):
    """Fails once, at its at-th operation, and goes on."""

    def __init__(self, at: int) -> None:
        self.left = at

    @contextmanager
    def step(self, what: str, path: Path) -> Iterator[None]:
        self.left -= 1
        with super().step(what, path):
            if self.left == 0:
                raise OSError(errno.EIO, "a test's disk fails")
            yield


class Run:
    """A directory, the reference that goes the same way, and what each version was."""

    def __init__(self, path: Path, log: str, snapshot_every: int) -> None:
        self.path, self.log = path, log
        self.options = {"log": log, "background": False, "snapshot_every": snapshot_every, "scrub": None}
        self.stage = stages()[0]
        self.reference: Any = self.stage.app.reference()
        self.db = self.open(Words(), 0)
        self.number, self.known = 0, {0: self.db.view().tables}

    def open(self, said: Words, fails_at: int, before: Stage | None = None) -> Database:
        """Although the disk may fail on the way."""
        if fails_at:
            with suppress(StateError, OSError):
                return Database(self.stage.app.plan, self.path, words=said, disk=Failing(fails_at), **self.options)
        try:
            return Database(self.stage.app.plan, self.path, words=said, **self.options)
        except StateError as error:
            if before is None or "logged as input" not in str(error):
                raise
        Database(before.app.plan, self.path, **self.options).close()  # which makes a snapshot
        return Database(self.stage.app.plan, self.path, words=said, **self.options)

    def to(self, stage: Stage, fails_at: int) -> None:
        self.db.close()
        before, self.stage = self.stage, stage
        there = {t.name: {c.name: "" for c in t.columns} for t in before.app.program.tables}
        said = words(before, stage, there)
        self.db = self.open(said, fails_at, before)
        reference = stage.app.reference()
        if stage is not before:
            reference.go_on(self.reference, said.rename)
            self.reference = reference
        self.compare()

    def run(self, step: Step) -> None:
        if step.reopened:
            self.db.close()
            self.db = self.open(Words(), step.fails_at)
        events = []
        for ts, account, amount in step.payments:
            events.append(self.stage.event(ts, self.number, account, amount))
            self.number += 1
        given = {"watermark": step.watermark, "flush": step.flush} if not step.flush else {"flush": True}
        assert_same_outcomes(self.db.run(events, **given), self.reference.run(events, **given))
        self.compare()

    def compare(self) -> None:
        assert self.db.version == self.reference.version
        assert self.db.held == self.reference.held
        assert_same_outcomes(self.db.pending("Refund"), self.reference.pending("Refund"))
        for table in self.stage.app.program.tables:
            keys = [c.name for c in table.keys]
            assert_same_tables(self.db.table(table.name), self.reference.table(table.name), keys)
        self.known[self.db.version] = self.db.view().tables

    def every_version(self) -> None:
        directory = Directory(self.path)
        for version, tables in self.known.items():
            for view in (directory.view(version), self.db.view(version)):
                assert set(view.tables) == set(tables)
                for name, table in tables.items():
                    keys = table.schema.names[:1]
                    assert view.tables[name].schema.equals(table.schema)
                    assert_same_tables(view.tables[name], table, keys)
        for table in self.stage.app.program.tables:
            folded: dict[Any, Any] = {}
            key = table.keys[0].name
            for row in directory.changes(table.name).to_pylist():
                folded.pop(row[key], None)
                if row["change"] != "deleted":
                    folded[row[key]] = {c.name: row[c.name] for c in table.columns}
            found = pa.Table.from_pylist(list(folded.values()), schema=table.arrow())
            assert_same_tables(found, self.db.table(table.name), [key])


@pytest.mark.parametrize("log", ["changes", "input"])
def test_a_chain_of_schemas_equals_the_reference_that_went_the_same_way(log: str) -> None:
    @settings(max_examples=max(3, EXAMPLES // 8), deadline=None)
    @given(chains, st.sampled_from((1, 3, 50)))
    def holds(chain: list[tuple[int, list[Step]]], snapshot_every: int) -> None:
        order = [0]
        for number, _ in chain:
            order.append(max(order[-1], number))
        with tempfile.TemporaryDirectory() as folder:
            run = Run(Path(folder) / "state", log, snapshot_every)
            for (before, number), (_, steps) in zip(pairwise(order), chain, strict=True):
                if number == _NEEDS_THE_THIRD and before < 2:
                    run.to(stages()[2], 0)
                run.to(stages()[number], steps[0].fails_at)
                for step in steps:
                    run.run(step)
            if log == "changes":
                run.every_version()
            run.db.close()

    holds()
