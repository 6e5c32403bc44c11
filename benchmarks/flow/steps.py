"""Chains of transactions, of any length: step k writes a record of its own table and causes step k + 1."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps

KEYS = 10_000


def chain(length: int, *, nested: bool = False, driven: bool = False) -> tuple[ps.App, list[Any]]:
    """An app whose event Start causes `length` steps one after the other, and their events; nested: as one group.
    driven: nothing is emitted, a client calls each step."""
    app = ps.App(f"chain{length}")

    @app.event
    class Start:
        ts: int = ps.order()
        key: int

    events = [Start]
    tables = [_table(app, k) for k in range(length + 1)]
    for k in range(1, length + 1):
        events.append(_event(app, k))
    for k, (table, event) in enumerate(zip(tables, events, strict=True)):
        following = events[k + 1] if k < length and not driven else None
        _transaction(app, k, table, event, following, nested=nested and k > 0)
    return app, events


def _table(app: ps.App, k: int) -> Any:
    class Seen:
        key: int = ps.key()
        times: int = 0

    Seen.__name__ = Seen.__qualname__ = f"Seen{k}"
    return app.table(Seen)


def _event(app: ps.App, k: int) -> Any:
    class Step:
        key: int

    Step.__name__ = Step.__qualname__ = f"Step{k}"
    return app.event(Step)


def _transaction(app: ps.App, k: int, table: Any, event: Any, following: Any, *, nested: bool) -> None:
    if following is None:

        def step(e: event):
            table.get(e.key).times += 1

    else:

        def step(e: event):
            table.get(e.key).times += 1
            ps.emit(following(key=e.key))

    step.__name__ = step.__qualname__ = f"step{k}"
    app.transaction(nested=True)(step) if nested else app.transaction(step)


def starts(count: int, first: int = 0, seed: int = 1) -> pa.Table:
    rng = np.random.default_rng((seed, first))
    return pa.table({"ts": np.arange(first, first + count), "key": rng.integers(0, KEYS, count)})


def seen(db: Any, length: int) -> list[Any]:
    """How often each step has run for each key."""
    out = []
    for k in range(length + 1):
        rows, times = db.table(f"Seen{k}"), np.zeros(KEYS, np.int64)
        times[rows["key"].to_numpy()] = rows["times"].to_numpy()
        out.append(times)
    return out


def hold_against_python(found: list[Any], given: Iterable[pa.Table]) -> None:
    wanted = np.bincount(np.concatenate([one["key"].to_numpy() for one in given]), minlength=KEYS)
    for k, times in enumerate(found):
        assert (times == wanted).all(), f"step {k} has run other than a plain loop says"
