"""Each pass over a plan keeps its meaning: with fewer of them, every program leaves the same outcomes and tables."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

import penstock as ps
from penstock.plan import build
from penstock.plan.passes import PASSES, convert_returns, loosen, prune, share, undo
from penstock.testing import assert_same_outcomes, assert_same_tables

# convert_returns is part of what a program means: it converts what is returned. The others only make it quicker.
CHOICES = {
    "convert_returns": (convert_returns,),
    "share": (convert_returns, share),
    "loosen": (convert_returns, loosen),
    "prune": (convert_returns, prune),
    "undo": (convert_returns, undo),
    "share, prune": (convert_returns, share, prune),
    "loosen, prune": (convert_returns, loosen, prune),
    "share, loosen, prune": (convert_returns, share, loosen, prune),
    "all": PASSES,
}


def bank() -> tuple[Any, dict[str, Any], list[Any]]:
    app = ps.App("bank")

    @app.table
    class Account:
        id: str = ps.key()
        balance: ps.decimal(18, 2) = 0
        seen: int = 0

        @ps.check("insufficient funds")
        def solvent(self):
            return self.balance >= 0

        @ps.check("busy")
        def calm(self):
            if self.seen > 3:
                return self.balance // (self.seen - 5) < 0
            return True

    @app.event
    class Transfer:
        ts: int = ps.order()
        src: str
        dst: str
        amount: ps.decimal(18, 2)

    @app.event
    class Count:
        ts: int = ps.order()
        id: str

    @app.transaction
    def transfer(e: Transfer):
        src, dst = Account[e.src], Account.get(e.dst)
        src.balance -= e.amount
        dst.balance += e.amount
        src.seen += 1
        if dst.seen > 1:
            return {"left": src.balance}
        dst.seen = dst.seen + 1 if e.src in Account and Account[e.src].balance > 5 else 0
        return {"left": src.balance, "other": dst.balance}

    @app.transaction
    def count(e: Count):
        return {"left": Account.get(e.id).seen}

    rows = {"Account": [{"id": f"a{i}", "balance": 10} for i in range(4)]}
    batches = [
        [
            e
            for ts in range(first, first + 20)
            for e in (
                Transfer(ts=ts, src=f"a{ts % 5}", dst=f"a{ts * 3 % 7}", amount=Decimal(ts % 8) / 2),
                Count(ts=ts, id=f"a{ts % 6}"),
            )
        ]
        for first in (0, 20)
    ]
    batches.append([Transfer(ts=1, src=None, dst="a1", amount=1), Transfer(ts=2, src="a1", dst="a2", amount=None)])
    return app, rows, batches


def lifecycle() -> tuple[Any, dict[str, Any], list[Any]]:
    app = ps.App("lifecycle")

    @app.table
    class Item:
        a: int = ps.key()
        b: int = ps.key()
        n: int = 0
        name: str = ""

    @app.event
    class Step:
        ts: int = ps.order()
        a: int
        b: int
        what: int

    @app.transaction
    def step(e: Step):
        there = (e.a, e.b) in Item
        if e.what == 0:
            Item.insert(e.a, e.b, n=1, name="new")
            n = Item[e.a, e.b].n
            del Item[e.a, e.b]
            again = Item.insert(e.a, e.b, n=n + 1)
            again.n += Item[e.a, e.b].n
        elif e.what == 1:
            item = Item[e.a, e.b]
            item.n += 10
            del Item[e.b, e.a]
            item.n += 1
        elif e.what == 2:
            Item.get(e.a, e.b).n += 1
            Item.get(e.b, e.a).n += Item[e.a, e.b].n
        elif e.what == 3:
            n = Item[e.a, e.b].n if there else Item.get(1, 1).n
            if n > 2:
                ps.abort("large")
        else:
            del Item[e.a, e.b]
            return {"gone": there}
        ps.require(Item.get(e.b, e.b).n < 30, "too many")
        return {"there": there, "now": (e.a, e.b) in Item, "n": Item.get(e.a, e.b).n}

    batches = [
        [Step(ts=ts, a=ts % 3, b=ts * 5 % 4 % 3, what=ts * 7 % 5) for ts in range(first, first + 40)]
        for first in (0, 40)
    ]
    return app, {"Item": [{"a": 0, "b": 0}, {"a": 1, "b": 2, "n": 5, "name": "x"}]}, batches


def loops() -> tuple[Any, dict[str, Any], list[Any]]:
    app = ps.App("loops")

    @app.table
    class Stock:
        id: int = ps.key()
        q: int = 3
        last: str = "none"

    @app.event
    class Order:
        ts: int = ps.order()
        who: str
        items: list[int]
        counts: list[int]

    @app.transaction
    def order(e: Order):
        total, worst, cheap = 0, 100, 0.5
        current = Stock.get(0)
        for item, count in zip(e.items, e.counts):
            more = total * 3 + 1
            if count == 0 and more:
                continue
            if count < 0:
                return {"total": total, "at": item}
            current = Stock.get(item)
            if current.last == e.who and current.q > 100 // count:
                break
            current.q -= count
            current.last = e.who
            worst = min(worst, current.q)
            cheap = cheap * 1.5
            for i in range(count):
                if i == 5:
                    ps.abort("too deep")
                total += i * item
                if total > 40:
                    break
            if item == 7:
                del Stock[item]
                current = Stock.get(item - 1)
        ps.require(worst > -4, "sold out")
        return {"total": total, "worst": worst, "cheap": cheap, "at": current.q}

    batches = [
        [
            Order(
                ts=ts,
                who=f"w{ts % 3}",
                items=[(ts * k) % 9 for k in range(1, 1 + ts % 5)],
                counts=[(ts + k * k) % 7 - (ts % 11 == 3) for k in range(1, 1 + ts % 4)],
            )
            for ts in range(first, first + 40)
        ]
        for first in (0, 40)
    ]
    batches.append([Order(ts=1, who=None, items=[1], counts=[1]), Order(ts=2, who="x", items=None, counts=[1])])
    return app, {"Stock": [{"id": i, "q": 30} for i in range(5)]}, batches


def aliases() -> tuple[Any, dict[str, Any], list[Any]]:
    app = ps.App("aliases")

    @app.table
    class Node:
        id: int = ps.key()
        next: int = 0
        n: int = 0

    @app.event
    class Walk:
        ts: int = ps.order()
        a: int
        b: int
        x: float

    @app.transaction
    def walk(e: Walk):
        a, b = Node[e.a], Node[e.b]
        a.n = b.n + 1
        b.n = a.n + 1
        c = a if e.x > 1 else b
        c.n += a.n + b.n
        d = Node[c.next]
        d.next, c.next = c.next, (d.next + 1) % 4
        wasted = e.x * 2.0 + 1.0
        if 0 < 8 // (e.a - e.b if e.a != e.b else 1) < 9 and (e.a == e.b or 10 // (e.b - 1) > 2) or d.n > 50:
            return {"n": d.n, "x": wasted if e.x > 2 else 0}
        return {"n": c.n}

    batches = [[Walk(ts=ts, a=ts % 5, b=ts * 3 % 5, x=ts % 4 * 0.75) for ts in range(30)]] * 2
    return app, {"Node": [{"id": i, "next": (i * 2) % 4} for i in range(4)]}, batches


PROGRAMS: dict[str, Callable[[], tuple[Any, dict[str, Any], list[Any]]]] = {
    "bank": bank,
    "lifecycle": lifecycle,
    "loops": loops,
    "aliases": aliases,
}


def run(side: Any, rows: dict[str, Any], batches: list[Any]) -> tuple[list[Any], dict[str, Any]]:
    for table, some in rows.items():
        side.load(table, some)
    return [side.run(batch) for batch in batches], {t.name: side.table(t.name) for t in side.program.tables}


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_pass_keeps_the_meaning(monkeypatch: pytest.MonkeyPatch, name: str, choice: str) -> None:
    monkeypatch.setattr(build, "PASSES", CHOICES[choice])
    app, rows, batches = PROGRAMS[name]()
    outcomes, tables = run(app.open(), rows, batches)
    wanted, wanted_tables = run(app.reference(), rows, batches)
    for got, want in zip(outcomes, wanted, strict=True):
        assert_same_outcomes(got, want)
    for table in app.program.tables:
        keys = [c.name for c in table.keys]
        assert_same_tables(tables[table.name], wanted_tables[table.name], keys)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_meets_both_ends(name: str) -> None:
    """What never commits or never aborts would show nothing."""
    app, rows, batches = PROGRAMS[name]()
    outcomes, _ = run(app.reference(), rows, batches)
    statuses = {s for out in outcomes for s in out["status"].to_pylist()}
    assert statuses == {"committed", "aborted"}


def test_passes_make_plans_shorter() -> None:
    def size(app: Any) -> int:
        return sum(1 for t in app.plan.transactions for _ in t.block.walk())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "PASSES", (convert_returns,))
        long = {name: size(make()[0]) for name, make in PROGRAMS.items()}
    for name, make in PROGRAMS.items():
        assert size(make()[0]) < long[name]
