"""Workloads: what the generators promise, and the hand-written loop against plain dicts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from penstock.workloads import WORKLOADS, bind, hand_written
from penstock.workloads import streaming_ledger as sl
from penstock.workloads.common import decimals, draw, draw_other

EVENTS = 4_000
MODES = [(name, keys) for name, w in WORKLOADS.items() for keys in w.keys]


def test_the_registry_has_the_short_names() -> None:
    assert list(WORKLOADS) == ["sl", "ob", "gs", "tp", "smallbank"]
    assert all(name == w.name for name, w in WORKLOADS.items())


@pytest.mark.parametrize(("name", "keys"), MODES)
def test_rows_and_events_have_the_declared_schema(name: str, keys: str) -> None:
    workload = WORKLOADS[name]
    app = workload.app(keys=keys)
    for made in (workload.tables(size=50, keys=keys), workload.batch(100, size=50, keys=keys)):
        for declared, rows in bind(app, made).items():
            schema = declared.definition.arrow()
            assert rows.column_names == schema.names
            assert [f.type for f in rows.schema] == [f.type for f in schema], declared


@pytest.mark.parametrize(("name", "keys"), MODES)
def test_a_batch_is_its_seed_and_first_ts(name: str, keys: str) -> None:
    batch = WORKLOADS[name].batch
    same = [batch(500, seed=3, first=1_000, size=50, keys=keys) for _ in range(2)]
    assert same[0] == same[1]
    assert batch(500, seed=4, first=1_000, size=50, keys=keys) != same[0]
    assert batch(500, seed=3, first=1_500, size=50, keys=keys) != same[0]


@pytest.mark.parametrize("name", WORKLOADS)
def test_ts_is_global_and_increases_in_each_type(name: str) -> None:
    made = WORKLOADS[name].batch(EVENTS, first=700)
    each = [rows["ts"].to_numpy() for rows in made.values()]
    assert all((np.diff(ts) > 0).all() for ts in each)
    assert sorted(np.concatenate(each)) == list(range(700, 700 + EVENTS))


def test_skew_grows_with_theta_and_hot_places_are_scattered() -> None:
    rng = np.random.default_rng(1)
    hottest = []
    for theta in (0.0, 0.6, 1.0):
        counts = np.bincount(draw(rng, 200_000, 1_000, theta), minlength=1_000)
        hottest.append(counts.max())
    assert hottest[0] < hottest[1] < hottest[2]
    # Under theta 1 over 1000 ranks, the first has the weight 1 / H(1000) = 0.1336.
    assert hottest[2] / 200_000 == pytest.approx(0.1336, abs=0.01)
    top = np.sort(np.argsort(counts)[-10:])
    assert np.diff(top).min() > 1 or np.diff(top).max() > 100


def test_partners_differ() -> None:
    rng = np.random.default_rng(2)
    places = draw(rng, 10_000, 5, 1.0)
    assert (draw_other(rng, places, 5, 1.0) != places).all()


def test_decimals_keep_sign_and_cents() -> None:
    cents = np.array([0, 1, -1, 10**17, -(10**17)], np.int64)
    assert [int(d.scaleb(2)) for d in decimals(cents).to_pylist()] == cents.tolist()


def by_dicts(tables: dict[str, pa.Table], batch: dict[str, pa.Table]) -> tuple[list[str | None], list[int], dict, dict]:
    money = dict(zip(*tables["Account"].to_pydict().values(), strict=True))
    stock = dict(zip(*tables["Asset"].to_pydict().values(), strict=True))
    events = sorted(
        [("d", e) for e in batch["Deposit"].to_pylist()] + [("t", e) for e in batch["Transfer"].to_pylist()],
        key=lambda pair: pair[1]["ts"],
    )
    reasons: list[str | None] = []
    left: list[int] = []
    for kind, e in events:
        owners, assets = (["account"], ["asset"]) if kind == "d" else (["src", "dst"], ["src_asset", "dst_asset"])
        reason = None
        if any(e[o] not in money for o in owners):
            reason = "missing Account"
        elif any(e[a] not in stock for a in assets):
            reason = "missing Asset"
        elif kind == "t" and money[e["src"]] < e["amount"]:
            reason = "not enough money"
        elif kind == "t" and stock[e["src_asset"]] < e["quantity"]:
            reason = "not enough assets"
        else:
            for sign, owner, asset in zip((1,) if kind == "d" else (-1, 1), owners, assets, strict=True):
                money[e[owner]] += sign * e["amount"]
                stock[e[asset]] += sign * e["quantity"]
        reasons.append(reason)
        left.append(0 if reason else money[e[owners[0]]])
    return reasons, left, money, stock


def test_the_hand_written_loop_equals_plain_dicts() -> None:
    # Few records and little money, and some that are not there, so that every reason occurs.
    tables = sl.tables(size=40)
    poor = pa.array(np.full(40, 60, np.int64))
    tables = {
        "Account": tables["Account"].set_column(1, "balance", poor).slice(1),
        "Asset": tables["Asset"].set_column(1, "quantity", poor).slice(1),
    }
    batch = sl.batch(EVENTS, size=40, abort_ratio=0.1)
    batch["Deposit"] = batch["Deposit"].slice(0, 300)

    state = hand_written.ledger(tables)
    merged = hand_written.merge(batch)
    status, balance = np.zeros(merged.kind.size, np.uint8), np.zeros(merged.kind.size, np.int64)
    committed = hand_written.run(state, merged, status, balance)

    reasons, left, money, stock = by_dicts(tables, batch)
    assert [hand_written.REASONS[s] for s in status] == reasons
    assert set(reasons) == set(hand_written.REASONS)
    assert balance.tolist() == left
    assert committed == reasons.count(None)
    assert state.balance.tolist() == list(money.values())
    assert state.quantity.tolist() == list(stock.values())


@pytest.mark.parametrize(("name", "keys"), MODES)
def test_the_engine_equals_the_reference(name: str, keys: str) -> None:
    workload = WORKLOADS[name]
    app = workload.app(keys=keys)
    with app.open() as db:
        reference = app.reference()
        for table, rows in bind(app, workload.tables(size=40, keys=keys)).items():
            db.load(table, rows)
            reference.load(table, rows)
        for first in (0, 400):
            events = bind(app, workload.batch(400, first=first, size=40, theta=0.9, abort_ratio=0.2, keys=keys))
            assert db.run(events).to_pylist() == reference.run(events).to_pylist()
        for table in app.program.tables:
            by_key = [(c.name, "ascending") for c in table.keys]
            assert db.table(table.name).sort_by(by_key) == reference.table(table.name).sort_by(by_key)
