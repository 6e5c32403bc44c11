"""Rounds that are one group each are planned as one transaction: the same rows as in rounds, under every policy."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.plan import inline as inlining
from penstock.plan.inline import Inlined, inline
from penstock.schedule.policy import EXPLORE, LOCKING, ON_ABORT, UNITS, Policy
from penstock.testing import assert_same_outcomes, assert_same_tables, check

shop = ps.App("shop")


@shop.table
class Stock:
    item: str = ps.key()
    free: int = 0

    @ps.check("out of stock")
    def there(self) -> bool:
        return self.free >= 0


@shop.table
class Account:
    id: str = ps.key()
    balance: Decimal = ps.decimal(18, 2, default=0)
    parcels: int = 0

    @ps.check("insufficient funds")
    def solvent(self) -> bool:
        return self.balance >= 0


@shop.event
class Order:
    ts: int = ps.order()
    id: str = ps.id()
    customer: str
    items: list[str]
    quantities: list[int]
    price: Decimal = ps.decimal(18, 2)


@shop.event
class Deposit:
    ts: int = ps.order()
    id: str = ps.id()
    customer: str
    amount: Decimal = ps.decimal(18, 2)


@shop.event
class Reserve:
    item: str
    quantity: int


@shop.event
class Count:
    more: int


@shop.event
class Charge:
    customer: str
    price: Decimal = ps.decimal(12, 2)


@shop.event
class Ship:
    customer: str


@shop.event
class Shipped:
    customer: str
    parcel: int
    last: bool


@shop.transaction
def place(e: Order):
    lines = 0
    for item, quantity in zip(e.items, e.quantities):
        if quantity == 9:
            continue
        if quantity == 8:
            break
        lines += quantity
        ps.emit(Count(more=lines))
        ps.emit(Reserve(item=item, quantity=quantity))
    ps.emit(Charge(customer=e.customer, price=e.price))
    if e.price > 3:
        ps.emit(Charge(customer="tax", price=1))
        ps.emit(Ship(customer=e.customer))
    return {"lines": lines}


@shop.transaction
def deposit(e: Deposit):
    Account[e.customer].balance += e.amount
    ps.emit(Shipped(customer=e.customer, parcel=-1, last=False))


@shop.transaction(nested=True)
def reserve(e: Reserve):
    stock = Stock[e.item]
    stock.free -= e.quantity  # below zero it is at this member's end, whatever comes behind it
    for extra in range(2):
        if e.quantity > 2 + extra:
            ps.emit(Count(more=extra - e.quantity))


@shop.transaction(nested=True)
def count(e: Count):
    Stock.get("all").free += e.more


@shop.transaction(nested=True)
def charge(e: Charge):
    account = Account[e.customer]
    account.balance -= e.price
    if e.customer == "tax":
        account.balance += e.price + e.price
    return {"left": account.balance}


@shop.transaction(nested=True)
def ship(e: Ship):
    account = Account[e.customer]
    account.parcels += 1
    ps.emit(Shipped(customer=e.customer, parcel=account.parcels, last=False))
    ps.require(account.parcels != 4, "no van")
    ps.emit(Shipped(customer=e.customer, parcel=account.parcels, last=True))
    return {"left": Decimal("0.5"), "parcel": account.parcels}


LOAD: dict[Any, Any] = {
    Stock: [{"item": "x", "free": 30}, {"item": "y", "free": 7}],
    Account: [{"id": "k", "balance": 60}, {"id": "l", "balance": 9}, {"id": "tax"}],
}


def order(ts: int, customer: str, lines: list[tuple[str, int]], price: int) -> Any:
    items, quantities = [item for item, _ in lines], [quantity for _, quantity in lines]
    return Order(ts=ts, id=f"o{ts}", customer=customer, items=items, quantities=quantities, price=Decimal(price))


def told(out: Any) -> list[str]:
    """Rows as `id.step transaction: status or reason`."""
    return [f"{r['id']}.{r['step']} {r['transaction']}: {r['reason'] or r['status']}" for r in out.to_pylist()]


def few() -> list[Any]:
    return [
        order(1, "k", [("x", 1), ("y", 4), ("x", 9), ("x", 2), ("y", 8), ("nothing", 1)], 5),
        order(2, "k", [("x", 1), ("y", 4), ("x", 1)], 5),
        order(3, "l", [], 30),
        order(4, "m", [("x", 1)], 2),
        Deposit(ts=5, id="d", customer="l", amount=Decimal(3)),
    ]


def many() -> list[Any]:
    """Some abort in each member."""
    customers, items = "kkklllm", "xxxxyz"
    return [
        order(
            10 + n,
            customers[n * 5 % 7],
            [(items[(n * n + k) % 6] if n % 3 else "x", -1 if k % 2 else (n * 3 + k) % 10) for k in range(n % 4)],
            n * 7 % 6,
        )
        if n % 9
        else Deposit(ts=10 + n, id=f"d{n}", customer=customers[n % 7], amount=Decimal(n % 40))
        for n in range(120)
    ]


def test_members_run_by_rank_and_the_first_abort_ends_the_group() -> None:
    out = check(shop, load=LOAD, batches=[few()])[0]
    assert told(out) == [
        *["o1.0 place: committed", "o1.1 reserve: committed", "o1.2 reserve: committed", "o1.3 reserve: committed"],
        *[f"o1.{step} count: committed" for step in range(4, 9)],
        *["o1.9 charge: committed", "o1.10 charge: committed", "o1.11 ship: committed"],
        # The second turn takes more than is there, so the third, which would bring some back, does not run.
        *["o2.0 place: out of stock", "o2.1 reserve: out of stock", "o2.2 reserve: out of stock"],
        *["o3.0 place: insufficient funds", "o3.1 charge: insufficient funds"],
        *["o4.0 place: missing Account", "o4.1 reserve: missing Account", "o4.2 count: missing Account"],
        "o4.3 charge: missing Account",
        "d.0 deposit: committed",
    ]
    rows = out.to_pylist()
    assert [r["left"] for r in rows[9:12]] == [Decimal("55.00"), Decimal("1.00"), Decimal("0.50")]
    assert [r["lines"] for r in rows if r["lines"] is not None] == [7]


@pytest.mark.parametrize(
    "policies",
    [
        pytest.param([Policy(threads=2), Policy.locking("lwm", threads=2), None], id="a few"),
        pytest.param(
            [Policy(explore=e, unit=u, on_abort=a, threads=2) for e in EXPLORE for u in UNITS for a in ON_ABORT]
            + [Policy.locking(scheme, threads=2) for scheme in LOCKING if scheme != "none"],
            id="all",
            marks=pytest.mark.long,
        ),
    ],
)
def test_groups_run_under_every_policy(policies: list[Policy | None]) -> None:
    for policy in policies:
        out = check(shop, load=LOAD, batches=[few(), many(), [], many()], policy=policy)[1]
    assert {r["reason"] for r in out.to_pylist()} >= {None, "out of stock", "insufficient funds", "no van"}
    with shop.open() as db:
        for table, rows in LOAD.items():
            db.load(table, rows)
        db.run(few(), policy=Policy(threads=2))
        report = db.last_batch
        assert report is not None
        assert (report.policy, report.why) == ("ready/transaction/eager", "as asked")
        assert (report.events, report.committed) == (22, 13)
        assert "#0 Order(ts=1, id=o1, " in db.explain(few(), Policy(threads=2))
        assert "one transaction place, reserve …, count …, count …, charge, charge, ship" in db.explain()
    assert "# of Order, Ship: o" in shop.explain("source")


@pytest.mark.parametrize("log", ["changes", "input"])
def test_a_directory_keeps_the_rows_of_groups(tmp_path: Path, log: Any) -> None:
    reference = shop.reference(steps="roots")
    with shop.open(tmp_path, log=log, steps="roots", snapshot_every=1000) as db:
        for table, rows in LOAD.items():
            db.load(table, rows)
            reference.load(table, rows)
        out, wanted = db.run(few(), policy=Policy(threads=2)), reference.run(few())
        assert_same_outcomes(out, wanted)
        assert "o2.2 reserve: out of stock" in told(out)
        assert "o1.1 reserve: committed" not in told(out)
        emitted = reference.emitted(Shipped)
        assert [(r["step"], r["last"]) for r in emitted.to_pylist()] == [(11, False), (11, True), (0, False)]
    with shop.open(tmp_path, log=log) as db:
        assert_same_outcomes(db.outcomes(1), wanted)
        assert_same_outcomes(db.emitted(Shipped, 1), emitted)
        for table in shop.program.tables:
            assert_same_tables(db.table(table.name), reference.table(table.name), [table.keys[0].name])


def test_a_group_that_emits_too_many_events_aborts_before_they_run() -> None:
    app = ps.App("flood")

    @app.table
    class Seen:
        id: int = ps.key()
        n: int = 0

    @app.event
    class Flood:
        ts: int = ps.order()
        n: int

    @app.event
    class Drop:
        pass

    @app.transaction
    def flood(e: Flood):
        for _ in range(e.n):
            ps.emit(Drop())

    @app.transaction(nested=True)
    def drop(e: Drop):
        Seen.get(0).n += 1

    assert isinstance(inline(app.plan), Inlined)
    with app.open(steps="roots") as db:
        out = db.run([Flood(ts=1, n=999_999), Flood(ts=2, n=1_000_001), Flood(ts=3, n=1_000_000)])
        assert [(r["ts"], r["step"], r["reason"]) for r in out.to_pylist()] == [
            (1, 0, None),
            (2, 0, "too many events"),
            (3, 0, None),
        ]
        assert db.table(Seen).to_pylist() == [{"id": 0, "n": 1_999_999}]
        report = db.last_batch
        assert report is not None
        assert report.events == 2_000_002


# -- what stays in rounds ---------------------------------------------------------------------


@ps.udf
def same(n: int) -> int:
    return n


class Unfit:
    """An app with one transaction more than a table and its events."""

    def __init__(self) -> None:
        app = self.app = ps.App("unfit")

        @app.table
        class T:
            id: int = ps.key()
            n: int = 0

        @app.event
        class Outer:
            ts: int = ps.order()
            n: int
            several: list[int]

        @app.event
        class Inner:
            n: int

        @app.event
        class Out:
            n: int

        self.T, self.Outer, self.Inner, self.Out = T, Outer, Inner, Out
        self.nested = app.transaction(nested=True)


def not_nested(f: Unfit) -> None:
    T, Inner = f.T, f.Inner

    @f.app.transaction
    def outer(e: f.Outer):  # type: ignore[name-defined]
        ps.emit(Inner(n=e.n))

    @f.app.transaction
    def inner(e: f.Inner):  # type: ignore[name-defined]
        T.get(e.n).n += 1


def out_of_a_loop(f: Unfit) -> None:
    Out = f.Out

    @f.app.transaction
    def outer(e: f.Outer):  # type: ignore[name-defined]
        for n in e.several:
            ps.emit(Out(n=n))


def returns_in_a_loop(f: Unfit) -> None:
    Inner = f.Inner

    @f.app.transaction
    def outer(e: f.Outer):  # type: ignore[name-defined]
        for n in e.several:
            ps.emit(Inner(n=n))

    @f.nested
    def inner(e: f.Inner):  # type: ignore[name-defined]
        return {"n": e.n}


def goes_out_of_a_member_in_a_loop(f: Unfit) -> None:
    Inner, Out = f.Inner, f.Out

    @f.app.transaction
    def outer(e: f.Outer):  # type: ignore[name-defined]
        for n in e.several:
            ps.emit(Inner(n=n))

    @f.nested
    def inner(e: f.Inner):  # type: ignore[name-defined]
        ps.emit(Out(n=e.n))


def by_records(f: Unfit) -> None:
    T, Inner = f.T, f.Inner

    @f.app.transaction
    def outer(e: f.Outer):  # type: ignore[name-defined]
        for n in e.several:
            if T.get(n).n < 5:
                ps.emit(Inner(n=n))

    @f.nested
    def inner(e: f.Inner):  # type: ignore[name-defined]
        T.get(e.n).n += 1


def by_a_udf(f: Unfit) -> None:
    T, Inner = f.T, f.Inner

    @f.app.transaction
    def outer(e: f.Outer):  # type: ignore[name-defined]
        for n in e.several:
            ps.emit(Inner(n=same(n)))

    @f.nested
    def inner(e: f.Inner):  # type: ignore[name-defined]
        T.get(e.n).n += 1


def by_an_inner_loop(f: Unfit) -> None:
    T, Inner = f.T, f.Inner

    @f.app.transaction
    def outer(e: f.Outer):  # type: ignore[name-defined]
        for n in e.several:
            total = 0
            for k in range(n):
                total += k
            ps.emit(Inner(n=total))

    @f.nested
    def inner(e: f.Inner):  # type: ignore[name-defined]
        T.get(e.n).n += 1


WHY = {
    not_nested: "inner(Inner) is not nested",
    out_of_a_loop: "Out goes out from a loop",
    returns_in_a_loop: "inner(Inner) returns fields and is emitted in a loop",
    goes_out_of_a_member_in_a_loop: "Out goes out from a loop",
    by_records: "what is emitted of Inner in a loop depends on records",
    by_a_udf: "what is emitted of Inner in a loop depends on a udf",
    by_an_inner_loop: "what is emitted of Inner in a loop is computed in a loop inside it",
}


@pytest.mark.parametrize("declare", WHY, ids=lambda declare: str(declare.__name__))
def test_what_a_graph_cannot_know_stays_in_rounds_and_says_why(declare: Any) -> None:
    unfit = Unfit()
    declare(unfit)
    assert inline(unfit.app.plan) == WHY[declare]
    assert f"rounds run one after the other: {WHY[declare]}" in unfit.app.explain()
    if declare is not by_records:  # the rest would only compile
        return
    batch = [unfit.Outer(ts=1, n=1, several=[1, 1, 2])]
    check(unfit.app, batches=[batch])
    with unfit.app.open() as db:
        db.run(batch, policy=Policy(threads=2))
        report = db.last_batch
        assert report is not None
        assert report.policy == "serial"
        assert report.why == (
            "its transactions emit events, and what one event causes runs before the next event does; only groups run "
            "by a graph, but what is emitted of Inner in a loop depends on records"
        )
        assert db.explain(batch, Policy(threads=2)) == f"serial: {report.why}\n"


def test_very_long_groups_and_very_deep_loops_stay_in_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(inline(shop.plan), Inlined)
    monkeypatch.setattr(inlining, "MAX_DEPTH", 1)
    assert inline(shop.plan) == "its groups' loops nest too deep"
    monkeypatch.setattr(inlining, "MOST_OPERATIONS", 60)
    assert inline(shop.plan) == "its groups are very long together"
