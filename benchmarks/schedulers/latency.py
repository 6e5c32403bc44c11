"""Small batches: how long db.run takes by the clock on the wall, from Arrow events to Arrow outcomes.

beforehand   all events were made before: nothing but the engine runs
between      events are made between batches, by some hundred calls into numpy: the engine finds its caches cold
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.schedulers.measure import Bench, heading, parsed
from benchmarks.schedulers.points import compile_batch
from penstock.workloads import TSTREAM, Knobs, bind

POLICIES = ("adaptive", "serial")
BATCHES = 2_000
WARM = 50


def latency(threads: int, *, quick: bool = False) -> dict[str, Any]:
    report: dict[str, Any] = heading() | {"threads": threads, "workloads": []}
    print(f"{report['machine']}\n{report['command']}\n\nbatches of 500 events, no cost: ms of db.run")
    print(f"{'':10} {'events made':12} {'policy':10} {'p50':>8} {'p90':>8} {'p99':>8}")
    for made in ("beforehand", "between"):
        for name, knobs in TSTREAM.items():
            for one in percentiles(knobs, POLICIES, threads, 20 if quick else BATCHES, beforehand=made == "beforehand"):
                report["workloads"].append({"workload": name, "made": made} | one)
                times = f"{one['p50']:8.3f} {one['p90']:8.3f} {one['p99']:8.3f}"
                print(f"{name:10} {made:12} {one['policy']:10} {times}", flush=True)
    return report


def percentiles(
    knobs: Knobs, names: tuple[str, ...], threads: int, count: int, *, beforehand: bool = False
) -> list[dict[str, Any]]:
    """Milliseconds of db.run; every batch is another, and each runs under all policies in turn."""
    policies, warm = parsed(names, threads), min(WARM, count // 4)
    seconds = np.zeros((len(policies), count))
    with Bench(knobs) as bench:
        if knobs.cost_us > 0:  # otherwise batches are so cheap that nothing but the serial loop is ever chosen
            bench.warm(policies, compile_batch(knobs))
        made = (bind(bench.app, events) for events in knobs.batches(seed=1, count=count + warm))
        for number, bound in enumerate(list(made) if beforehand else made):
            for turn in range(len(policies)):
                k = (turn + number) % len(policies)  # the first to run a batch finds it cold
                begun = time.perf_counter()
                bench.db.run(bound, policy=policies[k])
                if number >= warm:
                    seconds[k, number - warm] = time.perf_counter() - begun
    p50, p90, p99 = 1000 * np.percentile(seconds, (50, 90, 99), axis=1)
    return [
        {"policy": name, "batch": knobs.batch, "batches": count, "p50": p50[k], "p90": p90[k], "p99": p99[k]}
        for k, name in enumerate(names)
    ]
