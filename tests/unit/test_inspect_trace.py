"""A batch run again: what its steps are said to write makes of the version before the version that it made."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.errors import InputError, StateError
from penstock.inspect import again as rerun
from penstock.inspect.again import Again
from penstock.inspect.batches import Batches
from penstock.inspect.graph import graph
from penstock.inspect.places import at, find
from penstock.inspect.trace import again, trace
from penstock.workloads import bank as payments
from penstock.workloads import bind

shop = ps.App("shop")


@shop.table
class Item:
    id: str = ps.key()
    left: int = 0
    sold: int = 0


@shop.table(ttl=40)
class Cart:
    user: int = ps.key()
    size: int = 0


@shop.event
class Order:
    ts: int = ps.order()
    id: str = ps.id()
    user: int
    item: str
    count: int


@shop.event
class Restock:
    item: str
    count: int


@shop.event
class Remind:
    user: int


@shop.event
class Alert:
    item: str
    left: int


@shop.window(rows=3)
class Recent:
    user: int = ps.key()
    count: int


@shop.transaction
def order(e: Order):
    item = Item[e.item]
    if item.left < e.count:
        ps.emit(Restock(item=e.item, count=20))
        ps.emit(Alert(item=e.item, left=item.left))
        return {"taken": 0}
    recent = Recent[e.user]
    recent.add(count=e.count)
    if recent.count.sum() > 12:
        ps.abort("too much")
    item.left -= e.count
    item.sold += e.count
    cart = Cart.get(e.user)
    cart.size += e.count
    ps.emit(Remind(user=e.user), at=ps.now() + 7)
    return {"taken": e.count}


@shop.transaction
def restock(e: Restock):
    item = Item[e.item]
    item.left += e.count


@shop.transaction
def remind(e: Remind):
    cart = Cart.get(e.user)
    cart.size = 0


def orders(seed: int, number: int, count: int) -> list[Any]:
    draw = random.Random(f"{seed}/{number}")
    return [
        Order(ts=ts, id=f"o{ts}", user=draw.randrange(4), item=draw.choice("abcx"), count=draw.randint(1, 9))
        for ts in range(number * count, (number + 1) * count)
    ]


def tables(db: Any, version: int) -> dict[str, dict[tuple[Any, ...], dict[str, Any]]]:
    found = {}
    for table in db.program.tables:
        names = [c.name for c in table.keys]
        rows = db.table(table.name, version).to_pylist()
        found[table.name] = {
            tuple(row[n] for n in names): {k: v for k, v in row.items() if k not in names} for row in rows
        }
    return found


def after(before: dict[str, Any], steps: list[dict[str, Any]]) -> dict[str, Any]:
    """The tables, as these steps leave them; and what they read is what is there."""
    for step in steps:
        for record in step["records"]:
            table, key = before[record["table"]], tuple(record["key"])
            assert table.get(key) == record["before"], (step, record)
            if not record["writes"] or step["status"] != "committed":
                continue
            if record["after"] is None:
                table.pop(key, None)
            else:
                table[key] = record["after"]
    return before


@pytest.fixture(scope="module")
def bought(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("traced") / "shop"
    with shop.open(path, log="input") as db:
        db.load(Item, [{"id": name, "left": 10} for name in "abc"])
        for number in range(3):
            db.run(orders(5, number, 25))
        yield path, db


def test_every_step_reads_what_is_there_and_writes_what_comes(bought: Any) -> None:
    """Of an app that emits, with windows, timers and records that expire."""
    path, db = bought
    seen = set()
    for version in range(1, 4):
        before, batches, row = tables(db, version - 1), Batches(path), 0
        outcomes = db.outcomes(version)
        while row < outcomes.num_rows:
            told = trace(batches, at(batches, version, row))
            steps = again(shop.plan, path, version, row)["again"]
            assert [(s["transaction"], s["status"], s["reason"]) for s in steps] == [
                (r["transaction"], r["status"], r["reason"]) for r in told["round"]
            ]
            # A cart that has expired may be there still: what writes down that it is gone comes behind the batch.
            items = [{**s, "records": [r for r in s["records"] if r["table"] == "Item"]} for s in steps]
            after({"Item": before["Item"]}, items)
            seen |= {s["event"] for s in steps}
            row += len(told["round"])
        assert before["Item"] == tables(db, version)["Item"]
    assert seen == {"Order", "Restock", "Remind"}


def test_a_round_is_a_tree_and_what_went_out_is_told(bought: Any) -> None:
    path, db = bought
    batches = Batches(path)
    alerts = db.emitted("Alert", 2).to_pylist()
    assert alerts
    place = find(batches, alerts[0]["id"])
    assert place is not None and place.commit.version == 2
    told = trace(batches, place)
    assert told["emitted"] == [
        {"event": "Alert", "step": 0, "fields": {"item": alerts[0]["item"], "left": alerts[0]["left"]}}
    ]
    steps = again(shop.plan, path, 2, place.row)["again"]
    assert [(s["event"], s["parent"]) for s in steps] == [("Order", None), ("Restock", 0)]
    assert steps[0]["fields"]["id"] == alerts[0]["id"]


@pytest.fixture(scope="module")
def paid(tmp_path_factory: pytest.TempPathFactory) -> Any:
    app, path = payments.app(), tmp_path_factory.mktemp("traced") / "bank"
    with app.open(path, log="input") as db:
        db.load("Account", payments.opening())
        for number, events in enumerate((120, 3000)):
            db.run(bind(app, payments.payments(7, number, events)))
        yield app, path, db


def test_all_steps_of_a_batch_make_its_version(paid: Any) -> None:
    app, path, db = paid
    state = tables(db, 0)
    for row in range(120):
        state = after(state, again(app.plan, path, 1, row)["again"])
    assert state == tables(db, 1)


def test_far_into_a_batch_the_prefix_runs_natively(paid: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    app, path, _ = paid
    row = 2900
    near = again(app.plan, path, 2, row)
    monkeypatch.setattr(rerun, "NEAR", 10_000)
    assert again(app.plan, path, 2, row) == near


def test_who_waits_for_whom(paid: Any) -> None:
    app, path, db = paid
    found = graph(app.plan, path, 1)
    assert found["rounds"] == 120 and found["whole"] and sum(found["strata"]) == 120 and not found["nodes"]
    # By hand: after the last committed one before it that shares a record that one of them writes.
    depth, writer = [], {}
    outcomes = db.outcomes(1).to_pylist()
    for row in range(120):
        (step,) = again(app.plan, path, 1, row)["again"]
        keys = [record["key"][0] for record in step["records"]]
        depth.append(max((depth[writer[key]] + 1 for key in keys if key in writer), default=0))
        if outcomes[row]["status"] == "committed":
            writer |= dict.fromkeys((r["key"][0] for r in step["records"] if r["writes"]), row)
    assert found["strata"] == [depth.count(level) for level in range(max(depth) + 1)]


def test_calls_run_again_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    app, path = payments.app(), tmp_path / "bank"
    (transfer,) = [event for event in app.program.events if event.name == "Transfer"]
    with app.open(path, log="input") as db:
        db.load("Account", payments.opening())
        for number in range(4):
            db.call(dict_of(app, transfer.name, number))
        for version in range(1, 5):
            assert after(tables(db, version - 1), again(app.plan, path, version, 0)["again"]) == tables(db, version)


def dict_of(app: Any, event: str, number: int) -> Any:
    handle = app._handles[event]
    return handle(ts=10 - number, id=f"c{number}", src="acc000", dst=f"acc00{number}", amount=Decimal("30.00"))


def test_what_cannot_be_run_again_says_why(tmp_path: Path, paid: Any) -> None:
    app, path, _ = paid
    kept = tmp_path / "bank"
    with app.open(kept) as db:
        db.load("Account", payments.opening())
        db.run(bind(app, payments.payments(7, 0, 5)))
    with pytest.raises(InputError, match=r'keeps no events to be run again.*log="input"'):
        Again(app.plan, kept, 1)
    with pytest.raises(InputError, match="is the state of app 'bank', not of 'shop'"):
        Again(shop.plan, path, 1)
    assert find(Batches(kept), "nobody") is None
    with pytest.raises(InputError, match="version 1 has 5 outcomes; there is no row 5"):
        at(Batches(kept), 1, 5)
    with pytest.raises(StateError, match="has no batch of version 9"):
        at(Batches(kept), 9, 0)
