"""Two databases over the same records: one runs serially, the other as a test asks; both must come out the same."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from penstock.schedule.policy import Policy
from penstock.state.table import FREE, ROWS, USED, TableState
from penstock.workloads import WORKLOADS, bind


@contextmanager
def pair(name: str) -> Iterator[tuple[Any, Any, Any]]:
    """An app and two databases with the same 20 records a table."""
    workload = WORKLOADS[name]
    app = workload.app()
    with app.open() as serial, app.open() as db:
        for table, rows in bind(app, workload.tables(size=20)).items():
            serial.load(table, rows, check=False)
            db.load(table, rows, check=False)
        yield app, serial, db


def batch(app: Any, name: str, events: int, seed: int, *, theta: float = 0.99, abort_ratio: float) -> Any:
    made = WORKLOADS[name].batch(events, seed=seed, first=seed * 10_000, size=20, theta=theta, abort_ratio=abort_ratio)
    return bind(app, made)


def same(serial: Any, db: Any, batch: Any, policy: Policy) -> None:
    wanted, got = serial.run(batch, policy=Policy.serial()), db.run(batch, policy=policy)
    assert got.equals(wanted), policy
    assert db.last_batch.changes == serial.last_batch.changes, policy
    assert db.last_batch.aborted == serial.last_batch.aborted, policy
    same_tables(serial, db)


def same_tables(serial: Any, db: Any) -> None:
    for table in serial.program.tables:
        by_key = [(c.name, "ascending") for c in table.keys]
        wanted, got = (side.table(table.name).sort_by(by_key) for side in (serial, db))
        assert got.equals(wanted), table.name


def sound(table: TableState) -> None:
    """Between batches: every live record is found by its key, and every other row is free, once."""
    live = table.live_rows()
    assert np.array_equal(table.rows_of(np.ascontiguousarray(table.stored[:, live])), live)
    free = table.free[: table.meta[FREE]]
    assert np.array_equal(np.sort(np.concatenate([live, free])), np.arange(table.meta[ROWS]))
    assert table.meta[USED] == live.size == np.count_nonzero(table.slots[1::2] != -1)
    assert not table.flags[free].any()
