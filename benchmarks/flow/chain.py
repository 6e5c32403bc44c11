"""Figure 7: a chain of transactions that cause each other, next to a client that calls each step itself.

S-Store's client has to wait for a step before it asks for the next, or their order is lost: about ten times slower at
any length. Ours does the same: one call a step, in this process or through the socket of another.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from typing import Any

from benchmarks.flow.steps import chain, hold_against_python, seen, starts
from penstock import Policy

BATCH = 100_000
REPEAT = 5
LENGTHS = (1, 2, 4, 7, 10)


def figure(*, quick: bool = False) -> dict[str, Any]:
    lengths, batch, calls = ((1, 3), 2_000, 50) if quick else (LENGTHS, BATCH, 1_000)
    points = []
    print(f"{'steps':>5} {'emits':>12} {'calls':>12} {'calls, socket':>14}   chains a second")
    for length in lengths:
        rates = {
            "emits": in_batches(length, batch),
            "calls": by_calls(length, calls),
            "calls, socket": by_calls(length, calls // 5, socket=True),
        }
        points += [
            {"steps": length, "arm": arm, "per_s": rate, "ns_per_step": 1e9 / rate / (length + 1)}
            for arm, rate in rates.items()
        ]
        print(f"{length:5} " + " ".join(f"{rate:12,.0f}" for rate in rates.values()))
        print(f"{'':5} " + " ".join(f"{rate / rates['calls']:11.1f}x" for rate in rates.values()))
    return {"batch": batch, "durability": "in memory; through the socket, one fsync a call", "points": points}


def in_batches(length: int, batch: int, *, nested: bool = False) -> float:
    """Whole batches, from Arrow to outcomes; the median of some. One after the other: such small groups gain nothing
    from two cores, and the kernels for them would be compiled beside the figures."""
    app, events = chain(length, nested=nested)
    given = [starts(batch, number * batch) for number in range(REPEAT + 1)]
    seconds = []
    with app.open() as db:
        for batch_of_starts in given:
            begun = time.perf_counter()
            db.run({events[0]: batch_of_starts}, policy=Policy.serial())
            seconds.append(time.perf_counter() - begun)
        hold_against_python(seen(db, length), given)
    return batch / statistics.median(seconds[1:])


def by_calls(length: int, count: int, *, socket: bool = False, nested: bool = False) -> float:
    """One call after the other: each waits for its answer. nested: the first step's causes the others."""
    app, events = chain(length, nested=nested, driven=not nested)
    called = events[:1] if nested else events
    given = starts(count)
    with tempfile.TemporaryDirectory(prefix="penstock-flow-") as home:
        db = app.open(home, calls=True) if socket else app.open()
        caller = app.connect(home) if socket else db
        try:
            begun = 0.0
            for ts, key in enumerate(given["key"].to_pylist()):
                caller.call(called[0](ts=ts, key=key))
                for event in called[1:]:
                    caller.call(event(key=key))
                begun = begun or time.perf_counter()  # the first warms up
            seconds = time.perf_counter() - begun
            hold_against_python(seen(db, length), [given])
            return (count - 1) / seconds
        finally:
            if socket:
                caller.close()
            db.close()
