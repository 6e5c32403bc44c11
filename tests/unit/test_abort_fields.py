"""ps.abort("short", by=…): what aborts give of the outcome's fields, under every policy, in groups and batches."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock import Policy
from penstock.testing import check

bank = ps.App("bank")


@bank.table
class Account:
    id: str = ps.key()
    balance: Decimal = ps.decimal(18, 2, default=0)

    @ps.check("rich")
    def poor(self) -> bool:
        return self.balance < 1000


@bank.event
class Transfer:
    ts: int = ps.order()
    id: int = ps.id()
    src: str
    dst: str
    amount: Decimal = ps.decimal(18, 2)
    note: str


@bank.transaction
def transfer(e: Transfer) -> dict[str, Any]:
    src, dst = Account.get(e.src), Account.get(e.dst)
    ps.require(e.amount > 0, "nothing", who=e.src, by=0)
    if src.balance < e.amount:
        ps.abort("short", by=e.amount - src.balance, who=e.src, note=None)
    src.balance -= e.amount
    dst.balance += e.amount
    for step in range(3):
        if dst.balance > 900 + step:
            ps.abort("soon", at=step, note=e.note)
    return {"by": src.balance, "note": e.note, "left": 1}


@bank.event
class Divide:
    ts: int = ps.order()
    id: int = ps.id()
    a: int
    b: int


@bank.transaction
def divide(e: Divide) -> None:
    ps.require(e.a < 50, "large", at=e.a // e.b, by=e.a)
    ps.abort("small", by=100_000_000_000_000_000 * e.a, at=2)


BATCH = [
    Transfer(ts=1, id=1, src="a", dst="b", amount=Decimal("7.50"), note="first"),
    Transfer(ts=2, id=2, src="a", dst="b", amount=Decimal(100), note="too much"),
    Transfer(ts=3, id=3, src="a", dst="c", amount=Decimal(0), note="none"),
    Transfer(ts=4, id=4, src="d", dst="b", amount=Decimal(905), note="loop"),
    Transfer(ts=5, id=5, src="d", dst="c", amount=Decimal(905), note=None),
    Transfer(ts=6, id=6, src="d", dst="e", amount=Decimal(899), note=None),
    Divide(ts=7, id=7, a=60, b=7),
    Divide(ts=8, id=8, a=60, b=0),
    Divide(ts=9, id=9, a=5, b=0),
    Divide(ts=10, id=10, a=5, b=1),
    Divide(ts=11, id=11, a=49, b=1),
]
LOAD = {Account: [{"id": "a", "balance": 10}, {"id": "d", "balance": 999}]}
GRAPH = Policy(explore="ready", unit="operation", on_abort="eager", threads=2)


@pytest.mark.parametrize("policy", [None, GRAPH, Policy.tstream(), Policy.locking("lwm", threads=2)], ids=str)
def test_an_abort_gives_fields_of_the_outcome(policy: Policy | None) -> None:
    (out,) = check(bank, load=LOAD, batches=[BATCH], policy=policy)
    rows = [{k: v for k, v in row.items() if k not in ("transaction", "ts", "version")} for row in out.to_pylist()]
    none = dict.fromkeys(("who", "by", "at", "note", "left"))
    said = [{k: v for k, v in row.items() if v is not None} for row in rows]
    given = {"by": Decimal("2.50"), "note": "first", "left": 1}
    assert rows[0] == {**none, "id": 1, "status": "committed", "reason": None, **given}
    aborted = {"status": "aborted"}
    assert said[1:] == [
        {"id": 2, **aborted, "reason": "short", "by": Decimal("97.50"), "who": "a"},
        {"id": 3, **aborted, "reason": "nothing", "by": 0, "who": "a"},
        {"id": 4, **aborted, "reason": "soon", "at": 0, "note": "loop"},
        {"id": 5, **aborted, "reason": "null note"},
        {"id": 6, **aborted, "reason": "null note"},
        {"id": 7, **aborted, "reason": "large", "at": 8, "by": 60},
        {"id": 8, **aborted, "reason": "division by zero"},
        {"id": 9, **aborted, "reason": "division by zero"},
        {"id": 10, **aborted, "reason": "overflow"},
        {"id": 11, **aborted, "reason": "overflow"},
    ]


def test_files_sql_and_calls_have_them(tmp_path: Path) -> None:
    with bank.open(tmp_path) as db:
        out = db.run(BATCH)
        told = db.call(Transfer(ts=20, id=99, src="x", dst="y", amount=Decimal(3), note="called"))
        assert (told["reason"], told["by"], told["who"]) == ("short", Decimal(3), "x")
    with bank.open(tmp_path) as db:
        assert db.outcomes(1).equals(out)
    assert "tell by when aborted %" in bank.explain()


shop = ps.App("shop")


@shop.table
class Stock:
    item: int = ps.key()
    left: int = 2


@shop.event
class Order:
    ts: int = ps.order()
    items: list[int]


@shop.event
class Reserve:
    item: int


@shop.event
class Pay:
    amount: int


@shop.event
class Settle:
    ts: int = ps.order()
    amount: int


@shop.transaction
def order(e: Order) -> dict[str, int]:
    for item in e.items:
        ps.emit(Reserve(item=item))
    ps.emit(Pay(amount=len(e.items)))
    ps.require(len(e.items) < 4, "long", by=len(e.items))
    return {"n": len(e.items)}


def declare(nested_aborts: bool, several: bool) -> None:
    if nested_aborts:

        @shop.transaction(nested=True)
        def reserve(e: Reserve) -> None:
            stock = Stock.get(e.item)
            ps.require(stock.left > 0, "sold out", item=e.item)
            stock.left -= 1

    else:

        @shop.transaction(nested=True)
        def reserve(e: Reserve) -> None:
            Stock.get(e.item).left -= 1

    @shop.transaction(nested=True)
    def pay(e: Pay) -> None:
        if e.amount == 2:
            ps.abort("two", by=-e.amount)

    if several:

        @shop.transaction(batch=2)
        def settle(trades: list[Settle]) -> dict[str, int]:
            total = 0
            for one in trades:
                total += one.amount
            ps.require(total < 10, "much", by=total)
            return {"n": total}


@pytest.mark.parametrize(("nested_aborts", "several"), [(False, False), (True, True)], ids=["group", "rounds"])
def test_in_groups_the_row_where_it_aborted_has_them(nested_aborts: bool, several: bool) -> None:
    before = shop.program, list(shop._lowered), shop._plan
    declare(nested_aborts, several)
    orders = [Order(ts=n, items=items) for n, items in enumerate([[1], [1, 2], [3] * 4, [1], [2, 1, 5]])]
    trades = [Settle(ts=n, amount=a) for n, a in enumerate([1, 2, 3, 9, 5])] if several else []
    (out, *_) = check(shop, batches=[[*orders, *trades]], policy=Policy.tstream())
    said = [{k: row[k] for k in ("step", "transaction", "reason", "by")} for row in out.to_pylist() if row["reason"]]
    assert {"step": 0, "transaction": "order", "reason": "long", "by": 4} in said
    assert {"step": 3, "transaction": "pay", "reason": "two", "by": -2} in said
    assert {"step": 0, "transaction": "order", "reason": "two", "by": None} in said
    if several:
        assert [row["by"] for row in said if row["transaction"] == "settle"] == [12, 12]
        (sold,) = [row for row in out.to_pylist() if row["reason"] == "sold out" and row["item"] is not None]
        assert (sold["transaction"], sold["item"]) == ("reserve", 1)
    shop.program, shop._lowered, shop._plan = before


def test_fields_that_no_abort_can_give_are_refused() -> None:
    app = ps.App("refused")

    @app.table
    class One:
        id: int = ps.key()

    @app.event
    class Go:
        ts: int = ps.order()
        n: int

    def refused(body: Any, match: str) -> None:
        with pytest.raises(ps.DeclarationError, match=match):
            app.transaction(body)

    def taken(e: Go) -> None:
        ps.abort("no", status=e.n)

    def spread(e: Go) -> None:
        ps.abort("no", **{"by": e.n})  # noqa: PIE804

    def record(e: Go) -> None:
        ps.abort("no", by=One[e.n])

    def types(e: Go) -> Any:
        ps.require(e.n > 0, "no", by="text")
        return {"by": 1}

    refused(taken, "'status' is a column that every outcome has already")
    refused(spread, r"ps.abort takes \(reason\), and fields of the outcome by name")
    refused(record, "record")
    refused(types, "returns 'by' as")
    with pytest.raises(ps.DeclarationError, match="what a check aborts with is its text alone"):

        @app.table
        class Two:
            id: int = ps.key()

            @ps.check("odd")
            def even(self) -> bool:
                ps.require(self.id > 0, "no", by=self.id)
                return True
