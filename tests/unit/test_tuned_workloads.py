"""Tuned workloads: the law holds whatever the knobs say, and each knob does what it says."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import penstock as ps
from penstock import testing
from penstock.execute.codegen.generate import generate
from penstock.plan.access import accesses
from penstock.workloads import (
    PHASES,
    TSTREAM,
    TUNED,
    BankTransfers,
    GrepSum,
    Knobs,
    OnlineBidding,
    StreamingLedger,
    TollProcessing,
    TwoGroups,
    bind,
    four_phases,
    ns_per_round,
    rounds_for,
    spin,
    two_groups,
)
from penstock.workloads.common import KEY_OFFSET, KEY_STEP, _zipf, draw

FREE: dict[str, Any] = {"cost_us": 0.0}
SMALL: dict[str, Any] = {"keys": 12, "batch": 120, "theta": 0.9, "abort_ratio": 0.3, "cost_us": 0.02}

# One app each: settings that share it are run one after the other on the same tables.
SETTINGS: dict[str, list[Knobs]] = {
    "ledger": [
        StreamingLedger(**SMALL),
        StreamingLedger(**SMALL | {"theta": 0.0, "partitions": 3, "multi_partition": 0.5}, transfer_ratio=0.9),
        StreamingLedger(**SMALL | {"abort_ratio": 0.9}, transfer_ratio=0.0),
    ],
    "ledger with lists": [
        StreamingLedger(**SMALL, length=6),
        StreamingLedger(**SMALL, length=2, accesses=5),
        StreamingLedger(**SMALL, length=4, accesses=3, partitions=4),
    ],
    "bidding": [
        OnlineBidding(**SMALL, length=5),
        OnlineBidding(**SMALL, length=1, accesses=4, bids=1, alters=1, tops=0),
        OnlineBidding(**SMALL, length=20, cost_spread=0.5),
    ],
    "grep and sum": [
        GrepSum(**SMALL),
        GrepSum(**SMALL, length=4, accesses=1, read_ratio=0.5),
        GrepSum(**SMALL, length=3, accesses=5, multi_access=0.5),
        GrepSum(**SMALL, length=2, accesses=3, cyclic=False, partitions=2),
    ],
    "tolls": [TollProcessing(**SMALL), TollProcessing(**SMALL | {"theta": 0.0}, entering=1.0)],
    "tolls with lists": [TollProcessing(**SMALL, length=6), TollProcessing(**SMALL, accesses=4)],
    "transfers": [BankTransfers(**SMALL), BankTransfers(**SMALL | {"partitions": 12})],
}
ALL = [knobs for settings in SETTINGS.values() for knobs in settings]


def outcomes(knobs: Knobs) -> pa.Table:
    app = knobs.app()
    with app.open() as db:
        for table, rows in bind(app, knobs.tables()).items():
            db.load(table, rows)
        return db.run(bind(app, knobs.events(seed=1)))


def places(keys: pa.ChunkedArray) -> np.ndarray:
    flat = keys.combine_chunks()
    flat = flat.flatten() if pa.types.is_list(flat.type) else flat
    return (flat.to_numpy() - KEY_OFFSET) // KEY_STEP


@pytest.mark.parametrize("name", SETTINGS)
def test_the_engine_equals_the_reference(name: str) -> None:
    settings = SETTINGS[name]
    app = settings[0].app()
    batches = [bind(app, knobs.events(i, seed=5)) for i, knobs in enumerate(settings)]
    for made in testing.check(app, load=bind(app, settings[0].tables()), batches=batches):
        assert set(made["status"].to_pylist()) == {"committed", "aborted"}


@pytest.mark.parametrize("name", SETTINGS)
def test_all_accesses_are_known_before_a_batch_runs(name: str) -> None:
    for transaction in SETTINGS[name][0].app().plan.transactions:
        found = accesses(transaction.block)
        assert found
        assert all(access.foreseen for access in found), transaction.name


@pytest.mark.parametrize("knobs", ALL, ids=lambda k: k.name)
def test_rows_and_events_have_the_declared_schema(knobs: Knobs) -> None:
    app = knobs.app()
    for made in (knobs.tables(), knobs.events()):
        for declared, rows in bind(app, made).items():
            schema = declared.definition.arrow()
            assert rows.column_names == schema.names
            assert [f.type for f in rows.schema] == [f.type for f in schema], declared


@pytest.mark.parametrize("knobs", ALL, ids=lambda k: k.name)
def test_a_batch_is_its_knobs_seed_and_number(knobs: Knobs) -> None:
    first, second = knobs.batches(seed=3, count=2)
    assert first == knobs.events(0, seed=3)
    assert second == knobs.events(1, seed=3)
    assert second != knobs.events(1, seed=4)
    ts = np.sort(np.concatenate([rows["ts"].to_numpy() for rows in second.values()]))
    assert ts.tolist() == list(range(knobs.batch, 2 * knobs.batch))


@pytest.mark.parametrize("ratio", [0.0, 0.01, 0.3, 0.9])
@pytest.mark.parametrize("name", TUNED)
def test_as_many_abort_as_asked(name: str, ratio: float) -> None:
    knobs = TUNED[name](batch=4_000, keys=500, theta=1.0, abort_ratio=ratio, **FREE)
    aborted = pc.sum(pc.equal(outcomes(knobs)["status"], "aborted")).as_py()
    # Four standard deviations of a binomial.
    assert aborted / 4_000 == pytest.approx(ratio, abs=4 * np.sqrt(ratio * (1 - ratio) / 4_000))


def test_reads_leave_all_aborts_to_the_writes() -> None:
    knobs = GrepSum(batch=4_000, read_ratio=0.6, abort_ratio=0.3, **FREE)
    assert pc.sum(pc.equal(outcomes(knobs)["status"], "aborted")).as_py() / 4_000 == pytest.approx(0.3, abs=0.03)
    with pytest.raises(ps.InputError, match=r"abort_ratio is at most the share of writes, 0\.4"):
        replace(knobs, abort_ratio=0.5)


@pytest.mark.parametrize("theta", [0.0, 0.2, 0.6, 1.0])
@pytest.mark.parametrize(("name", "event", "field"), [
    ("sl", "Transfer", "src"), ("ob", "Bid", "item"), ("gs", "Write", "keys"), ("tp", "Report", "segment"),
])  # fmt: skip
def test_records_are_skewed_as_asked(name: str, event: str, field: str, theta: float) -> None:
    made = TUNED[name](batch=40_000, keys=100, theta=theta, **FREE).events()
    drawn = places(made[event][field])
    by_rank = _zipf(100, theta).place
    shares = np.bincount(drawn, minlength=100)[by_rank] / drawn.size
    weights = np.arange(1, 101) ** -theta
    assert shares[0] == pytest.approx(weights[0] / weights.sum(), rel=0.25)
    assert shares[:10].sum() == pytest.approx(weights[:10].sum() / weights.sum(), rel=0.1)
    assert shares[50:].sum() == pytest.approx(weights[50:].sum() / weights.sum(), rel=0.1)


@pytest.mark.parametrize("theta", [0.2, 1.0, 1.5])
@pytest.mark.parametrize("size", [1, 2, 7, 1_000])
def test_the_guide_of_zipf_changes_no_draw(size: int, theta: float) -> None:
    zipf = _zipf(size, theta)
    wanted = np.searchsorted(zipf.cumulated, np.random.default_rng(5).random((2_000, 3)), side="right")
    assert (draw(np.random.default_rng(5), (2_000, 3), size, theta) == zipf.place[wanted]).all()


def test_length_and_accesses_are_the_records_of_a_transaction() -> None:
    write = GrepSum(batch=1_000, length=7, accesses=4, multi_access=0.3, **FREE).events()["Write"]
    assert set(pc.list_value_length(write["keys"]).to_pylist()) == {7}
    sources = pc.list_value_length(write["sources"]).to_numpy()
    assert set(sources) == {0, 3}
    assert (sources == 3).mean() == pytest.approx(0.3, abs=0.06)
    transfer = StreamingLedger(batch=100, length=6, accesses=5, **FREE).events()["Transfer"]
    assert {pc.list_value_length(transfer[f])[0].as_py() for f in ("srcs", "dsts", "src_assets", "dst_assets")} == {3}
    assert pc.list_value_length(transfer["guarantors"])[0].as_py() == 3


def test_without_cycles_sources_lie_below_what_is_written() -> None:
    write = GrepSum(batch=1_000, length=3, accesses=4, cyclic=False, theta=1.0, **FREE).events()["Write"]
    highest = places(write["sources"]).reshape(1_000, 3).max(axis=1)
    assert (highest <= places(write["keys"]).reshape(1_000, 3).min(axis=1)).all()


def test_shares_of_the_types() -> None:
    made = OnlineBidding(batch=8_000, bids=1, alters=2, tops=1, **FREE).events()
    assert made["Alter"].num_rows / 8_000 == pytest.approx(0.5, abs=0.03)
    assert StreamingLedger(transfer_ratio=1.0, **FREE).events()["Deposit"].num_rows == 0
    assert GrepSum(batch=8_000, read_ratio=0.25, **FREE).events()["Read"].num_rows / 8_000 == pytest.approx(
        0.25, abs=0.03
    )


def test_partitions_are_crossed_as_often_as_asked() -> None:
    knobs = StreamingLedger(batch=4_000, keys=1_000, partitions=8, multi_partition=0.25, span=3, **FREE)
    transfer = knobs.events()["Transfer"]
    parts = np.stack([places(transfer[f]) % 8 for f in ("src", "dst", "src_asset", "dst_asset")], axis=1)
    touched = np.array([len(set(row)) for row in parts.tolist()])
    assert set(touched) == {1, 3}
    assert (touched == 3).mean() == pytest.approx(0.25, abs=0.04)
    # The keys tell the partitions apart as well as the places do.
    assert len({(p, k % 8) for p, k in zip(parts[:, 0], transfer["src"].to_pylist(), strict=True)}) == 8


@pytest.mark.parametrize("partitions", [1, 4, 40])
def test_nobody_pays_himself(partitions: int) -> None:
    transfer = BankTransfers(keys=40, theta=1.0, partitions=partitions, **FREE).events()["Transfer"]
    assert not pc.any(pc.equal(transfer["src"], transfer["dst"])).as_py()


def test_spin_adds_nothing_and_runs_every_round() -> None:
    assert [spin.compiled(x, r) for x in (0, 1, -1, 10**15) for r in (0, 1, 1_000)] == [0] * 12
    assert rounds_for(0) == 0
    assert rounds_for(10) == pytest.approx(10_000 / ns_per_round(), abs=1)
    # LLVM has not seen that nothing comes of it: a loop that was dropped would have no shift left.
    (machine_code,) = spin.compiled.inspect_llvm().values()
    assert re.search(r"shl i64 %\S+, 13\b", machine_code)


@pytest.mark.parametrize(("name", "operations"), [("sl", 6), ("ob", 3), ("gs", 2), ("tp", 2), ("transfers", 2)])
def test_a_kernel_pays_for_every_operation(name: str, operations: int) -> None:
    """Each that the bodies spell out has a call of its own, on a value of its own: none is shared or dropped."""
    source, _ = generate(TUNED[name]().app().plan)
    calls = re.findall(r"= udf_spin\((\w+), \w+\)", source)
    assert len(calls) == len(set(calls)) == operations


def test_costs_spread_about_their_mean() -> None:
    rounds = BankTransfers(cost_us=10.0, cost_spread=0.5).events()["Transfer"]["rounds"].to_numpy()
    mean = rounds_for(10.0)
    assert rounds.mean() == pytest.approx(mean, rel=0.05)
    assert mean * 0.49 <= rounds.min() < mean * 0.6 and mean * 1.4 < rounds.max() <= mean * 1.51


@pytest.mark.parametrize(("kind", "wrong", "message"), [
    (StreamingLedger, {"length": 3}, "Streaming Ledger: length is an even number, not 3"),
    (StreamingLedger, {"accesses": 1}, "accesses is at least 2, not 1"),
    (GrepSum, {"theta": -0.1}, "Grep and Sum: theta is at least 0, not -0.1"),
    (TollProcessing, {"entering": 1.5}, "entering is from 0 to 1, not 1.5"),
    (BankTransfers, {"keys": 3, "partitions": 4}, "partitions is at most the keys, 3, not 4"),
    (OnlineBidding, {"bids": 0, "alters": 0, "tops": 0}, "bids is above 0 where there are no alters and tops"),
])  # fmt: skip
def test_knobs_that_cannot_be_are_refused(kind: type[Knobs], wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ps.InputError, match=message):
        kind(**wrong)


def test_the_settings_of_tstream() -> None:
    assert {name: type(knobs) for name, knobs in TSTREAM.items()} == {n: TUNED[n] for n in ("gs", "sl", "ob", "tp")}


def test_four_phases_move_one_knob_each() -> None:
    base = StreamingLedger(batch=200, keys=50, **FREE)
    steps = list(four_phases(base, each=4, seed=2))
    assert [s.number for s in steps] == list(range(16))
    assert [s.phase for s in steps[::4]] == [p.name for p in PHASES] == ["deposits", "skew", "transfers", "aborts"]
    assert [s.knobs.theta for s in steps[4:8]] == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert [s.knobs.transfer_ratio for s in steps[8:12]] == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert [s.knobs.abort_ratio for s in steps[12:]] == pytest.approx([0, 0.3, 0.6, 0.9])
    # What has moved stays where it is.
    assert {s.knobs.theta for s in steps[8:]} == {s.knobs.transfer_ratio for s in steps[12:]} == {1.0}
    assert not any(s.knobs.abort_ratio for s in steps[:12])
    assert not any(s.knobs.transfer_ratio for s in steps[:8])
    app = base.app()
    made = testing.check(app, load=bind(app, base.tables()), batches=[bind(app, s.events) for s in steps])
    assert all(set(m["status"].to_pylist()) == {"committed"} for m in made[:13])
    assert made[-1]["status"].to_pylist().count("aborted") / 200 == pytest.approx(0.9, abs=0.1)


def test_two_groups_share_no_segment() -> None:
    groups = two_groups(TollProcessing(keys=100, batch=6_000, **FREE))
    made = groups.events(1, seed=4)
    again = groups.events(1, seed=4)
    assert made.events == again.events and (made.group == again.group).all()
    report, group = made.events["Report"], made.group
    assert report["ts"].to_pylist() == list(range(6_000, 12_000))
    assert (group == 1).sum() == (group == 2).sum() == 3_000
    segment = places(report["segment"])
    assert segment[group == 1].max() < 50 <= segment[group == 2].min()
    hottest = [np.bincount(segment[group == g]).max() / 3_000 for g in (1, 2)]
    assert hottest[0] == pytest.approx(1 / (1 / np.arange(1, 51)).sum(), abs=0.03) and hottest[1] < 0.04

    app = groups.app()
    with app.open() as db:
        for table, rows in bind(app, groups.tables()).items():
            db.load(table, rows)
        aborted = np.array([s == "aborted" for s in db.run(bind(app, made.events))["status"].to_pylist()])
    assert aborted[group == 1].mean() == pytest.approx(0.5, abs=0.05) and aborted[group == 2].mean() < 0.01


def test_two_groups_need_one_app() -> None:
    with pytest.raises(ps.InputError, match="they run in one app"):
        TwoGroups(one=TollProcessing(length=4), two=TollProcessing())
