"""Apps that have next to nothing, under every policy: no tables, no events, no transactions, one row, no batch."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.schedule.policy import EXPLORE, LOCKING, ON_ABORT, UNITS, Policy
from penstock.testing import check

POLICIES = [
    Policy.adaptive(2),
    Policy.serial(),
    *(Policy(explore=e, unit=u, on_abort=a, threads=2) for e, u, a in product(EXPLORE, UNITS, ON_ABORT)),
    *(Policy.locking(scheme, threads=2) for scheme in LOCKING),
]

bare = ps.App("bare")


@bare.event
class Ask:
    ts: int = ps.order()
    x: int
    xs: list[int]


@bare.transaction
def ask(e: Ask):
    total = 0
    for x in e.xs:
        total += x
    ps.require(total < 100, "too much")
    return {"y": e.x + total}


QUESTIONS = [
    [Ask(ts=3, x=1, xs=[]), Ask(ts=1, x=2**63 - 1, xs=[1]), Ask(ts=2, x=0, xs=[99, 1]), Ask(ts=2, x=None, xs=None)],
    [],
    [Ask(ts=1, x=5, xs=[1, 2, 3])],
]

shelf = ps.App("shelf")


@shelf.table
class Only:
    id: int = ps.key()
    n: int = 0


@shelf.event
class Bump:
    ts: int = ps.order()


@shelf.event
class Look:
    ts: int = ps.order()
    x: int


@shelf.event
class Unused:
    ts: int = ps.order()


@shelf.transaction
def bump(e: Bump):
    Only[0].n += 1
    return {"n": Only[0].n}


@shelf.transaction
def look(e: Look):
    ps.require(e.x > 0, "not above zero")
    return {"n": e.x}


visits = ps.App("visits")


@visits.table
class Visit:
    id: int = ps.key()


@visits.event
class Come:
    ts: int = ps.order()
    who: int


@visits.event
class Go:
    ts: int = ps.order()
    who: int


@visits.transaction
def come(e: Come):
    Visit.insert(e.who)


@visits.transaction
def go(e: Go):
    del Visit[e.who]


def test_an_app_without_tables_under_every_policy() -> None:
    with bare.open() as db:
        for policy in POLICIES:
            reference = bare.reference()
            for batch in QUESTIONS:
                got, wanted = db.run(batch, policy=policy).to_pylist(), reference.run(batch).to_pylist()
                assert [{**row, "version": 0} for row in got] == [{**row, "version": 0} for row in wanted], policy
        assert db.sql("select 1 as one").to_pylist() == [{"one": 1}]
        assert "bare" in db.explain()


def test_an_app_without_tables_can_be_warmed_and_explained() -> None:
    with bare.open() as db:
        db.warm()
        assert "4 events, 0 accesses" in db.explain(QUESTIONS[0])
        for policy in POLICIES:
            db.explain([], policy=policy)
        assert db.run(QUESTIONS[2]).column("y").to_pylist() == [11]


@pytest.mark.parametrize("log", ["changes", "input"])
def test_an_app_without_tables_is_durable(tmp_path: Path, log: str) -> None:
    with bare.open(tmp_path / "state", log=log, retain=10) as db:
        first = db.run(QUESTIONS[0], id=0)
    with bare.open(tmp_path / "state", log=log) as db:
        assert db.version == 1
        assert db.run(QUESTIONS[0], id=0).equals(first)
        assert db.run([Ask(ts=9, x=5, xs=[1])], watermark=1).num_rows == 0
        assert db.held == 1
        assert db.view(1).tables == {}


def test_one_row_and_events_that_touch_none_under_every_policy() -> None:
    batches: list[Any] = [
        [Bump(ts=1), Look(ts=1, x=1), Bump(ts=0), Look(ts=5, x=0)],
        [],
        [Look(ts=1, x=1)],
        [Bump(ts=9)],
    ]
    for policy in POLICIES:
        if policy.scheme != "none":
            check(shelf, load={Only: [{"id": 0}]}, batches=batches, policy=policy)
            check(shelf, batches=batches, policy=policy)  # none at all: every look for it aborts


def test_a_table_of_keys_alone_under_every_policy() -> None:
    batches: list[Any] = [
        [Come(ts=t, who=t % 2) for t in range(4)],
        [Go(ts=5, who=0), Come(ts=6, who=0), Go(ts=7, who=1)],
    ]
    for policy in POLICIES:
        if policy.scheme != "none":
            check(visits, batches=batches, policy=policy)


def _tables_alone() -> tuple[ps.App, Any]:
    app = ps.App("tables_alone")

    @app.table
    class Kept:
        id: int = ps.key()
        n: int = 0

    return app, Kept


def _events_alone() -> tuple[ps.App, Any]:
    app = ps.App("events_alone")

    @app.event
    class Heard:
        ts: int = ps.order()

    return app, Heard


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_an_empty_batch_of_an_app_without_transactions(policy: Policy) -> None:
    for app in (ps.App("nothing"), _tables_alone()[0], _events_alone()[0]):
        check(app, batches=[[], {}], policy=policy)


def test_an_app_without_transactions_loads_and_reads(tmp_path: Path) -> None:
    app, kept = _tables_alone()
    with app.open(tmp_path / "state") as db:
        db.load(kept, [{"id": 1}, {"id": 2, "n": 3}])
        db.warm()
        assert db.run([]).num_rows == 0
        db.explain([])
    with app.open(tmp_path / "state") as db:
        assert db.version == 1
        assert db.table(kept).num_rows == 2


def test_an_event_without_a_transaction_is_refused_at_the_door() -> None:
    app, heard = _events_alone()
    with app.open() as db:
        db.warm()
        for policy in POLICIES:
            with pytest.raises(ps.InputError, match="Heard"):
                db.run([heard(ts=1)], policy=policy)
        assert db.run([]).num_rows == 0


idle = ps.App("idle")


@idle.event
class Nothing:
    ts: int = ps.order()
    x: float
    xs: list[int]


@idle.transaction
def nothing(e: Nothing):
    y = e.x
    for _ in e.xs:
        y = y  # leaves a turn with nothing to do


def test_a_loop_with_nothing_to_do() -> None:
    batch = [Nothing(ts=1, x=1.0, xs=[1, 2]), Nothing(ts=2, x=None, xs=[]), Nothing(ts=3, x=1.0, xs=None)]
    for policy in POLICIES:
        check(idle, batches=[batch], policy=policy)
