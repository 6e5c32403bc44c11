"""Calls beside a stream: what they cost it, and how long they wait. S-Store mixes both, and gives no figure.

The stream runs batch after batch, as fast as it can, alone and then with so many calls a second beside it. A call waits
for the batch that runs, and is answered when it is durable.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.flow.callers import KEYS, bank, call_for, deposits
from benchmarks.flow.places import workplace

BATCH = 100_000
RATES, SECONDS = (100, 1_000, 10_000), 3.0
Waits = tuple[list[float], float]  # of each call; and until all were answered
BATCHES = 8  # different ones, run again and again


def experiment(*, quick: bool = False) -> dict[str, Any]:
    batch, rates, seconds = (2_000, (100,), 0.3) if quick else (BATCH, RATES, SECONDS)
    points = []
    print(f"{'calls from':>16} {'asked/s':>8} {'made/s':>8} {'events/s alone':>15} {'beside':>12} {'lost':>6}", end="")
    print(f" {'a batch, ms':>12} {'p50':>7} {'p99, ms':>8} {'batches':>8}")
    with workplace() as work:
        stream = _Stream(work / "bank", batch)
        try:
            stream.run_for(seconds / 3)
            for place in ("thread", "other process"):
                for rate in rates:
                    points.append(_point(stream, place, rate, seconds))
            # Each other process warms up by a call of its own.
            others = sum(point["from"] != "thread" for point in points)
            stream.hold_against_python(1 + others + sum(point["calls"] for point in points))
        finally:
            stream.db.close()
    return {"batch": batch, "durability": "one fsync a batch, and one for calls that wait together", "points": points}


def _point(stream: _Stream, place: str, rate: int, seconds: float) -> dict[str, Any]:
    other = place != "thread"
    before = stream.run_for(seconds / 2)
    with (_in_other_process if other else _in_thread)(stream, rate, seconds) as waits_of:
        beside = stream.run_for(seconds)
        waits, took = waits_of()
    after = stream.run_for(seconds / 2)
    alone = before + after
    p50, p99 = np.percentile(waits, (50, 99)) * 1e3
    batch_ms = statistics.median(alone) * 1e3
    point = {
        "from": place,
        "rate": rate,
        "calls": len(waits),
        "made_per_s": len(waits) / took,
        "alone_per_s": stream.batch * len(alone) / sum(alone),
        "beside_per_s": stream.batch * len(beside) / sum(beside),
        "batch_ms": batch_ms,
        "p50_ms": p50,
        "p99_ms": p99,
        "p99_batches": p99 / batch_ms,
    }
    point["lost"] = 1 - point["beside_per_s"] / point["alone_per_s"]
    print(f"{place:>16} {rate:8,} {point['made_per_s']:8,.0f} {point['alone_per_s']:15,.0f}", end="")
    print(f" {point['beside_per_s']:12,.0f} {point['lost']:6.0%} {batch_ms:12.1f} {p50:7.1f} {p99:8.1f}", end="")
    print(f" {point['p99_batches']:8.1f}")
    return point


class _Stream:
    def __init__(self, home: Path, batch: int) -> None:
        self.app, self.pay = bank()
        self.home, self.batch = home, batch
        self._batches = [deposits(batch, number * batch) for number in range(BATCHES)]
        self._run = 0
        self.db = self.app.open(home, calls=True)
        self.db.call(self.pay(id=0))

    def run_for(self, seconds: float) -> list[float]:
        """How long each batch took, with all that stood between it and the one before."""
        took, begun = [], time.perf_counter()
        end = begun + seconds
        while begun < end:
            self.db.run({"Deposit": self._batches[self._run % BATCHES]})
            self._run += 1
            now = time.perf_counter()
            took.append(now - begun)
            begun = now
        return took

    def hold_against_python(self, calls: int) -> None:
        wanted = np.zeros(KEYS, np.int64)
        for number, batch in enumerate(self._batches):
            times = self._run // BATCHES + (number < self._run % BATCHES)
            np.add.at(wanted, batch["id"].to_numpy(), batch["amount"].to_numpy() * times)
        rows, found = self.db.table("Account"), np.zeros(KEYS, np.int64)
        found[rows["id"].to_numpy()] = rows["balance"].to_numpy()
        assert (found == wanted).all(), "a balance differs from the plain sum"
        assert sum(rows["calls"].to_pylist()) == calls, "a call was lost, or ran twice"


@contextmanager
def _in_thread(stream: _Stream, rate: int, seconds: float) -> Iterator[Callable[[], Waits]]:
    made: list[Waits] = []
    thread = threading.Thread(target=lambda: made.append(call_for(stream.pay, stream.db, rate, seconds)))
    thread.start()

    def result() -> Waits:
        thread.join()
        return made[0]

    yield result
    thread.join()


@contextmanager
def _in_other_process(stream: _Stream, rate: int, seconds: float) -> Iterator[Callable[[], Waits]]:
    words = [sys.executable, "-m", "benchmarks.flow.callers", str(stream.home), str(rate), str(seconds)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as caller:
        assert caller.stdin is not None and caller.stdout is not None
        assert caller.stdout.readline() == "ready\n", "the caller did not start"
        caller.stdin.write("go\n")
        caller.stdin.flush()
        yield lambda: tuple(json.loads(caller.stdout.readline()))
