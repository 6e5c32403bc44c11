"""The reference, case by case as docs/SEMANTICS.md has them; and the helpers that compare against it."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from penstock.declare.app import Declarations
from penstock.declare.marks import check, id_, key, order
from penstock.declare.model import Program
from penstock.declare.objects import EventType, Table, abort, require, udf
from penstock.declare.types import BOOL, DATE, DATETIME, FLOAT, INT, INT_MAX, INT_MIN, STR, Type
from penstock.declare.types import decimal as ps_decimal
from penstock.errors import Aborted, InputError
from penstock.execute.reference import Reference
from penstock.execute.uncompiled import uncompiled
from penstock.testing import assert_same_outcomes, assert_same_tables
from penstock.testing import check as check_law

# What `import penstock as ps` gives a user, as far as these bodies need it.
ps = SimpleNamespace(
    abort=abort, require=require, check=check, key=key, order=order, id=id_, udf=udf, decimal=ps_decimal
)
FEE = Decimal("0.05")
BIG = 2**62


class App(Declarations):
    """Only what the reference needs: declarations, and `returns` by hand."""

    def table(self, cls: type) -> Any:
        self.program = replace(self.program, tables=(*self.program.tables, self._add_table(cls)))
        return Table(self.program.tables[-1])

    def event(self, cls: type) -> Any:
        self.program = replace(self.program, events=(*self.program.events, self._add_event(cls)))
        return EventType(self.program.events[-1])

    def transaction(self, function: Any) -> Any:
        self.program = replace(self.program, transactions=(*self.program.transactions, self._add_transaction(function)))
        return function

    def reference(self, **returns: Type) -> Reference:
        return Reference(replace(self.program, returns=tuple(returns.items())))


bank = App("bank")


@bank.table
class Account:
    id: str = ps.key()
    balance: ps.decimal(18, 2) = 0

    @ps.check("insufficient funds")
    def solvent(self):
        return self.balance >= 0


@bank.event
class Transfer:
    ts: int = ps.order()
    id: str = ps.id()
    src: str
    dst: str
    amount: ps.decimal(18, 2)


@bank.transaction
def transfer(e: Transfer):
    src, dst = Account[e.src], Account[e.dst]
    if src.balance < e.amount:
        ps.abort("not enough")
    src.balance -= e.amount
    dst.balance += e.amount
    return {"left": src.balance}


def open_bank() -> Reference:
    return bank.reference(left=Type("decimal", 18, 2))


def test_the_example() -> None:
    with open_bank() as db:
        db.load(Account, [{"id": "a", "balance": 10}, {"id": "b"}])
        out = db.run([Transfer(ts=1, id="t1", src="a", dst="b", amount=4)])
        assert out.to_pylist() == [
            {
                "transaction": "transfer",
                "ts": 1,
                "id": "t1",
                "status": "committed",
                "reason": None,
                "version": 1,
                "left": Decimal("6.00"),
            }
        ]
        assert db.table(Account).to_pylist() == [
            {"id": "a", "balance": Decimal("6.00")},
            {"id": "b", "balance": Decimal("4.00")},
        ]
        assert db.sql("select sum(balance) as s from account").to_pylist() == [{"s": Decimal("10.00")}]


def test_aborts_are_rows_and_leave_no_trace() -> None:
    db = open_bank()
    db.load("Account", [{"id": "a", "balance": 1}, {"id": "b"}, {"id": "c", "balance": Decimal(10) ** 16 - 1}])
    before = db.table(Account)
    out = db.run(
        [
            Transfer(ts=1, id="1", src="x", dst="b", amount=1),
            Transfer(ts=1, id="2", src="a", dst="b", amount=2),
            Transfer(ts=1, id="3", src="a", dst="b", amount=-1),
            Transfer(ts=1, id="4", src="a", dst="b", amount=None),
            Transfer(ts=1, id="5", src="a", dst="c", amount=1),
        ]
    )
    reasons = ["missing Account", "not enough", "insufficient funds", "null amount", "overflow"]
    assert out["reason"].to_pylist() == reasons
    assert set(out["status"].to_pylist()) == {"aborted"} and out["left"].null_count == 5
    assert_same_tables(db.table(Account), before, ["id"])


def test_version_counts_runs_and_a_batch_id_runs_once() -> None:
    db = open_bank()
    db.load(Account, [{"id": "a", "balance": 10}, {"id": "b"}])
    assert db.version == 0
    batch = [Transfer(ts=1, id="t", src="a", dst="b", amount=1)]
    first = db.run(batch, id=7)
    assert db.run(batch, id=7).equals(first) and db.version == 1
    assert db.run(batch, policy=None)["version"].to_pylist() == [2]
    with pytest.raises(InputError):
        db.run([{"ts": 1}])
    assert db.version == 2
    assert db.run([]).num_rows == 0 and db.version == 3


def test_a_load_is_all_or_nothing() -> None:
    db = open_bank()
    db.load(Account, [{"id": "a"}])
    with pytest.raises(InputError, match="table 'Account': key 'a' is there already"):
        db.load(Account, [{"id": "b"}, {"id": "a"}])
    assert db.table(Account)["id"].to_pylist() == ["a"]
    with pytest.raises(InputError, match="has no table 'Acount'"):
        db.table("Acount")


def test_order_is_ts_then_no_id_then_id_then_arrival() -> None:
    app = App("app")

    @app.event
    class Named:
        ts: int = ps.order()
        id: str = ps.id()

    @app.event
    class Plain:
        ts: int = ps.order()
        n: int

    @app.transaction
    def named(e: Named):
        return {"who": 0}

    @app.transaction
    def plain(e: Plain):
        return {"who": e.n}

    out = app.reference(who=INT).run(
        [
            Named(ts=1, id="b"),
            Plain(ts=1, n=2),
            Named(ts=1, id="B"),
            Plain(ts=1, n=1),
            Plain(ts=0, n=3),
            Named(ts=1, id="b"),
        ]
    )
    assert list(zip(out["id"].to_pylist(), out["who"].to_pylist(), strict=True)) == [
        (None, 3),
        (None, 2),
        (None, 1),
        ("B", 0),
        ("b", 0),
        ("b", 0),
    ]


# One event and one table with every type; each test gives a body.


def outcome(
    body: Any, *, returns: dict[str, Type] | None = None, rows: Any = (), **fields: Any
) -> tuple[Any, Reference]:
    """(what the body returned or its reason, the database) of one event."""
    program = replace(ITEMS.program, returns=tuple((returns or {}).items()))
    body.__annotations__ = {"e": "Do"}
    do = replace(program.transactions[0], name=body.__name__, function=body)
    db = Reference(replace(program, transactions=(do,)))
    db.load(Item, list(rows), check=False)
    (row,) = db.run([Do(ts=1, **fields)]).to_pylist()
    if row["status"] == "aborted":
        return row["reason"], db
    return {k: row[k] for k in returns or {}}, db


ITEMS = App("items")


@ITEMS.table
class Item:
    k: int = ps.key()
    n: int = 0
    d: ps.decimal(5, 2) = 1
    f: float = 0.0
    s: str = ""

    @ps.check("n too large")
    def small(self):
        return self.n < 100

    @ps.check("n divides")
    def divides(self):
        return 10 // (self.n - 7)


@ITEMS.event
class Do:
    ts: int = ps.order()
    a: int
    b: int
    x: float
    d: ps.decimal(18, 2)
    s: str
    flag: bool
    t: dt.datetime
    day: dt.date
    xs: list[int]
    ds: list[ps.decimal(18, 2)]


@ITEMS.transaction
def nothing(e: Do):
    pass


def test_ints_are_checked_wherever_they_come_from() -> None:
    three = 3

    @ps.udf
    def double(x):
        return x * 2

    def literals(e):
        return {"r": 9223372036854775807 + 1}

    def least(e):
        return {"r": -9223372036854775808}

    def fields(e):
        return {"r": e.a * e.b}

    def constants(e):
        return {"r": BIG + BIG}

    def closures(e):
        return {"r": three * e.a}

    def loops(e):
        total = 0
        for i in range(9223372036854775800, 9223372036854775807):
            i += i
            total += i
        return {"r": total}

    def lists(e):
        total = len(e.xs)
        for x in e.xs:
            total += x
        return {"r": total}

    def functions(e):
        return {"r": double(e.a) + double(e.a)}

    r = {"r": INT}
    for body in (literals, constants, loops):
        assert outcome(body, returns=r)[0] == "overflow", body
    assert outcome(least, returns=r)[0] == {"r": INT_MIN}
    assert outcome(fields, returns=r, a=2**32, b=2**31)[0] == "overflow"
    assert outcome(fields, returns=r, a=6, b=7)[0] == {"r": 42}
    assert outcome(closures, returns=r, a=INT_MAX)[0] == "overflow"
    assert outcome(lists, returns=r, xs=[INT_MAX])[0] == "overflow"
    assert outcome(lists, returns=r, xs=[4, 5])[0] == {"r": 11}
    assert outcome(lists, returns=r, xs=[4, None])[0] == "null xs"
    assert outcome(functions, returns=r, a=2**61)[0] == "overflow"
    assert outcome(functions, returns=r, a=3)[0] == {"r": 12}


def test_a_udf_that_raises_aborts() -> None:
    @ps.udf
    def picky(x):
        if x < 0:
            raise ValueError("negative")
        return x

    def body(e):
        return {"r": picky(e.a)}

    assert outcome(body, returns={"r": INT}, a=-1)[0] == "udf picky failed"


def test_decimals_come_from_fields_literals_constants_and_modules() -> None:
    def body(e):
        fee = e.d * FEE + Decimal("0.001") + decimal.Decimal(2)
        return {"fee": fee, "floor": -e.d // 2, "rest": -e.d % 2, "third": e.d / 3}

    returns = {"fee": Type("decimal", 18, 4), "floor": Type("decimal", 18, 0), "rest": Type("decimal", 18, 2)}
    got, _ = outcome(body, returns={**returns, "third": Type("decimal", 18, 6)}, d=Decimal("10.50"))
    assert got == {
        "fee": Decimal("2.5260"),
        "floor": Decimal(-6),
        "rest": Decimal("1.50"),
        "third": Decimal("3.500000"),
    }


def test_division_by_zero_aborts() -> None:
    def ints(e):
        return {"r": e.a / e.b}

    def floats(e):
        return {"r": e.x % 0.0}

    for body in (ints, floats):
        assert outcome(body, returns={"r": FLOAT}, a=1, b=0, x=1.0)[0] == "division by zero"


def test_only_what_python_evaluates_can_abort() -> None:
    def body(e):
        ok = e.b != 0 and e.a // e.b > 1
        return {"r": e.a if ok else e.b}

    assert outcome(body, returns={"r": INT}, a=1, b=0)[0] == {"r": 0}
    assert outcome(body, returns={"r": INT}, a=None, b=0)[0] == {"r": 0}
    assert outcome(body, returns={"r": INT}, a=None, b=1)[0] == "null a"


def test_all_types_come_back_as_they_went_in() -> None:
    def body(e):
        n: int = e.a
        return {"n": n, "x": e.x, "d": e.d, "s": e.s, "flag": e.flag, "t": e.t, "day": e.day, "none": None}

    returns = {"n": INT, "x": FLOAT, "d": Type("decimal", 18, 2), "s": STR, "flag": BOOL, "t": DATETIME, "day": DATE}
    fields = {
        "x": math.inf,
        "d": Decimal("1.20"),
        "s": "é",
        "flag": False,
        "t": dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
        "day": dt.date(2024, 1, 1),
    }
    got, _ = outcome(body, returns={**returns, "none": INT}, a=1, **fields)
    assert got == {"n": 1, **fields, "none": None}


def test_get_gives_defaults_and_inserts_when_written() -> None:
    def reads(e):
        item = Item.get(e.a)
        return {"k": item.k, "n": item.n, "there": e.a in Item}

    def writes(e):
        Item.get(e.a).n += 3
        return {"there": e.a in Item, "n": Item[e.a].n}

    got, db = outcome(reads, returns={"k": INT, "n": INT, "there": BOOL}, a=1)
    assert got == {"k": 1, "n": 0, "there": False} and db.table(Item).num_rows == 0
    got, db = outcome(writes, returns={"there": BOOL, "n": INT}, a=1)
    assert got == {"there": True, "n": 3}
    assert db.table(Item).to_pylist() == [{"k": 1, "n": 3, "d": Decimal("1.00"), "f": 0.0, "s": ""}]


def test_storing_converts() -> None:
    def body(e):
        item = Item.insert(1, n=2, d=Decimal("0.125"))
        item.f = 3
        item.d += Decimal("0.005")

    def overflows(e):
        Item.get(1).d = 1000

    _, db = outcome(body)
    assert db.table(Item).to_pylist() == [{"k": 1, "n": 2, "d": Decimal("0.12"), "f": 3.0, "s": ""}]
    assert outcome(overflows)[0] == "overflow"


def test_insert_and_delete() -> None:
    def twice(e):
        Item.insert(1)
        Item.insert(1)

    def gone(e):
        item = Item[1]
        del Item[1]
        return {"n": item.n}

    def key_of_the_gone(e):
        item = Item[1]
        del Item[1]
        return {"n": item.k}

    def back(e):
        item = Item[1]
        del Item[1]
        Item.insert(1, n=5)
        return {"n": item.n}

    def nowhere(e):
        del Item[2]

    rows = [{"k": 1, "n": 4}]
    for body, want in (
        (twice, "exists Item"),
        (gone, "missing Item"),
        (key_of_the_gone, "missing Item"),
        (back, {"n": 5}),
        (nowhere, "missing Item"),
    ):
        got, db = outcome(body, returns={"n": INT}, rows=rows if body is not twice else ())
        assert got == want, body
        assert db.table(Item)["n"].to_pylist() == ([] if body is twice else [5] if body is back else [4])


def test_assignment_evaluates_then_converts_then_looks_up() -> None:
    def body(e):
        item = Item[1]
        del Item[1]
        item.d = 1000

    assert outcome(body, rows=[{"k": 1}])[0] == "overflow"


def test_checks_run_at_the_end_in_order_of_first_write() -> None:
    def later_mended(e):
        item = Item.get(1)
        item.n = 1000
        item.n = 1

    def first_write(e):
        Item.get(2).n = 1
        Item.get(1).n = 100
        Item.get(2).n = 7

    def deleted(e):
        Item.insert(1, n=100)
        del Item[1]

    def unwritten(e):
        return {"n": Item[5].n}

    def returned_first(e):
        Item.get(1).n = 100
        return {"n": 9223372036854775807 + e.a}

    assert outcome(later_mended)[0] == {}
    assert outcome(first_write)[0] == "division by zero"
    assert outcome(deleted)[0] == {}
    assert outcome(unwritten, returns={"n": INT}, rows=[{"k": 5, "n": 500}])[0] == {"n": 500}
    assert outcome(returned_first, returns={"n": INT}, a=1)[0] == "overflow"


def test_returned_values_take_the_apps_type() -> None:
    def body(e):
        return {"d": e.a, "f": e.a}

    returns = {"d": Type("decimal", 18, 2), "f": FLOAT}
    got, _ = outcome(body, returns=returns, a=3)
    assert got == {"d": Decimal("3.00"), "f": 3.0}
    assert outcome(body, returns=returns, a=10**17)[0] == "overflow"


def test_require_and_zip_and_early_return() -> None:
    def body(e):
        total = Decimal("0.00")
        for x, d in zip(e.xs, e.ds):
            if x == 0:
                continue
            ps.require(x > 0, "negative")
            total += x * d
        if total > 100:
            return {"r": max(total, e.d)}
        return

    r = {"r": Type("decimal", 18, 2)}
    ds = [Decimal("1.50"), 2, 3]
    assert outcome(body, returns=r, xs=[0, 2], ds=ds, d=0)[0] == {"r": None}
    assert outcome(body, returns=r, xs=[0, 100], ds=ds, d=0)[0] == {"r": Decimal("200.00")}
    assert outcome(body, returns=r, xs=[-1], ds=ds, d=0)[0] == "negative"
    assert outcome(body, returns=r, xs=[-1], ds=None, d=0)[0] == "null ds"


def test_composite_keys_are_converted() -> None:
    app = App("app")

    @app.table
    class Stock:
        w: ps.decimal(6, 2) = ps.key()
        i: int = ps.key()
        quantity: int = 0

    @app.event
    class Order:
        ts: dt.datetime = ps.order()
        w: ps.decimal(18, 4)

    @app.transaction
    def order_(e: Order):
        Stock.insert(e.w, 1, quantity=5)
        stock = Stock[e.w, 1]
        stock.quantity -= 2
        return {"w": stock.w, "q": Stock.get(2, 1).quantity, "there": (e.w, 1) in Stock, "not": (e.w, 2) not in Stock}

    db = app.reference(**{"w": Type("decimal", 18, 2), "q": INT, "there": BOOL, "not": BOOL})
    out = db.run({Order: [{"ts": dt.datetime(2024, 1, 1), "w": Decimal("2.0049")}]})
    assert out.schema.names == ["transaction", "ts", "status", "reason", "version", "w", "q", "there", "not"]
    assert out.to_pylist()[0] | {"version": 0} == {
        "transaction": "order_",
        "ts": dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
        "status": "committed",
        "reason": None,
        "version": 0,
        "w": Decimal("2.00"),
        "q": 3,
        "there": True,
        "not": True,
    }


def test_a_bug_in_a_body_goes_to_the_caller_and_is_undone() -> None:
    def body(e):
        Item.insert(1)
        return e.nope

    db = Reference(replace(ITEMS.program, transactions=(replace(ITEMS.program.transactions[0], function=body),)))
    with pytest.raises(AttributeError, match="event 'Do' has no field 'nope'"):
        db.run([Do(ts=1)])
    assert db.table(Item).num_rows == 0


def test_the_copy_keeps_its_place_in_the_file() -> None:
    copy = uncompiled(transfer)
    assert copy.__code__.co_filename == transfer.__code__.co_filename
    assert copy.__code__.co_firstlineno in (transfer.__code__.co_firstlineno, transfer.__code__.co_firstlineno + 1)
    with pytest.raises(Aborted):
        uncompiled(lambda_free)(None)


def lambda_free(e: no_such_name) -> no_such_name:  # type: ignore[name-defined]  # noqa: F821
    ps.abort("annotations are not evaluated")


# The comparing helpers.


def test_same_outcomes_ignore_encoding_and_take_nan_for_nan() -> None:
    a = pa.table({"s": pa.array(["x", None]).dictionary_encode(), "f": [math.nan, 1.0]})
    b = pa.table({"s": pa.chunked_array([["x"], pa.array([None], pa.string())]), "f": [math.nan, 1.0]})
    assert_same_outcomes(a, b)
    with pytest.raises(AssertionError, match=r"row 1(.|\n)*! f +left: 1.0  right: 2.0"):
        assert_same_outcomes(a, b.set_column(1, "f", pa.array([math.nan, 2.0])))
    with pytest.raises(AssertionError, match="row 1:\n  only left has it"):
        assert_same_outcomes(a, b.slice(0, 1))
    with pytest.raises(AssertionError, match="columns differ: f double on the left, f int64 on the right"):
        assert_same_outcomes(a, b.set_column(1, "f", pa.array([1, 2])))


def test_same_tables_ignore_the_order_of_rows() -> None:
    a = pa.table({"k": [1, 2], "v": [1, 2]})
    assert_same_tables(a, a.take([1, 0]), ["k"])
    with pytest.raises(AssertionError, match="record k=2:\n  only left has it"):
        assert_same_tables(a, a.slice(0, 1), ["k"])


class Both:
    """An app whose engine is a second reference, of a program that may differ."""

    def __init__(self, engine: Program, reference: Program) -> None:
        self.program = reference
        self._engine = engine

    def open(self) -> Reference:
        return Reference(self._engine)

    def reference(self) -> Reference:
        return Reference(self.program)


def test_check_shows_the_first_difference_with_the_source() -> None:
    program = replace(bank.program, returns=(("left", Type("decimal", 18, 2)),))
    load = {Account: [{"id": "a", "balance": 10}, {"id": "b"}]}
    batches = [[Transfer(ts=t, id="t", src="a", dst="b", amount=t)] for t in (1, 2)]
    assert [o["left"].to_pylist() for o in check_law(Both(program, program), load=load, batches=batches)] == [
        [Decimal("9.00")],
        [Decimal("7.00")],
    ]

    def wrong(e):
        Account[e.src].balance -= e.amount * e.amount
        Account[e.dst].balance += e.amount
        return {"left": Account[e.src].balance}

    def wrong_in_silence(e):
        Account[e.src].balance -= e.amount
        return {"left": Account[e.src].balance}

    def engine(body: Any) -> Program:
        return replace(program, transactions=(replace(program.transactions[0], function=body),))

    with pytest.raises(AssertionError) as caught:
        check_law(Both(engine(wrong), program), load=load, batches=batches)
    text = str(caught.value)
    assert "app 'bank', batch 1: outcomes differ" in text
    assert "engine: Decimal('5.00')  reference: Decimal('7.00')" in text
    assert "    src.balance -= e.amount\n" in text
    with pytest.raises(AssertionError, match=r"after batch 0: table 'Account' differs(.|\n)*record id='b'"):
        check_law(Both(engine(wrong_in_silence), program), load=load, batches=batches)
