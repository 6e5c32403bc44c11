"""Transactions that emit events: rounds, groups, outputs, what is refused, what is kept."""

import datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.execute.flow_run import FlowRun
from penstock.schedule.policy import Policy
from penstock.testing import assert_same_outcomes, assert_same_tables, check

shop = ps.App("shop")


@shop.table
class Stock:
    item: str = ps.key()
    free: int = 0


@shop.table
class Account:
    id: str = ps.key()
    balance: Decimal = ps.decimal(18, 2, default=0)

    @ps.check("insufficient funds")
    def solvent(self) -> bool:
        return self.balance >= 0


@shop.table
class Sale:
    id: str = ps.key()
    customer: str
    shipped: bool = False


@shop.event
class Order:
    ts: int = ps.order()
    id: str = ps.id()
    customer: str
    items: list[str]
    quantities: list[int]
    price: Decimal = ps.decimal(18, 2)


@shop.event
class Reserve:
    item: str
    quantity: int


@shop.event
class Charge:
    customer: str
    price: Decimal = ps.decimal(18, 2)


@shop.event
class Ship:
    sale: str


@shop.event
class Shipped:
    sale: str
    customer: str


@shop.transaction
def place(e: Order):
    Sale.insert(e.id, customer=e.customer)
    for item, quantity in zip(e.items, e.quantities):
        ps.emit(Reserve(item=item, quantity=quantity))
    ps.emit(Charge(customer=e.customer, price=e.price))
    ps.emit(Ship(sale=e.id))


@shop.transaction(nested=True)
def reserve(e: Reserve):
    stock = Stock[e.item]
    ps.require(stock.free >= e.quantity, "out of stock")
    stock.free -= e.quantity
    return {"left": stock.free}


@shop.transaction(nested=True)
def charge(e: Charge):
    Account[e.customer].balance -= e.price


@shop.transaction
def ship(e: Ship):
    sale = Sale[e.sale]
    sale.shipped = True
    ps.require(e.sale != "o4", "no van")
    ps.emit(Shipped(sale=e.sale, customer=sale.customer))


LOAD: dict[Any, Any] = {
    Stock: [{"item": "x", "free": 2}, {"item": "y", "free": 1}],
    Account: [{"id": "k", "balance": 10}],
}


def orders() -> list[Any]:
    return [
        Order(ts=1, id="o1", customer="k", items=["x", "y"], quantities=[1, 1], price=Decimal(3)),
        Order(ts=2, id="o2", customer="k", items=["x", "y"], quantities=[1, 1], price=Decimal(3)),
        Order(ts=3, id="o3", customer="k", items=["x"], quantities=[1], price=Decimal(30)),
        Order(ts=4, id="o4", customer="k", items=["x"], quantities=[1], price=Decimal(7)),
    ]


def told(out: Any) -> list[str]:
    """Rows as `id.step transaction: status or reason`."""
    return [f"{r['id']}.{r['step']} {r['transaction']}: {r['reason'] or r['status']}" for r in out.to_pylist()]


def test_a_group_commits_or_aborts_as_one_and_what_is_not_nested_alone() -> None:
    out = check(shop, load=LOAD, batches=[orders()])[0]
    assert told(out) == [
        "o1.0 place: committed",
        "o1.1 reserve: committed",
        "o1.2 reserve: committed",
        "o1.3 charge: committed",
        "o1.4 ship: committed",
        "o2.0 place: out of stock",
        "o2.1 reserve: out of stock",
        "o2.2 reserve: out of stock",
        "o3.0 place: insufficient funds",
        "o3.1 reserve: insufficient funds",
        "o3.2 charge: insufficient funds",
        "o4.0 place: committed",
        "o4.1 reserve: committed",
        "o4.2 charge: committed",
        "o4.3 ship: no van",
    ]
    assert [r["left"] for r in out.to_pylist()] == [None, 1, 0, *[None] * 9, 0, None, None]


def test_every_policy_runs_rounds_one_after_the_other() -> None:
    for policy in (Policy.serial(), Policy(threads=2), Policy.locking("lwm", threads=2), Policy.parse("tstream")):
        check(shop, load=LOAD, batches=[orders()], policy=policy)
    with shop.open() as db:
        db.warm()
        db.run(orders(), policy=Policy(threads=2))
        assert db.last_batch is not None
        assert db.last_batch.policy == "serial" and "ship(Ship) is not nested" in db.last_batch.why
        assert "ship(Ship) is not nested" in db.explain(orders(), Policy(threads=2))


@pytest.mark.parametrize("log", ["changes", "input"])
def test_a_directory_keeps_rounds_and_outputs(tmp_path: Path, log: Any) -> None:
    reference = shop.reference()
    with shop.open(tmp_path, log=log) as db:
        for table, rows in LOAD.items():
            db.load(table, rows)
            reference.load(table, rows)
        first, wanted = db.run(orders()[:2], id=0), reference.run(orders()[:2])
        assert_same_outcomes(first, wanted)
        emitted = reference.emitted(Shipped)
        assert_same_outcomes(db.run(orders()[2:], id=1), reference.run(orders()[2:]))
        assert_same_outcomes(db.run(orders()[2:], id=1), db.outcomes(2))  # a batch sent again
        assert db.emitted(Shipped).num_rows == 0
    with shop.open(tmp_path, log=log) as db:
        for table in shop.program.tables:
            keys = [c.name for c in table.keys]
            assert_same_tables(db.table(table.name), reference.table(table.name), keys)
        assert_same_outcomes(db.outcomes(1), wanted)
        assert_same_outcomes(db.emitted(Shipped, 1), emitted)
        assert db.emitted(Shipped, 1).to_pylist() == [
            {"ts": 1, "id": "o1", "step": 4, "version": 1, "sale": "o1", "customer": "k"}
        ]
        assert db.emitted("Shipped").num_rows == 0


@pytest.mark.parametrize("log", ["changes", "input"])
def test_committed_rows_of_what_was_caused_may_be_left_out(tmp_path: Path, log: Any) -> None:
    reference = shop.reference(steps="roots")
    with shop.open(tmp_path, log=log, steps="roots") as db:
        for table, rows in LOAD.items():
            db.load(table, rows)
            reference.load(table, rows)
        assert_same_outcomes(out := db.run(orders()), wanted := reference.run(orders()))
        assert told(out) == [
            "o1.0 place: committed",
            "o2.0 place: out of stock",
            "o2.1 reserve: out of stock",
            "o2.2 reserve: out of stock",
            "o3.0 place: insufficient funds",
            "o3.1 reserve: insufficient funds",
            "o3.2 charge: insufficient funds",
            "o4.0 place: committed",
            "o4.3 ship: no van",
        ]
        assert_same_outcomes(db.emitted(Shipped), reference.emitted(Shipped))
        assert db.emitted(Shipped).column("step").to_pylist() == [4]
        report = db.last_batch
        assert report is not None
        aborted = {"out of stock": 3, "insufficient funds": 3, "no van": 1}
        assert (report.events, report.committed, report.aborted) == (15, 8, aborted)
        assert_same_outcomes(db.outcomes(1), wanted)
    with shop.open(tmp_path, log=log) as db:  # what was left out was not kept
        assert_same_outcomes(db.outcomes(1), wanted)
        assert db.run([Order(ts=5, id="o5", customer="k", items=[], quantities=[], price=Decimal(0))]).num_rows == 3


def test_which_rows_outcomes_have_is_one_of_two() -> None:
    with pytest.raises(ps.InputError, match="steps='some' does not say which rows outcomes have"):
        shop.open(steps="some")  # type: ignore[arg-type]
    with pytest.raises(ps.InputError, match='write steps="all"'):
        shop.reference(steps=None)  # type: ignore[arg-type]


def alarm(column: type) -> tuple[ps.App, Any, Any]:
    """An app with an output whose field `reason` has this type."""
    app = ps.App("alarm")

    @app.event
    class Smoke:
        ts: int = ps.order()
        level: int

    @app.event
    class Alarm:
        reason: column  # type: ignore[valid-type]
        level: int

    if column is str:

        @app.transaction
        def smell(e: Smoke):
            ps.emit(Alarm(reason="smoke", level=e.level))

    else:

        @app.transaction
        def measure(e: Smoke):
            ps.emit(Alarm(reason=e.level, level=e.level))

    return app, Smoke, Alarm


@pytest.mark.parametrize("log", ["changes", "input"])
def test_an_output_is_kept_as_it_was_emitted(tmp_path: Path, log: Any) -> None:
    app, Smoke, Alarm = alarm(str)
    wanted = [{"ts": 1, "step": 0, "version": 1, "reason": "smoke", "level": 3}]
    with app.open(tmp_path, log=log) as db:
        assert db.emitted(Alarm).num_rows == 0  # before the first batch
        db.run([Smoke(ts=1, level=3)])
        assert db.emitted(Alarm).to_pylist() == wanted
        assert db.emitted(Alarm).schema == app.program.output(Alarm.definition)
    other, Smoke, Alarm = alarm(int)
    with other.open(tmp_path, log=log) as db:
        assert db.version == 2 and db.emitted(Alarm).num_rows == 0  # the change is a version, and emits nothing
        assert db.emitted(Alarm, 1).to_pylist() == wanted
        db.run([Smoke(ts=2, level=4)])
        assert db.emitted(Alarm).to_pylist() == [{"ts": 2, "step": 0, "version": 3, "reason": 4, "level": 4}]


def test_however_the_input_is_cut_the_same_comes_out() -> None:
    def run(cuts: list[int]) -> tuple[list[dict[str, Any]], Any]:
        with shop.open() as db:
            for table, rows in LOAD.items():
                db.load(table, rows)
            rows, ends = [], [0, *cuts, 4]
            for start, stop in pairwise(ends):
                rows += db.run(orders()[start:stop]).drop_columns("version").to_pylist()
            return rows, db.table(Sale).sort_by("id").to_pylist()

    whole = run([])
    for cuts in ([1], [2, 3], [1, 2, 3], [0, 4]):
        assert run(cuts) == whole


def test_late_events_have_one_row() -> None:
    batches = [orders()[2:], orders()[:1]]
    outs = check(shop, load=LOAD, batches=batches, watermark=0)
    assert told(outs[1]) == ["o1.0 place: late"]


# -- order ------------------------------------------------------------------------------------


def test_a_diamond_runs_by_rank_and_not_by_depth() -> None:
    app = ps.App("diamond")

    @app.event
    class T1:
        ts: int = ps.order()

    @app.event
    class T2:
        x: int

    @app.event
    class T3:
        x: int

    @app.event
    class T4:
        x: int

    @app.transaction
    def four(e: T4):
        return {"seen": e.x}

    @app.transaction
    def one(e: T1):
        ps.emit(T3(x=3))
        ps.emit(T2(x=2))
        ps.emit(T2(x=5))

    @app.transaction
    def two(e: T2):
        ps.emit(T4(x=e.x))

    @app.transaction
    def three(e: T3):
        ps.emit(T4(x=e.x))

    out = check(app, batches=[[T1(ts=1), T1(ts=2)]])[0].to_pylist()
    # Of two that are ready the first declared runs first; those of one type in the order in which they were emitted.
    assert [r["transaction"] for r in out[:7]] == ["one", "two", "two", "three", "four", "four", "four"]
    assert [r["seen"] for r in out[4:7]] == [2, 5, 3]
    assert [r["step"] for r in out] == [*range(7)] * 2


def test_more_than_queues_logs_and_rows_have_room_for() -> None:
    app = ps.App("wide")

    @app.table
    class Seen:
        id: int = ps.key()
        times: int = 0

    @app.event
    class Burst:
        ts: int = ps.order()
        n: int

    @app.event
    class Spark:
        at: int

    @app.event
    class Ash:
        at: int

    @app.transaction
    def burst(e: Burst):
        Seen.get(-1).times += 1
        for i in range(e.n):
            ps.emit(Spark(at=i))

    @app.transaction
    def spark(e: Spark):
        Seen.get(e.at).times += 1
        ps.emit(Ash(at=e.at))
        ps.require(e.at % 7 != 3, "seven")

    check(app, batches=[[Burst(ts=1, n=5_000), Burst(ts=2, n=3), Burst(ts=3, n=0)], [Burst(ts=4, n=300)]])


def test_a_short_round_alone_in_its_batch_needs_no_more_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FlowRun, "grow", lambda self, what: pytest.fail("its kernel runs once more"))
    with shop.open() as db:
        for table, rows in LOAD.items():
            db.load(table, rows)
        items = ["x", "y"] * 4
        out = db.run([Order(ts=1, id="o1", customer="k", items=items, quantities=[0] * 8, price=Decimal(3))])
    assert out.num_rows > 10


def test_too_many_events_abort_the_group_that_emits_them() -> None:
    app = ps.App("flood")

    @app.table
    class Count:
        id: int = ps.key()
        n: int = 0

    @app.event
    class Flood:
        ts: int = ps.order()
        n: int
        m: int

    @app.event
    class More:
        m: int

    @app.event
    class Drop:
        pass

    @app.transaction
    def flood(e: Flood):
        Count.get(0).n += 1
        for _ in range(e.n):
            ps.emit(Drop())
        ps.emit(More(m=e.m))

    @app.transaction
    def more(e: More):
        Count.get(1).n += 1
        for _ in range(e.m):
            ps.emit(Drop())

    with app.open() as db:
        out = db.run([Flood(ts=1, n=999_999, m=0), Flood(ts=2, n=1_000_000, m=0), Flood(ts=3, n=999_998, m=2)])
        assert [(r["ts"], r["step"], r["reason"]) for r in out.to_pylist()] == [
            (1, 0, None),
            (1, 1, None),
            (2, 0, "too many events"),
            (3, 0, None),
            (3, 1, "too many events"),
        ]
        assert db.emitted("Drop").num_rows == 999_999 + 999_998
        assert db.table(Count).to_pylist() == [{"id": 0, "n": 2}, {"id": 1, "n": 1}]


# -- what is refused --------------------------------------------------------------------------


class Refused:
    """An app to which one wrong transaction is added."""

    def __init__(self) -> None:
        self.app = app = ps.App("refused")

        @app.table
        class T:
            id: int = ps.key()

        @app.event
        class Outer:
            ts: int = ps.order()
            x: int

        @app.event
        class Inner:
            x: int

        @app.event
        class Lists:
            xs: list[int]

        self.T, self.Outer, self.Inner, self.Lists = T, Outer, Inner, Lists


BAD = {
    "missing": ("ps.emit(Inner())", "Inner is emitted without its field 'x'"),
    "unknown": ("ps.emit(Inner(x=1, y=2))", "event 'Inner' has no field 'y'; it has x"),
    "by place": ("ps.emit(Inner(1))", "Inner takes its fields by name: Inner(x=…)"),
    "ordered": ("ps.emit(Outer(ts=1, x=1))", "event 'Outer' comes from outside, for 'ts' is its ps.order()"),
    "a list": ("ps.emit(Lists(xs=e.x))", "'xs' of event 'Lists' is a list, which cannot be emitted"),
    "wrong type": ('ps.emit(Inner(x="a"))', "field 'x' of event 'Inner' is int; it cannot take str"),
    "no event": ("ps.emit(e.x)", "ps.emit takes an event that is made there"),
    "a table": ("ps.emit(T(id=1))", "ps.emit takes an event that is made there"),
    "a value": ("y = ps.emit(Inner(x=1))", "ps.emit is a statement of its own"),
    "a timer": ('ps.emit(Inner(x=1), at="soon")', "at= is of the type of ts, which is int in this app, not str"),
    "foreign": ("ps.emit(Reserve(item='a', quantity=1))", "event 'Reserve' is declared in another app"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_emitted_is_refused_where_it_stands(name: str, tmp_path: Path) -> None:
    body, says = BAD[name]
    path = tmp_path / "body.py"
    path.write_text(f"def bad(e: 'Outer'):\n    {body}\n")
    given = Refused()
    scope = {"ps": ps, "Reserve": Reserve, **vars(given)}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    with pytest.raises(ps.DeclarationError) as refused:
        given.app.transaction(scope["bad"])
    assert says in str(refused.value)
    assert "body.py:2" in str(refused.value)


def test_a_cycle_is_refused_by_the_transaction_that_closes_it() -> None:
    given = Refused()
    app, Inner = given.app, given.Inner

    @app.event
    class Other:
        x: int

    @app.transaction
    def first(e: Inner):
        ps.emit(Other(x=e.x))

    with pytest.raises(ps.DeclarationError, match=r"'second' .* closes a cycle .*: first\(Inner\) -> second\(Other\)"):

        @app.transaction
        def second(e: Other):
            ps.emit(Inner(x=e.x))

    with pytest.raises(ps.DeclarationError, match=r"closes a cycle of events.*: me\(Other\) -> me\(Other\)"):

        @app.transaction
        def me(e: Other):
            ps.emit(Other(x=e.x))


def test_what_is_declared_wrongly() -> None:
    given = Refused()
    app, Outer, Inner = given.app, given.Outer, given.Inner
    with pytest.raises(ps.DeclarationError, match="'outer' is nested, which is for events that are emitted"):

        @app.transaction(nested=True)
        def outer(e: Outer):
            pass

    with pytest.raises(ps.DeclarationError, match="nested=1; give True or False"):

        @app.transaction(nested=1)  # type: ignore[call-overload]
        def inner(e: Inner):
            pass

    with pytest.raises(ps.DeclarationError, match="a check only looks at its record"):

        @app.table
        class Checked:
            id: int = ps.key()

            @ps.check("no")
            def emits(self):
                ps.emit(Inner(x=1))
                return True

    @app.event
    class Alert:
        id: int

    @app.transaction
    def alerts(e: Outer):
        ps.emit(Alert(id=e.x))
        return {"step": 1}

    with pytest.raises(
        ps.DeclarationError, match="'Alert' is an output of app 'refused', whose rows have a column 'id'"
    ):
        app.open()


def test_a_returned_step_is_refused_where_there_is_one_already() -> None:
    given = Refused()
    app, Outer, Inner = given.app, given.Outer, given.Inner

    @app.transaction
    def steps(e: Outer):
        ps.emit(Inner(x=e.x))
        return {"step": 1}

    with pytest.raises(ps.DeclarationError, match="column 'step' already"):
        app.open()


def test_an_event_without_a_place_in_time_is_not_streamed() -> None:
    with shop.open() as db:
        for batch in ([Ship(sale="a")], {Ship: [{"sale": "a"}]}):
            with pytest.raises(ps.InputError, match="event 'Ship' has no place in time, so it can only be emitted"):
                db.run(batch)
        assert db.version == 0
        for either in (db, shop.reference()):
            with pytest.raises(ps.InputError, match="has no output 'Ship'; its outputs are Shipped"):
                either.emitted(Ship)
    with pytest.raises(ps.PenstockError, match="has a meaning only inside a transaction"):
        ps.emit(Ship(sale="a"))


def test_fields_left_out_of_an_emitted_event_have_their_defaults() -> None:
    """Of every type that a body means otherwise than Python: the reference converts a default as any other value."""
    app = ps.App("defaults")

    @app.event
    class Paid:
        ts: int = ps.order()
        id: str = ps.id()

    @app.event
    class Fee:
        amount: Decimal = ps.decimal(18, 2, default=Decimal("0.10"))
        small: Decimal = ps.decimal(9, 3, default=Decimal("0.125"))
        count: int = 2
        day: datetime.date = datetime.date(2024, 2, 29)
        since: datetime.datetime = datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC)
        span: datetime.timedelta = datetime.timedelta(hours=-1)
        note: str = "fee"
        maybe: Decimal | None = ps.decimal(9, 3, default=None)

    @app.transaction
    def pay(paid: Paid) -> None:
        ps.emit(Fee())
        ps.emit(Fee(amount=Decimal("1.5") + 1))

    @app.transaction
    def charge(fee: Fee) -> dict[str, Any]:
        return {"amount": fee.amount + fee.small, "count": fee.count, "until": fee.since + fee.span, "day": fee.day}

    out = check(app, batches=[[Paid(ts=1, id="a"), Paid(ts=2, id="b")]])[0]
    assert told(out)[:3] == ["a.0 pay: committed", "a.1 charge: committed", "a.2 charge: committed"]
