"""Windows: a payment is added and the window summed, next to tables that are kept by hand, and to SQL.

Each arm first takes the payments that fill the window, and is measured on those that follow.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import pyarrow as pa

from benchmarks.flow.payments import (
    ROWS,
    SPAN,
    SQL_ROWS,
    SQL_TIME,
    by_rows,
    by_time,
    payments,
    rows_of,
    sums_by_rows,
    sums_by_time,
)
from benchmarks.flow.places import CannotRun, postgres, workplace
from penstock import App

BATCH, REPEAT = 100_000, 5
SLIDES, CARDS = (1, 10, 100), (1_000, 10_000, 100_000)
ARMS = WINDOW, HAND, SQL = "window", "by hand", "PostgreSQL"


def experiment(*, quick: bool = False) -> dict[str, Any]:
    batch, few = (2_000, 500) if quick else (BATCH, 5_000)
    slides, cards = ((1, 10), (100_000,)) if quick else (SLIDES, CARDS)
    points = [_point(f"rows={ROWS}, slide={s}", 10_000, batch, few, slide=s) for s in slides]
    points += [_point(f"10 minutes, {n:,} keys", n, batch, few) for n in cards]
    durability = "in memory; PostgreSQL: a transaction of 1,000 payments, synchronous_commit = off"
    return {"batch": batch, "durability": durability, "points": points}


def _point(name: str, cards: int, batch: int, few: int, slide: int | None = None) -> dict[str, Any]:
    """Payments a second of all arms, and whether each sum that they gave is that of a plain loop."""
    before = payments(ROWS * 10 if slide else SPAN, 0, cards)
    measured = payments(batch * (REPEAT + 1), before.num_rows, cards)
    given = rows_of(pa.concat_tables([before, measured]))
    wanted = (sums_by_rows(given, slide) if slide else sums_by_time(given))[before.num_rows :]
    rates: dict[str, float | None] = {}
    for arm, hand in ((WINDOW, False), (HAND, True)):
        app = by_rows(slide, hand=hand) if slide else by_time(cards, hand=hand)
        rates[arm], found = _penstock(app, before, measured, batch)
        assert found == wanted, f"{name}, {arm}: a sum differs from the plain loop's"
    note = ""
    try:
        rates[SQL], found = _sql(SQL_ROWS.replace("{slide}", str(slide)) if slide else SQL_TIME, before, measured, few)
        assert found == wanted[: len(found)], f"{name}, SQL: a sum differs from the plain loop's"
    except CannotRun as error:
        rates[SQL], note = None, str(error)
    shown = "".join(f"  {arm} {rate:11,.0f}" for arm, rate in rates.items() if rate)
    ours = rates[WINDOW] or 0.0
    ratios = {arm: ours / rate for arm, rate in rates.items() if rate and arm != WINDOW}
    print(f"{name:24} {shown}   " + ", ".join(f"{r:.1f}x {arm}" for arm, r in ratios.items()) + note)
    return {"what": name, "per_s": rates, "ratios": ratios, "note": note}


def _penstock(app: App, before: pa.Table, measured: pa.Table, batch: int) -> tuple[float, list[int]]:
    """Whole batches, from Arrow to outcomes; the median, without the first."""
    event, found, seconds = "Payment", [], []
    with app.open() as db:
        db.run({event: before})
        for first in range(0, measured.num_rows, batch):
            given = {event: measured.slice(first, batch)}
            begun = time.perf_counter()
            out = db.run(given)
            seconds.append(time.perf_counter() - begun)
            found += out["spent"].to_pylist()
    return batch / statistics.median(seconds[1:]), found


def _sql(schema: str, before: pa.Table, measured: pa.Table, count: int) -> tuple[float, list[int]]:
    """A function a payment, a statement and a transaction of a thousand of them."""
    found: list[int] = []
    statement = (
        "select pay(c, t, a) from (select * from unnest(%s::int[], %s::bigint[], %s::bigint[])"
        " with ordinality as given (c, t, a, k) order by k) as given"
    )
    with workplace() as work, postgres(work) as connection:
        connection.execute(schema)
        _fill(connection, before, by_rows=schema is not SQL_TIME)
        begun = time.perf_counter()
        for first in range(0, count, 1_000):
            rows = measured.slice(first, min(1_000, count - first))
            columns = [rows[name].to_pylist() for name in ("card", "ts", "amount")]
            found += [spent for (spent,) in connection.execute(statement, columns).fetchall()]
        return count / (time.perf_counter() - begun), found


def _fill(connection: Any, before: pa.Table, *, by_rows: bool) -> None:
    columns = {name: before[name].to_pylist() for name in ("card", "ts", "amount")}
    if by_rows:
        made = "insert into payment select t + 1, a from unnest(%s::bigint[], %s::bigint[]) as given (t, a)"
        connection.execute(made, [columns["ts"][-ROWS:], columns["amount"][-ROWS:]])
    else:
        made = "insert into payment select * from unnest(%s::int[], %s::bigint[], %s::bigint[])"
        connection.execute(made, list(columns.values()))
    connection.execute("vacuum analyze payment")
