"""Native equals reference: windows of every kind, with watermarks, reopened, and beside what runs under a policy."""

import random
from pathlib import Path

import pytest
from windows_of_every_kind import desk, trades

from penstock import Policy
from penstock.testing import assert_same_outcomes, assert_same_tables, check


@pytest.mark.parametrize("seed", range(3))
def test_every_kind_of_window_is_as_the_law_has_it(seed: int) -> None:
    rng = random.Random(seed)
    batches = [trades(rng, 60 * k, 40 * k, 40) for k in range(3)]
    rows = [row for out in check(desk, batches=batches, watermark=(None, 0, 9)[seed]) for row in out.to_pylist()]
    assert {"committed", "aborted"} <= {row["status"] for row in rows}


@pytest.mark.parametrize("log", ["changes", "input"])
def test_half_filled_windows_outlive_the_process(log: str, tmp_path: Path) -> None:
    rng, reference, path = random.Random(7), desk.reference(), tmp_path / "state"
    for k in range(5):
        batch = trades(rng, 60 * k, 30 * k, 30)
        wanted = reference.run(batch, watermark=5)
        with desk.open(path, log=log, snapshot_every=2, background=False) as db:
            assert_same_outcomes(db.run(batch, watermark=5), wanted)
    with desk.open(path, log=log) as db:
        assert_same_outcomes(db.run([], flush=True), reference.run([], flush=True))
        for table in desk.program.tables:
            keys = [c.name for c in table.keys]
            assert_same_tables(db.table(table.name), reference.table(table.name), keys)
            assert db.table(table.name, version=5) is not None  # an older version is made of the same files


def test_under_a_policy_what_touches_a_window_runs_alone() -> None:
    rng = random.Random(11)
    with desk.open() as db, desk.reference() as reference:
        batch = trades(rng, 0, 0, 30)
        assert_same_outcomes(db.run(batch), reference.run(batch))
        assert "of a window" in db.last_batch.why
        assert "of a window" in db.explain(batch[:2], Policy(threads=2))
        batch = trades(rng, 60, 30, 30)
        assert_same_outcomes(db.run(batch, policy=Policy(threads=2)), reference.run(batch))
