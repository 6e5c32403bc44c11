"""Every policy equals the reference, and the serial loop in what it says of a batch: hot records, circles, aborts."""

from itertools import product
from typing import Any

import numpy as np
import programs
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from law import agree
from pairs import batch, pair, same, same_tables, sound
from settings import EXAMPLES

import penstock as ps
from penstock.schedule.policy import EXPLORE, LOCKING, ON_ABORT, UNITS, Policy
from penstock.workloads import WORKLOADS

GRAPH = [Policy(explore=e, unit=u, on_abort=a, threads=1) for e, u, a in product(EXPLORE, UNITS, ON_ABORT)]
EXACT = [*GRAPH, *(Policy.locking(scheme, threads=1) for scheme in LOCKING if scheme != "none")]
# These between them have all that policies treat differently; compiling the others takes most of a minute each.
DEFAULT = ("bank", "bare", "chase", "lists", "spans")
JITTER = 20


def redo_by_strata(monkeypatch: pytest.MonkeyPatch, strata: bool) -> None:
    """What ran ahead in vain under `ready`; or else by `ready`, as only dear operations are."""
    monkeypatch.setattr("penstock.schedule.policy._QUICK", 1.0 if strata else 0.0)


policies = st.tuples(st.sampled_from(EXACT), st.integers(1, 8)).map(lambda p: p[0].with_threads(p[1]))


@pytest.mark.parametrize(
    "name", [n if n in DEFAULT else pytest.param(n, marks=pytest.mark.long) for n in programs.NAMES]
)
def test_fixed_program_under_policies(name: str) -> None:
    case = programs.case(name)

    @settings(max_examples=2 * EXAMPLES)
    @given(
        rows=st.fixed_dictionaries({table: some for table, some in case.rows.items()}),
        batches=st.lists(case.batch, min_size=1, max_size=2),
        policy=policies,
    )
    def law(rows: dict[Any, Any], batches: list[Any], policy: Policy) -> None:
        note(f"program {name}, {policy}")
        agree(case.app, rows, batches, policy)

    law()


@pytest.mark.parametrize(
    "name", [n if n in ("sl", "gs") else pytest.param(n, marks=pytest.mark.long) for n in WORKLOADS]
)
def test_hot_records_and_aborts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty records, 1 to 8 threads, up to nine in ten aborting."""
    with pair(name) as (app, serial, db):
        runs = product(GRAPH, (1, 2, 5, 8), (0.1, 0.9))
        for seed, (policy, threads, aborts) in enumerate(runs):
            redo_by_strata(monkeypatch, seed % 3 == 0)
            events = batch(app, name, 400, seed, theta=1.1, abort_ratio=aborts)
            db._engine.scheduler.executors.graph.jitter = JITTER if seed % 2 else 0
            same(serial, db, events, policy.with_threads(threads))
        for table in db._engine.tables.by_name.values():
            sound(table)


@pytest.mark.parametrize(
    ("name", "count"), [("sl", 600), *(pytest.param(n, 4_000, marks=pytest.mark.long) for n in ("sl", "smallbank"))]
)
def test_many_small_batches(name: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads give their core away at random moments, so that on few cores, too, every order is met."""
    rng = np.random.default_rng(3)
    with pair(name) as (app, serial, db):
        for seed in range(count):
            events = batch(app, name, int(rng.integers(1, 24)), seed, theta=0.99, abort_ratio=0.4)
            policy = GRAPH[seed % len(GRAPH)].with_threads(int(rng.integers(1, 9)))
            redo_by_strata(monkeypatch, rng.random() < 0.5)
            db._engine.scheduler.executors.graph.jitter = int(rng.integers(2, 12))
            wanted, got = serial.run(events, policy=Policy.serial()), db.run(events, policy=policy)
            assert got.equals(wanted), f"batch {seed}, {policy}"
            assert db.last_batch.changes == serial.last_batch.changes
        same_tables(serial, db)


def test_events_that_reach_no_record() -> None:
    from programs.lists import Buy, lists

    empty = {"warehouse": "x", "items": []}
    events = [
        Buy(ts=1, id=0, quantities=[], prices=[], **empty),
        Buy(ts=1, id=1, quantities=None, prices=None, **empty),
        Buy(ts=2, id=2, quantities=[1], prices=[1], **empty),
    ]
    with lists.open() as serial, lists.open() as db:
        for policy in GRAPH:
            same(serial, db, events, policy.with_threads(2))


def test_adaptive_says_why_and_is_right() -> None:
    with pair("sl") as (app, serial, db):
        db.warm()
        event_cost, chosen = db._engine.scheduler.groups[0][1].event_cost, set()
        for seed, cost in enumerate((1e-9, 1e-3, 1e-3, 1e-9)):
            events = batch(app, "sl", 1_500, seed, abort_ratio=0.2)
            event_cost.seconds = cost  # what an event is taken to cost, as if earlier batches had shown it
            same(serial, db, events, Policy.adaptive(threads=2))
            chosen.add(db.last_batch.policy)
            assert "events" in db.last_batch.why
        assert "serial" in chosen
        assert len(chosen) > 1


shop = ps.App("shop_and_tolls")


@shop.table
class Stock:
    id: int = ps.key()
    left: int = 50


@shop.table
class Toll:
    id: int = ps.key()
    due: int = 0


@shop.event
class Take:
    ts: int = ps.order()
    a: int
    b: int


@shop.event
class Pass:
    ts: int = ps.order()
    car: int


@shop.transaction
def take(e: Take):
    a, b = Stock.get(e.a), Stock.get(e.b)
    a.left -= 1
    b.left -= 1
    ps.require(a.left >= 0, "sold out")
    return {"left": b.left}


@shop.transaction
def toll(e: Pass):
    Toll.get(e.car).due += 1
    ps.require(Toll.get(e.car).due < 40, "blocked")


def test_groups_that_never_meet_have_policies_of_their_own() -> None:
    rng = np.random.default_rng(4)
    with shop.open() as serial, shop.open() as db:
        db.warm()
        assert [kinds for kinds, _ in db._engine.scheduler.groups] == [[0], [1]]
        for _ in range(4):
            events = [
                Take(ts=t, a=int(rng.integers(9)), b=int(rng.integers(9)))
                if rng.random() < 0.5
                else Pass(ts=t, car=int(rng.integers(9)))
                for t in range(300)
            ]
            dear, cheap = (adaptive for _, adaptive in db._engine.scheduler.groups)
            dear.event_cost.seconds, cheap.event_cost.seconds = 1e-3, 1e-9  # as if earlier batches had shown it
            same(serial, db, events, Policy.adaptive(threads=2))
            assert " + serial" in db.last_batch.policy
            assert "Take: " in db.last_batch.why
            assert "Pass: serial" in db.last_batch.why


def test_a_batch_that_is_all_late_runs_in_no_group() -> None:
    with shop.open() as db:
        assert len(db._engine.scheduler.groups) == 2
        db.run([Take(ts=10, a=1, b=2), Pass(ts=10, car=1), Take(ts=20, a=1, b=2)], watermark=0)
        late = db.run([Take(ts=1, a=1, b=2), Pass(ts=2, car=1)], watermark=0)
        assert late.column("status").to_pylist() == ["late", "late"]
        assert db.last_batch is not None and db.last_batch.late == 2
        assert db.run([Pass(ts=30, car=1)], watermark=0).num_rows >= 1


def test_tables_that_grow_while_threads_run() -> None:
    """Keys that are not there yet get a row before threads start; the table may have to grow for them."""
    with shop.open() as serial, shop.open() as db:
        for number, policy in enumerate(GRAPH):
            events = [Take(ts=k, a=k % 7 + 100 * number, b=100 * number + k) for k in range(300)]
            same(serial, db, events, policy.with_threads(1 + number % 4))
        assert len(db._engine.tables["Stock"]) > 1024
        sound(db._engine.tables["Stock"])
