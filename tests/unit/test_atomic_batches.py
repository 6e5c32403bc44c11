"""Transactions of several events: which are one batch, when it runs, what it gives, what is held, what is refused."""

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.schedule.policy import Policy
from penstock.testing import assert_same_outcomes, assert_same_tables, check

market = ps.App("market")


@market.table
class Account:
    id: str = ps.key()
    balance: int = 0
    trades: int = 0

    @ps.check("insufficient funds")
    def solvent(self) -> bool:
        return self.balance >= 0


@market.table
class Seen:
    n: int = ps.key()
    count: int = 0
    sum: int = 0


@market.event
class Trade:
    ts: int = ps.order()
    id: str = ps.id()
    src: str
    dst: str
    amount: int
    fees: list[int]


@market.event
class Order:
    ts: int = ps.order()
    id: str = ps.id()
    account: str
    amount: int


@market.event
class Deposit:
    ts: int = ps.order()
    id: str = ps.id()
    to: str
    amount: int


@market.event
class Audit:
    account: str
    amount: int


@market.event
class Line:
    n: int


@market.event
class Alarm:
    count: int


@market.transaction(batch="ts")
def settle(trades: list[Trade]):
    """All trades of one moment, net of their fees."""
    fees = 0
    for t in trades:
        Account.get(t.src).balance -= t.amount
        Account.get(t.dst).balance += t.amount
        for fee in t.fees:
            if fee < 0:
                break
            fees += fee
        for other in trades:
            if other.dst == t.src:
                Account.get(t.src).trades += 1
    if fees > 0:
        ps.emit(Audit(account="fees", amount=fees))
    return {"total": fees, "count": len(trades)}


@market.transaction(batch=3)
def fill(orders: list[Order]):
    total, last = 0, ""
    for o in orders:
        total += o.amount
        last = o.account
        ps.require(o.amount != 13, "unlucky")
        ps.emit(Audit(account=o.account, amount=o.amount))
    for o in orders:
        Account.get(o.account).balance += total
    if total > 100:
        ps.emit(Alarm(count=len(orders)))
    return {"total": total, "count": len(orders), "account": last}


@market.transaction
def deposit(e: Deposit):
    Account.get(e.to).balance += e.amount
    ps.emit(Audit(account=e.to, amount=e.amount))
    if e.amount > 5:
        ps.emit(Audit(account="big", amount=1))
    return {"account": e.to}


@market.transaction
def audit(all_: list[Audit]):
    """All that a round has said of accounts: one transaction behind those that said it."""
    for a in all_:
        Seen.get(0).sum += a.amount
        ps.require(a.amount != 4, "four")
        ps.emit(Line(n=a.amount))
    Seen.get(0).count += len(all_)
    ps.emit(Alarm(count=len(all_)))
    return {"count": len(all_)}


@market.transaction(nested=True)
def line(e: Line):
    Seen.get(1).count += 1
    Seen.get(e.n).sum += 1


LOAD: dict[Any, Any] = {Account: [{"id": name, "balance": 30} for name in "ab"]}


def trade(ts: int, id: str, src: str | None, dst: str, amount: int | None, fees: Any = ()) -> Any:
    return Trade(ts=ts, id=id, src=src, dst=dst, amount=amount, fees=None if fees is None else list(fees))


def order(ts: int, id: str, account: str, amount: int | None) -> Any:
    return Order(ts=ts, id=id, account=account, amount=amount)


def told(out: pa.Table, *more: str) -> list[str]:
    """Rows as `ts id.step transaction: status or reason`, and these fields."""
    return [
        " ".join(
            [
                f"{r['ts']} {r['id']}.{r['step']} {r['transaction']}: {r['reason'] or r['status']}",
                *(str(r[m]) for m in more),
            ]
        )
        for r in out.to_pylist()
    ]


def same(db: Any, reference: Any) -> None:
    assert db.held == reference.held
    for event in market.program.outputs():
        assert_same_outcomes(db.emitted(event.name), reference.emitted(event.name))
    for table in market.program.tables:
        keys = [c.name for c in table.keys]
        assert_same_tables(db.table(table.name), reference.table(table.name), keys)


def test_all_events_of_one_time_are_one_transaction() -> None:
    first, second, rest = check(
        market,
        load=LOAD,
        batches=[
            [trade(2, "t1", "c", "b", 3), trade(2, "t0", "a", "c", 4), Deposit(ts=1, id="d", to="a", amount=1)],
            [trade(3, "t2", "a", "b", 90), trade(3, "t3", "b", "a", 1), Deposit(ts=9, id="d", to="a", amount=1)],
        ],
    )
    assert told(first, "count") == [
        "1 d.0 deposit: committed None",
        "1 d.1 audit: committed 1",
        "1 d.2 line: committed None",
    ]
    assert told(second, "count") == [
        "2 t0.0 settle: committed 2",  # c has nothing before it, but at the end all is paid
        "2 t1.1 settle: committed 2",
        "3 t2.0 settle: insufficient funds None",  # both, though one alone would have been fine
        "3 t3.1 settle: insufficient funds None",
        "9 d.0 deposit: committed None",
        "9 d.1 audit: committed 1",
        "9 d.2 line: committed None",
    ]
    assert rest.num_rows == 0


def test_so_many_events_in_order_are_one_transaction_at_the_place_of_the_last() -> None:
    first, second, rest = check(
        market,
        load=LOAD,
        batches=[
            [order(1, "o", "a", 50), Deposit(ts=2, id="d", to="b", amount=1), order(5, "o", "a", 2)],
            [order(4, "o", "b", 60), Deposit(ts=9, id="d", to="b", amount=1), order(7, "o", "a", 3)],
        ],
    )
    assert told(first) == ["2 d.0 deposit: committed", "2 d.1 audit: committed", "2 d.2 line: committed"]
    assert told(second, "total", "account")[:4] == [
        "1 o.0 fill: committed 112 a",
        "4 o.1 fill: committed 112 a",
        "5 o.2 fill: committed 112 a",
        "5 o.3 audit: committed None None",  # all that the round has emitted, with the last one's ts and id
    ]
    assert told(rest)[0] == "7 o.0 fill: committed"  # a flush runs what is left


def test_events_that_are_emitted_are_one_transaction_behind_all_who_emit_them() -> None:
    with market.open() as db:
        out = db.run([Deposit(ts=1, id="d", to="a", amount=7)])
        assert told(out, "count") == [
            "1 d.0 deposit: committed None",
            "1 d.1 audit: committed 2",
            "1 d.2 audit: committed 2",
            "1 d.3 line: committed None",
            "1 d.4 line: committed None",
        ]
        assert db.emitted(Alarm).to_pylist() == [{"ts": 1, "id": "d", "step": 2, "version": 1, "count": 2}]
        # It aborts alone: what emitted stands.
        out = db.run([Deposit(ts=2, id="d", to="a", amount=4)])
        assert told(out) == ["2 d.0 deposit: committed", "2 d.1 audit: four"]
        assert db.table(Seen).to_pylist() == [
            {"n": 0, "count": 2, "sum": 8}, {"n": 1, "count": 2, "sum": 1}, {"n": 7, "count": 0, "sum": 1}
        ]  # fmt: skip


def test_a_null_aborts_where_it_is_read() -> None:
    check(
        market,
        load=LOAD,
        batches=[
            [trade(1, "t", "a", "b", 1), trade(1, "u", None, "b", 1)],
            [trade(2, "t", "a", "b", 1), trade(2, "u", "a", "b", None), trade(3, "t", "a", "b", 1, None)],
            [trade(4, "t", "a", "b", 1, [1, None]), trade(5, "t", "a", "b", 1, [1, -1, 3])],
            [order(6, "o", "a", None), order(6, "p", "a", 1), order(6, "q", "a", 13), order(6, "r", "a", 2)],
        ],
    )
    with market.open() as db:
        db.load(Account, LOAD[Account])
        out = db.run([trade(1, "t", "a", "b", 1), trade(1, "u", None, "b", 1)], flush=True)
        assert told(out) == ["1 t.0 settle: null src", "1 u.1 settle: null src"]


def drawn(rng: Random, count: int, times: int) -> list[Any]:
    out = []
    for number in range(count):
        ts, id_ = rng.randrange(times), f"{rng.randrange(3)}{number}"
        amount = rng.choice((1, 1, 2, 3, 7, 60, 4, 13, None))
        who, to = rng.choice("aabc"), rng.choice("aabbcd")
        match rng.choice("ttood"):
            case "t":
                fees = rng.choice(([], [1], [2, -1, 5], [4], [None], None)) if rng.random() < 0.5 else []
                out.append(trade(ts, id_, who if rng.random() < 0.95 else None, to, amount, fees))
            case "o":
                out.append(order(ts, id_, who, amount))
            case _:
                out.append(Deposit(ts=ts, id=id_, to=to, amount=amount))
    return out


def cut(rng: Random, events: list[Any]) -> list[list[Any]]:
    places = sorted(rng.choices(range(len(events) + 1), k=rng.randrange(5)))
    return [events[a:b] for a, b in zip([0, *places], [*places, len(events)])]


def ran(side: Any, batches: list[list[Any]], **options: Any) -> tuple[list[Any], list[Any], list[Any]]:
    """What became of all batches and a flush behind them, but for the version; all that was emitted; the records."""
    side.load(Account, LOAD[Account])
    outcomes, emitted = [], []
    for batch, more in [*((batch, options) for batch in batches), ([], {"flush": True})]:
        outcomes += side.run(batch, **more).drop_columns("version").to_pylist()
        emitted += side.emitted(Alarm).drop_columns("version").to_pylist()
    tables = [sorted(side.table(table).to_pylist(), key=str) for table in (Account, Seen)]
    return outcomes, emitted, tables


def test_sorted_input_gives_the_same_however_it_is_cut() -> None:
    rng = Random(1)
    for _ in range(25):
        events = sorted(drawn(rng, rng.randrange(1, 40), 9), key=lambda e: (e.ts, e.id))
        with market.open() as db:
            whole = ran(db, [events])
        with market.open() as db:
            assert ran(db, cut(rng, events)) == whole
        assert ran(market.reference(), cut(rng, events)) == whole
        # A watermark that no event comes too late for, whatever the order within it.
        jumbled = sorted(events, key=lambda e: e.ts + rng.randrange(4))
        with market.open() as db:
            assert ran(db, cut(rng, jumbled), watermark=4) == whole


@pytest.mark.parametrize("log", ["changes", "input"])
def test_a_directory_keeps_what_is_held_and_runs_it_again(tmp_path: Path, log: Any) -> None:
    rng = Random(log)
    policies = [None, Policy.serial(), Policy(threads=2), Policy.locking("lwm", threads=2), Policy.parse("tstream")]
    for number in range(6):
        reference, where = market.reference(), tmp_path / str(number)
        reference.load(Account, LOAD[Account])
        options: dict[str, Any] = {"log": log, "background": False, "snapshot_every": rng.choice((1, 3, 50))}
        db = market.open(where, **options)
        db.load(Account, LOAD[Account])
        for _ in range(8):
            if rng.random() < 0.4:
                db.close()
                db = market.open(where, **options)
                same(db, reference) if reference.version == 0 else None
            batch: Any = drawn(rng, rng.randrange(12), 25)
            more: dict[str, Any] = {"watermark": rng.choice((None, None, 0, 2, 5)), "flush": rng.random() < 0.15}
            out = db.run(batch, policy=rng.choice(policies), **more)
            assert_same_outcomes(out, reference.run(batch, **more))
            same(db, reference)
            assert db.last_batch is not None and db.last_batch.policy == "serial" and "event" in db.last_batch.why
        version = db.version
        assert_same_outcomes(db.outcomes(version), out)
        db.close()
        with market.open(where, **options) as db:
            for table in market.program.tables:
                keys = [c.name for c in table.keys]
                assert_same_tables(db.table(table.name), reference.table(table.name), keys)
            assert db.held == reference.held
