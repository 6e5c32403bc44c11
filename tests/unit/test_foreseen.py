"""What `explain` and `why` say of a transaction's keys is what its schedule does."""

from typing import Any

import pytest

import penstock as ps
from penstock.plan.access import accesses
from penstock.plan.foresee import foresee
from penstock.schedule.policy import Policy
from penstock.testing import check
from penstock.workloads import WORKLOADS

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
    Account.get(e.src % 4).balance += 1


PLAN = app.explain()


def said(name: str) -> str:
    """What the plan's text says of one transaction."""
    return PLAN.split(f"transaction {name}(")[1].split("\ntransaction ")[0]


@pytest.mark.parametrize(
    ("name", "event", "key"),
    [
        ("guarded", Guarded(ts=1, src=1, dst=2), ""),
        ("followed", Followed(ts=1, src=1), "from state"),
        ("computed", Computed(ts=1, src=1), "computed from the event"),
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
    for policy in (Policy(threads=2), Policy.tstream(2), Policy.locking("lal", 2)):
        check(app, batches=[others], policy=policy)


def test_several_reasons_are_all_told() -> None:
    with app.open() as db:
        db.run([Followed(ts=1, src=1), Computed(ts=2, src=1)], policy=Policy.adaptive(2))
        assert db.last_batch is not None
        assert db.last_batch.why.startswith("2 of 2 events have a key computed from the event or from state, and")


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_transaction_is_foreseen_if_all_its_accesses_are(name: str) -> None:
    for transaction in WORKLOADS[name].app().plan.transactions:
        foreseen = all(access.foreseen for access in accesses(transaction.block))
        assert foreseen == (foresee(transaction) is not None)


def test_adaptive_is_not_said_to_build_no_graph() -> None:
    with app.open() as db:
        assert "no graph is built" in db.explain([], policy=Policy.serial())
        assert "when it runs" in db.explain([], policy=Policy.adaptive())
