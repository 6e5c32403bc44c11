"""Figures 6 and 7: a chain of transactions that cause each other, next to a client that calls each step itself.

S-Store's client has to wait for a step before it asks for the next, or their order is lost: about ten times slower at
any length. Ours does the same: one call a step, in this process or through the socket of another.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchmarks.flow.steps import KEYS, chain, starts

BATCH = 100_000
REPEAT = 5


@dataclass(frozen=True, slots=True)
class Point:
    steps: int
    arm: str
    chains_per_s: float
    ns_per_step: float


def figure(lengths: tuple[int, ...] = (1, 2, 4, 7, 10), *, quick: bool = False) -> dict[str, Any]:
    batch, calls = (2_000, 50) if quick else (BATCH, 2_000)
    points = []
    print(f"{'steps':>5} {'emits':>12} {'nested':>12} {'calls':>12} {'calls, socket':>14}   chains a second")
    for length in lengths:
        rates = {
            "emits": _emits(length, batch, nested=False),
            "nested": _emits(length, batch, nested=True),
            "calls": _calls(length, calls, socket=False),
            "calls, socket": _calls(length, calls // 10, socket=True),
        }
        points += [Point(length, arm, rate, 1e9 / rate / (length + 1)) for arm, rate in rates.items()]
        print(f"{length:5} " + " ".join(f"{rate:12,.0f}" for rate in rates.values()))
        print(f"{'':5} " + " ".join(f"{rate / rates['calls']:11.1f}x" for rate in rates.values()))
    return {"batch": batch, "durability": "in memory", "points": [asdict(point) for point in points]}


def _emits(length: int, batch: int, *, nested: bool) -> float:
    """Whole batches, from Arrow to outcomes; the median of some."""
    app, events = chain(length, nested=nested)
    seconds = []
    with app.open() as db:
        for number in range(REPEAT + 1):
            given = {events[0]: starts(batch, number * batch)}
            begun = time.perf_counter()
            db.run(given)
            seconds.append(time.perf_counter() - begun)
        _hold_against_python(db, length, batch * (REPEAT + 1), [starts(batch, n * batch) for n in range(REPEAT + 1)])
    return batch / statistics.median(seconds[1:])


def _calls(length: int, count: int, *, socket: bool) -> float:
    """One call after the other: each waits for its answer."""
    app, events = chain(length, driven=True)
    given = starts(count)
    keys = given["key"].to_pylist()
    with tempfile.TemporaryDirectory(prefix="penstock-flow-") as home:
        db = app.open(home, calls=True) if socket else app.open()
        caller = app.connect(home) if socket else db
        try:
            caller.call(events[0](ts=0, key=0))
            begun = time.perf_counter()
            for ts, key in enumerate(keys):
                caller.call(events[0](ts=ts, key=key))
                for event in events[1:]:
                    caller.call(event(key=key))
            return count / (time.perf_counter() - begun)
        finally:
            if socket:
                caller.close()
            db.close()


def _hold_against_python(db: Any, length: int, count: int, given: list[Any]) -> None:
    wanted = np.bincount(np.concatenate([one["key"].to_numpy() for one in given]), minlength=KEYS)
    for k in range(length + 1):
        rows = db.table(f"Seen{k}")
        found = np.zeros(KEYS, np.int64)
        found[rows["key"].to_numpy()] = rows["times"].to_numpy()
        assert found.sum() == count and (found == wanted).all(), f"step {k} has run other than a plain loop says"
