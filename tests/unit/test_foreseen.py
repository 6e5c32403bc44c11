"""What `explain` and `why` say of a transaction's keys is what its schedule does."""

import importlib.util
from decimal import Decimal
from itertools import count, product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.plan.access import accesses
from penstock.plan.foresee import MOST_TURNS, foresee
from penstock.plan.ir import TransactionPlan
from penstock.schedule.policy import EXPLORE, ON_ABORT, UNITS, Policy
from penstock.testing import assert_same_tables, check
from penstock.workloads import WORKLOADS

LOWEST, HIGHEST = -(2**63), 2**63 - 1
app = ps.App("foreseen")


@app.table
class Account:
    id: int = ps.key()
    balance: int = 10
    partner: int = 0


@app.event
class Guarded:
    ts: int = ps.order()
    src: int
    dst: int


@app.event
class Followed:
    ts: int = ps.order()
    src: int


@app.event
class Computed:
    ts: int = ps.order()
    src: int
    by: int


@app.event
class Listed:
    ts: int = ps.order()
    xs: list[int]
    ys: list[int]


@app.event
class Counted:
    ts: int = ps.order()
    n: int


@app.event
class Nested:
    ts: int = ps.order()
    xs: list[int]


@app.event
class Crossed:
    ts: int = ps.order()
    xs: list[int]
    ys: list[int]


@app.event
class Carried:
    ts: int = ps.order()
    xs: list[int]


@app.event
class Foreign:
    ts: int = ps.order()
    src: int


@app.event
class Spanned:
    ts: int = ps.order()
    n: int


@app.event
class Endless:
    ts: int = ps.order()
    n: int


@ps.udf
def scatter(n):
    return n % 3


@app.transaction
def guarded(e: Guarded):
    src = Account.get(e.src)
    if src.balance > 0:
        if Account.get(e.dst).balance < 100:
            Account.get(e.dst).balance += 1
            src.balance -= 1


@app.transaction
def followed(e: Followed):
    Account.get(Account.get(e.src).partner).balance += 1


@app.transaction
def computed(e: Computed):
    Account.get(e.src // e.by).balance += 1
    if Account.get(abs(e.src)).balance > 11:
        Account[max(e.src, 2) if e.by > 0 else 2 - e.src].partner += e.by


@app.transaction
def listed(e: Listed):
    for x, y in zip(e.xs, e.ys):
        Account.get(x * y).balance += 1
        Account.get(x + len(e.ys)).balance -= y


@app.transaction
def counted(e: Counted):
    for i in range(3):
        Account.get(i).balance += 1
        if i == e.n:
            break
    for i in range(9, -3, -4):
        Account.get(i + e.n).balance += i


@app.transaction
def nested(e: Nested):
    for i in range(2):
        for x in e.xs:
            for k in range(6, 0, -3):
                Account.get(i * 100 + x * 10 + k).balance += 1
                if x == k:
                    break


@app.transaction
def crossed(e: Crossed):
    for x in e.xs:
        for y in e.ys:
            Account.get(x + y).balance += 1


@app.transaction
def carried(e: Carried):
    total = 0
    for x in e.xs:
        total += x
        Account.get(total).balance += 1


@app.transaction
def foreign(e: Foreign):
    Account.get(scatter(e.src)).balance += 1


@app.transaction
def spanned(e: Spanned):
    for i in range(e.n):
        Account.get(i).balance += 1


@app.transaction
def endless(e: Endless):
    for i in range(LOWEST, HIGHEST):
        Account.get(i).balance += 1
        if i > LOWEST + e.n:
            break


PLAN = app.explain()
SMALL = """
import penstock as ps

app = ps.App("small")


@app.table
class A:
    id: int = ps.key()
    n: int = 0


@app.event
class E:
    ts: int = ps.order()
    x: int


@app.transaction
def go(e: E):
"""


def said(name: str) -> str:
    """What the plan's text says of one transaction."""
    return PLAN.split(f"transaction {name}(")[1].split("\ntransaction ")[0]


@pytest.mark.parametrize(
    ("name", "event", "key"),
    [
        ("guarded", Guarded(ts=1, src=1, dst=2), ""),
        ("followed", Followed(ts=1, src=1), "from state"),
        ("computed", Computed(ts=1, src=1, by=2), ""),
        ("computed", Computed(ts=1, src=1, by=0), ""),
        ("computed", Computed(ts=1, src=-(2**63), by=-1), ""),
        ("computed", Computed(ts=1, src=-(2**63), by=5), ""),
        ("computed", Computed(ts=1, src=None, by=1), ""),
        ("listed", Listed(ts=1, xs=[1, 2, 2**62], ys=[3, 3, 4, 5]), ""),
        ("listed", Listed(ts=1, xs=[1, 2], ys=None), ""),
        ("counted", Counted(ts=1, n=1), ""),
        ("counted", Counted(ts=1, n=2**63 - 1), ""),
        ("nested", Nested(ts=1, xs=[3, 4, 3]), ""),
        ("nested", Nested(ts=1, xs=[]), ""),
        ("crossed", Crossed(ts=1, xs=[1, 2], ys=[3]), "from two lists"),
        ("carried", Carried(ts=1, xs=[1, 2]), "from a loop's earlier turns"),
        ("foreign", Foreign(ts=1, src=7), "from a udf"),
        ("spanned", Spanned(ts=1, n=3), "from a range of no constant length"),
        ("endless", Endless(ts=1, n=3), "from a long range"),
    ],
)
def test_plan_batch_and_why_say_the_same(name: str, event: Any, key: str) -> None:
    assert ("serial)" in said(name)) == bool(key)
    assert f"(key {key}: serial)" in said(name) or not key
    others = [Guarded(ts=0, src=3, dst=4), event, Guarded(ts=2, src=5, dst=6)]
    with app.open() as db:
        text = db.explain(others, policy=Policy(threads=2))
        assert ("alone" in text) == bool(key)
        assert f"alone, since it has a key {key}: " in text or not key
        db.run(others, policy=Policy.adaptive(2))
        assert db.last_batch is not None
        assert ("must run alone" in db.last_batch.why) == bool(key)
        assert f"1 of 3 events have a key {key}, and must run alone" == db.last_batch.why or not key
    for policy in (Policy(threads=2), Policy(unit="operation", threads=2), Policy.tstream(2), Policy.locking("lal", 2)):
        check(app, batches=[others, others], policy=policy)


def test_several_reasons_are_all_told() -> None:
    with app.open() as db:
        db.run([Followed(ts=1, src=1), Foreign(ts=2, src=1)], policy=Policy.adaptive(2))
        assert db.last_batch is not None
        assert db.last_batch.why.startswith("2 of 2 events have a key from a udf or from state, and")


def test_a_range_is_foreseen_as_long_as_its_turns_are_few(tmp_path: Path) -> None:
    def body(*lines: str) -> TransactionPlan:
        path = tmp_path / f"small_{next(numbers)}.py"
        path.write_text(SMALL + "".join(f"    {line}\n" for line in lines))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        plan: TransactionPlan = module.app.plan.transactions[0]
        return plan

    numbers = count()
    assert foresee(body(f"for i in range({MOST_TURNS}):", "    A.get(i).n += 1")) is not None
    assert foresee(body(f"for i in range({MOST_TURNS + 1}):", "    A.get(i).n += 1")) is None
    assert foresee(body(f"for i in range({MOST_TURNS + 1}):", "    A.get(e.x).n += i")) is not None
    both = body(f"for i in range({MOST_TURNS}):", "    for k in range(2):", "        A.get(i + k).n += 1")
    assert foresee(both) is None


under = ps.App("under")


@under.table
class Share:
    id: ps.decimal(18, 0) = ps.key()
    n: int = 0


@under.event
class Divide:
    ts: int = ps.order()
    whole: ps.decimal(18, 2)
    by: ps.decimal(18, 2)
    parts: list[ps.decimal(18, 2)]


@under.transaction
def divide(e: Divide):
    Share.get(e.whole // e.by).n += 1
    for part in e.parts:
        Share.get(part // e.by).n += 1


def test_what_lies_under_a_null_is_not_computed_with() -> None:
    """-(2**63) is no decimal(18, 2), and arithmetic may rely on that."""
    size, lowest = 40, (-(2**63)).to_bytes(16, "little", signed=True)
    hidden = pa.py_buffer(lowest * size)
    nothing = pa.Array.from_buffers(pa.decimal128(18, 2), size, [pa.py_buffer(bytes(size)), hidden])
    parts = pa.ListArray.from_arrays(pa.array(range(size + 1), pa.int32()), nothing)
    whole = pa.array([Decimal(1)] * size, pa.decimal128(18, 2))
    by = pa.array([Decimal("-0.01")] * size, pa.decimal128(18, 2))
    for policy in (Policy(threads=2), Policy.locking("lal", 2)):
        for fields in ([nothing, by, parts], [whole, by, parts]):
            table = pa.table([pa.array(range(size)), *fields], names=["ts", "whole", "by", "parts"])
            check(under, batches=[{Divide: table}], policy=policy)


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_transaction_is_foreseen_if_all_its_accesses_are(name: str) -> None:
    for transaction in WORKLOADS[name].app().plan.transactions:
        foreseen = all(access.foreseen for access in accesses(transaction.block))
        assert foreseen == (foresee(transaction) is not None)


def test_adaptive_is_not_said_to_build_no_graph() -> None:
    with app.open() as db:
        assert "no graph is built" in db.explain([], policy=Policy.serial())
        assert "when it runs" in db.explain([], policy=Policy.adaptive())


def test_a_record_that_is_chosen_from_two_is_written_under_every_policy() -> None:
    app = ps.App("chosen")

    @app.table
    class Pot:
        k: int = ps.key()
        n: int = 0

    @app.event
    class Put:
        ts: int = ps.order()
        a: int
        b: int
        first: bool

    @app.transaction
    def put(e: Put) -> None:
        pot = Pot[e.a] if e.first else Pot[e.b]
        pot.n = pot.n * 3 + e.ts

    batch = [Put(ts=i, a=i % 3, b=(i * 5 + 1) % 4, first=i % 2 == 0) for i in range(60)]
    rows = [{"k": k, "n": 0} for k in range(4)]
    reference = app.reference()
    reference.load(Pot, rows)
    reference.run(batch)
    for explore, unit, on_abort in product(EXPLORE, UNITS, ON_ABORT):
        with app.open() as db:
            db.load(Pot, rows)
            db.run(batch, policy=ps.Policy(explore=explore, unit=unit, on_abort=on_abort, threads=2))
            assert_same_tables(db.table(Pot), reference.table(Pot), ["k"])


def test_an_abort_takes_back_what_was_written_to_a_record_that_was_read_by_another_name() -> None:
    """The first way to a record only reads it, the second one writes it: both mean one version."""
    app = ps.App("aliased")

    @app.table
    class Pot:
        k: int = ps.key()
        n: int = 0

    @app.event
    class Move:
        ts: int = ps.order()
        a: int
        b: int
        xs: list[int]

    @app.transaction
    def move(e: Move) -> None:
        seen = Pot[e.a].n
        if e.ts % 5 == 4:
            del Pot[e.b]
        else:
            Pot[e.b].n += 1
        for x in e.xs:
            Pot.get(x + 1).n += seen
        if (seen + e.ts) % 3 == 0:
            ps.abort("three")

    batch = [Move(ts=i, a=i % 4, b=i * i % 4, xs=[i % 4, i % 3]) for i in range(60)]
    rows = [{"k": k, "n": 0} for k in range(4)]
    for explore, unit, on_abort in product(EXPLORE, UNITS, ON_ABORT):
        policy = ps.Policy(explore=explore, unit=unit, on_abort=on_abort, threads=2)
        check(app, load={Pot: rows}, batches=[batch], policy=policy)


def test_the_items_of_a_range_across_all_ints_are_foreseen_as_they_are() -> None:
    """From the first item to the last it is further than int64 reaches, which compiled code takes no product to do."""
    app = ps.App("wide")

    @app.table
    class Pot:
        k: int = ps.key()
        n: int = 0

    @app.event
    class Sow:
        ts: int = ps.order()
        xs: list[int]

    @app.transaction
    def sow(e: Sow) -> None:
        for i in range(LOWEST, HIGHEST, 4611686018427387904):
            Pot.get(i).n += 1
            for x in e.xs:
                Pot.get(x + i % 3).n += 1

    for policy in (Policy(threads=2), Policy.locking("lal", 2)):
        check(app, batches=[[Sow(ts=i, xs=[10 * i, 20]) for i in range(6)]], policy=policy)
