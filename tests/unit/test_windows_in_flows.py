"""Windows where timers, calls, scans and records that expire meet them: native equals reference, kept in both logs."""

from pathlib import Path
from typing import Any, Literal

import pytest

import penstock as ps
from penstock.testing import assert_same_outcomes, assert_same_tables

desk = ps.App("desk")


@desk.table
class Trader:
    id: int = ps.key()
    trades: int = 0
    place: int = 0


@desk.table(ttl=30)
class Alarm:
    id: int = ps.key()
    times: int = 0


@desk.event
class Trade:
    ts: int = ps.order()
    id: int = ps.id()
    trader: int
    amount: int


@desk.event
class Settled:  # by a timer: what was traded counts some time later
    trader: int
    amount: int


@desk.event
class Add:  # called
    trader: int
    amount: int


@desk.event
class Look:  # called, and changes nothing
    trader: int


@desk.window(time=20)
class Spent:
    trader: int = ps.key()
    amount: int


@desk.window(rows=4, slide=2)
class Recent:
    amount: int


@desk.transaction
def trade(e: Trade) -> dict[str, int]:
    Trader.get(e.trader).trades += 1
    ps.emit(Settled(trader=e.trader, amount=e.amount), at=ps.now() + 7)
    return {"now": ps.now()}


@desk.transaction
def settled(e: Settled) -> dict[str, int]:
    spent = Spent[e.trader]
    spent.add(amount=e.amount)
    ps.require(spent.amount.sum() < 40, "too much")  # takes the add back, and what the trigger did
    return {"spent": spent.amount.sum(), "rows": sum(1 for row in spent if row.amount > 2), "now": ps.now()}


@desk.trigger
def ranked(w: Spent) -> None:
    place = 1
    for one in Trader.top(3, by="trades"):
        one.place = place
        place += 1
    for row in w.expired:
        Alarm.get(row.trader).times += 1
        if Alarm[row.trader].times == 3:
            ps.emit(Add(trader=row.trader, amount=1))


@desk.transaction
def add(e: Add) -> dict[str, int]:
    Recent.add(amount=e.amount)
    ps.require(e.amount < 9, "large")
    return {"spent": Recent.amount.sum()}


@desk.transaction
def report(e: Look) -> dict[str, int]:
    alarm = Alarm.get(e.trader)
    return {"alarms": alarm.times, "now": ps.now()}


STEPS: list[Any] = [
    Look(trader=1),  # no clock yet
    *(Add(trader=1, amount=n) for n in (1, 2, 4, 9)),  # a window of rows needs none
    [Trade(ts=3 * n, id=n, trader=n % 4, amount=n % 13) for n in range(40)],
    "open",
    Look(trader=1),
    Add(trader=1, amount=8),
    [Trade(ts=120 + n, id=100 + n, trader=n % 3, amount=5 * (n % 4)) for n in range(50)],
    200,
    "open",
    Look(trader=1),
    [Trade(ts=260 + n % 5, id=200 + n, trader=n % 5, amount=n) for n in range(20)],
    300,
    Look(trader=2),
]


@pytest.mark.parametrize("log", ["changes", "input"])
def test_timers_add_calls_look_and_triggers_scan(log: Literal["changes", "input"], tmp_path: Path) -> None:
    reference, db = desk.reference(), desk.open(tmp_path / "state", log=log)
    statuses, reasons = set(), set()
    for step in STEPS:
        if step == "open":
            db.close()
            db = desk.open(tmp_path / "state", log=log)
        elif isinstance(step, list | int):
            outs = [one.run(step) if isinstance(step, list) else one.advance(step) for one in (db, reference)]
            assert_same_outcomes(*outs)
            rows = outs[1].to_pylist()
            statuses |= {(row["transaction"], row["status"]) for row in rows}
            reasons |= {row["reason"] for row in rows}
        else:
            told, wanted = db.call(step), reference.call(step)
            assert told == wanted, step
            reasons.add(wanted["reason"])
        for table in desk.program.tables:
            assert_same_tables(db.table(table.name), reference.table(table.name), [c.name for c in table.keys])
    assert {("settled", "committed"), ("settled", "aborted"), ("add", "committed")} <= statuses
    assert {"no clock yet", "too much", "large"} <= reasons
    db.close()


watch = ps.App("watch")


@watch.event
class Tick:
    ts: int = ps.order()
    amount: int


@watch.window(time=10)
class Lately:
    amount: int


@watch.window(rows=2)
class Two:
    amount: int


@watch.event
class Tack:
    amount: int
    by_time: bool


@watch.transaction(nested=True)
def tack(e: Tack) -> dict[str, int]:
    many = 0
    if e.amount > 0:
        Two.add(amount=e.amount)
        if e.by_time:
            Lately.add(amount=e.amount)
    if e.by_time:
        many = len(Lately)
    ps.require(e.amount < 50, "large")
    return {"many": many, "sum": Two.amount.sum()}


@watch.transaction
def tick(e: Tick) -> None:
    ps.emit(Tack(amount=e.amount, by_time=True))


def test_a_called_event_that_looks_at_a_window_of_time_needs_a_clock_and_one_of_rows_does_not() -> None:
    with watch.open() as db, watch.reference() as reference:
        for one in (
            Tack(amount=1, by_time=False),
            Tack(amount=2, by_time=True),
            Tack(amount=0, by_time=True),
            Tack(amount=0, by_time=False),
            Tick(ts=4, amount=3),
            Tack(amount=5, by_time=True),
            Tick(ts=14, amount=60),
            Tack(amount=0, by_time=True),
        ):
            assert db.call(one) == reference.call(one)
        batch = [Tick(ts=15 + n, amount=n % 7 * 9) for n in range(30)]
        assert_same_outcomes(db.run(batch), reference.run(batch))
        assert db.call(Tack(amount=0, by_time=True)) == reference.call(Tack(amount=0, by_time=True))
        assert reference.call(Tack(amount=0, by_time=True))["many"] > 0


def test_one_that_only_looks_at_a_window_only_reads() -> None:
    app = ps.App("looks")

    @app.event
    class Note:
        ts: int = ps.order()

    @app.event
    class Show:
        n: int

    @app.window(rows=2)
    class Two:
        n: int

    @app.transaction
    def show(e: Show) -> dict[str, int]:
        return {"sum": Two.n.sum()}

    assert app.program.reading == {"Show"}

    with pytest.raises(ps.DeclarationError, match="belongs to transaction 'show'"):

        @app.transaction
        def note(e: Note) -> None:
            Two.add(n=1)
