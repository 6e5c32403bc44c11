"""Transactions of several events: which are one batch, when it runs, what it gives, what is held, what is refused."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
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


def order(ts: int, account: str, amount: int | None) -> Any:
    return Order(ts=ts, account=account, amount=amount)


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
            [order(1, "a", 50), Deposit(ts=2, id="d", to="b", amount=1), order(5, "a", 2)],
            [order(4, "b", 60), Deposit(ts=9, id="d", to="b", amount=1), order(7, "a", 3)],
        ],
    )
    assert told(first) == ["2 d.0 deposit: committed", "2 d.1 audit: committed", "2 d.2 line: committed"]
    assert told(second, "total", "account")[:4] == [
        "1 None.0 fill: committed 112 a",
        "4 None.1 fill: committed 112 a",
        "5 None.2 fill: committed 112 a",
        "5 None.3 audit: committed None None",  # all that the round has emitted, with the last one's ts and id
    ]
    assert told(rest)[0] == "7 None.0 fill: committed"  # a flush runs what is left


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
            [order(6, "a", None), order(6, "a", 1), order(6, "a", 13), order(6, "a", 2)],
        ],
    )
    with market.open() as db:
        db.load(Account, LOAD[Account])
        out = db.run([trade(1, "t", "a", "b", 1), trade(1, "u", None, "b", 1)], flush=True)
        assert told(out) == ["1 t.0 settle: null src", "1 u.1 settle: null src"]


@pytest.mark.parametrize("log", ["changes", "input"])
def test_a_directory_keeps_what_is_held(tmp_path: Path, log: Any) -> None:
    reference = market.reference()
    batches: list[tuple[list[Any], dict[str, Any]]] = [
        ([trade(3, "t", "a", "b", 1), order(3, "a", 1), Deposit(ts=3, id="d", to="a", amount=1)], {}),
        ([trade(3, "s", "a", "b", 2), order(1, "b", 2)], {}),
        ([trade(9, "t", "a", "b", 4), order(9, "c", 3), Deposit(ts=6, id="d", to="b", amount=2)], {"watermark": 2}),
        ([trade(6, "t", "a", "b", 4), trade(7, "u", "b", "a", 5), order(12, "c", 5)], {"watermark": 2}),
        ([Deposit(ts=15, id="d", to="b", amount=2), order(13, "c", 6)], {}),
        ([], {"flush": True}),
    ]
    held = []
    for number, (batch, options) in enumerate(batches):
        with market.open(tmp_path, log=log, snapshot_every=3) as db:
            for table in (Account, Seen):
                assert_same_tables(db.table(table), reference.table(table), list(db.table(table).column_names[:1]))
            if number == 0:
                db.load(Account, LOAD[Account])
                reference.load(Account, LOAD[Account])
            out = db.run(batch, **options)
            assert_same_outcomes(out, reference.run(batch, **options))
            assert_same_outcomes(db.emitted(Alarm), reference.emitted(Alarm))
            assert_same_outcomes(db.outcomes(db.version), out)
            assert db.held == reference.held
            held.append(db.held)
    assert held == [2, 4, 4, 1, 2, 0]


@pytest.mark.parametrize("log", [None, "changes", "input"])
def test_a_call_with_a_ts_does_not_wait_for_a_batch_that_is_held(tmp_path: Path, log: Any) -> None:
    """Members are held without a watermark, and where there is none a call runs at once."""
    reference, path, options = market.reference(), *((None, {}) if log is None else (tmp_path, {"log": log}))
    asked = Deposit(ts=7, id="d", to="a", amount=1)
    with ThreadPoolExecutor(1) as pool, market.open(path, **options) as db:
        for one in (db, reference):
            one.run([trade(5, "t", "a", "b", 1), order(2, "a", 1)])
        assert db.held == 2
        assert pool.submit(db.call, asked).result(30) == reference.call(asked)
        for batch in ([trade(6, "u", "a", "b", 2)], [trade(8, "v", "a", "b", 2)]):
            assert_same_outcomes(db.run(batch), reference.run(batch))
            same(db, reference)


def test_it_runs_serially_under_every_policy_and_says_why() -> None:
    app, several = ps.App("serial"), None

    @app.event
    class Tick:
        ts: int = ps.order()
        n: int

    @app.transaction(batch="ts")
    def count(several: list[Tick]):
        total = 0
        for t in several:
            total += t.n
        return {"total": total}

    ticks = [Tick(ts=ts, n=1) for ts in (1, 1, 2)]
    assert several is None
    for policy in (None, Policy.serial(), Policy(threads=2), Policy.locking("lwm", threads=2)):
        with app.open() as db:
            assert db.run(ticks, policy=policy).select(["ts", "step", "total"]).to_pylist() == [
                {"ts": 1, "step": 0, "total": 2},
                {"ts": 1, "step": 1, "total": 2},
            ]
            assert db.last_batch is not None and db.held == 1
            assert (db.last_batch.policy, db.last_batch.held) == ("serial", 1)
            assert "several events" in db.last_batch.why and "several events" in db.explain(ticks, Policy(threads=2))
    assert "transaction count(list[Tick]) batch ts" in app.explain()
    assert "more: how many events" in app.explain("source")


def counting(batch: Any) -> tuple[ps.App, Any]:
    app = ps.App("counting")

    @app.table
    class Largest:
        k: int = ps.key()
        n: int = 0

    @app.event
    class Tick:
        ts: int = ps.order()

    @app.transaction(batch=batch)
    def count(several: list[Tick]):
        Largest.get(0).n = max(Largest.get(0).n, len(several))

    return app, Tick


def test_input_that_was_logged_is_not_run_again_in_other_batches(tmp_path: Path) -> None:
    app, tick = counting(2)
    state, copy = tmp_path / "state", tmp_path / "copy"
    with app.open(state, log="input") as db:
        db.run([tick(ts=ts) for ts in range(6)])
        shutil.copytree(state, copy)  # as a crash would leave it: closing makes a snapshot
    for batch in (3, "ts"):
        with pytest.raises(ps.StateError, match="its transactions"):
            counting(batch)[0].open(copy, log="input")
    with app.open(copy, log="input") as db:
        assert db.table("Largest").to_pylist() == [{"k": 0, "n": 2}]


def test_a_batch_may_be_larger_than_any_input() -> None:
    app, tick = counting(10**30)
    check(app, batches=[[tick(ts=ts) for ts in range(6)], [tick(ts=1)]])


PRELUDE = """
import penstock as ps

app = ps.App("refused")

@app.table
class Account:
    id: str = ps.key()
    n: int = 0

@app.event
class Trade:
    ts: int = ps.order()
    src: str
    n: int
    xs: list[int]

@app.event
class Inner:
    n: int

"""
WAYS = {
    "no events": ("batch=0", "list[Trade]", "batch=0", '"ts"'),
    "fewer than none": ("batch=-1", "list[Trade]", "batch=-1"),
    "a day": ('batch="day"', "list[Trade]", "batch='day'", "how many events"),
    "true": ("batch=True", "list[Trade]", "batch=True"),
    "no batch": ("", "list[Trade]", "list[Trade]", 'batch="ts"', "batch=100"),
    "no list": ("batch=2", "Trade", "batch=2", "list[Trade]"),
    "nested": ("nested=True", "list[Inner]", "list[Inner]", "leave out nested=True"),
    "nested batch": ('nested=True, batch="ts"', "list[Trade]", "leave out nested=True"),
    "emitted": ("batch=3", "list[Inner]", "batch=3", "'Inner'", "leave out batch="),
    "two types": ("batch=3", "list[Trade, Inner]", "not an event"),
    "no event": ("batch=3", "list[int]", "not an event"),
    "a list of lists": ("batch=3", "list[list[Trade]]", "not an event"),
    "a name that is none": ("batch=3", "'list[Nobody]'", "'Nobody' is not an event"),
}
BODIES = {
    "two lists of events": ("for t, u in zip(several, several):\n    pass", "for t in several"),
    "a list beside events": ("for t in several:\n    for x, u in zip(t.xs, several):\n        pass", "alone"),
    "places": ("for i, t in enumerate(several):\n    pass", "enumerate takes one list field"),
    "one of them": ("Account.get(several[0].src).n = 1", "a list of events is looped over whole"),
    "a field of all": ("Account.get(several.src).n = 1", "'several' is a list of events", "for t in"),
    "an event as a value": ("for t in several:\n    Account.get(t).n = 1", "'t' is an event", "one of its fields"),
    "an event in a name": ("for t in several:\n    u = t", "'t' is an event"),
    "whether there are any": ("if several:\n    pass", "loop over it"),
    "behind the loop": ("for t in several:\n    pass\nreturn {'n': t.n}", "'t' may be unassigned"),
    "a field written": ("for t in several:\n    t.n = 1", "cannot be changed"),
    "a field added to": ("for t in several:\n    t.n += 1", "cannot be changed"),
    "the list written": ("several = 1", "list of events"),
    "a value before": ("t = 1\nfor t in several:\n    pass", "use two names"),
    "a value on one path": ("for t in several:\n    if t.n > 1:\n        t = 3", "use two names"),
    "two names": ("for t, u in several:\n    pass", "1 value(s)"),
    "no such field": ("for t in several:\n    Account.get(t.what).n = 1", "no field 'what'"),
    "a list as a value": ("for t in several:\n    Account.get(t.src).n = t.xs", "a column holds one value"),
    "the length of one": ("for t in several:\n    Account.get(t.src).n = len(t)", "'t' is an event", "its fields"),
    "a step": ("return {'step': 1}\n", "several events", "'step'"),
}


def declared(tmp_path: Path, source: str) -> Any:
    """The app of a source, planned."""
    file, scope = tmp_path / "declared.py", dict[str, Any]()
    file.write_text(source)
    exec(compile(source, str(file), "exec"), scope)
    return scope["app"].plan.program


def refused(tmp_path: Path, source: str, words: tuple[str, ...]) -> None:
    with pytest.raises(ps.DeclarationError) as caught:
        declared(tmp_path, PRELUDE + source)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("name", WAYS)
def test_a_list_says_which_events_it_is(tmp_path: Path, name: str) -> None:
    options, takes, *words = WAYS[name]
    refused(tmp_path, f"@app.transaction({options})\ndef f(several: {takes}):\n    pass\n", tuple(words))


@pytest.mark.parametrize("name", BODIES)
def test_in_a_body_events_are_looped_over(tmp_path: Path, name: str) -> None:
    body, *words = BODIES[name]
    text = body.replace("\n", "\n    ")
    refused(tmp_path, f"@app.transaction(batch=2)\ndef f(several: list[Trade]):\n    {text}\n", tuple(words))


def test_a_type_may_be_written_as_text(tmp_path: Path) -> None:
    body = "@app.transaction(batch=2)\ndef f(several: list[Trade]):\n    return {'n': len(several)}\n"
    definition = declared(tmp_path, "from __future__ import annotations\n" + PRELUDE + body).transactions[0]
    assert (definition.event.name, definition.several, definition.batch) == ("Trade", True, 2)
