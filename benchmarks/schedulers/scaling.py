"""More cores: what the best graph policies gain over one core's serial loop, and how near they come to the bound.

bound    max(work / threads, longest path): no schedule of these units can be shorter
         work    the serial loop's time
         path    in operations, at the unit's own grain, each at the serial loop's mean time of an operation:
                 transaction   the longest chain of transactions, each with all its operations
                 operation     the longest chain of operations on one record
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.schedulers.measure import Bench, Measured, heading, parsed
from benchmarks.schedulers.points import compile_batch, describe
from penstock import Policy
from penstock.workloads import StreamingLedger

POLICIES = ("ready/transaction/eager", "dfs/transaction/eager", "ready/operation/lazy", "ready/operation/eager")
THETAS = (0.0, 0.6, 1.0)
RECORDS = {"Deposit": ("account", "asset"), "Transfer": ("src", "dst", "src_asset", "dst_asset")}
BUILD_REPEATS = 7


def scaling(cores: list[int], *, quick: bool = False, repeat: int = 2) -> dict[str, Any]:
    base = (
        StreamingLedger(cost_us=0.3, batch=500)
        if quick
        else StreamingLedger(cost_us=10.0, batch=102_400, abort_ratio=0.0)
    )
    report: dict[str, Any] = heading() | {"workload": describe(base), "cores": cores, "repeat": repeat}
    print(f"{report['machine']}\n{report['command']}\n")
    policies = [Policy.serial(), *(p for threads in cores for p in parsed(POLICIES, threads))]
    report["scaling"], report["construct"] = [], []
    with Bench(base) as bench:
        bench.warm(policies, compile_batch(base))
        for theta in THETAS:
            knobs = replace(base, theta=theta)
            events = knobs.events(seed=1)
            found = bench.compare(events, policies, repeat=repeat, hopeless=float("inf"))
            report["scaling"].append(scaled(theta, events, found))
            _print_scaled(report["scaling"][-1], cores)
            report["construct"].append(construction(bench, replace(knobs, cost_us=0.0)))
    _print_construction(report["construct"])
    return report


def scaled(theta: float, events: dict[str, Any], found: list[Measured]) -> dict[str, Any]:
    serial, *others = found
    paths = longest_paths(events)
    bounds = {unit: serial.median * paths[unit] / paths["work"] for unit in ("transaction", "operation")}
    return {
        "theta": theta,
        "operations": paths["work"],
        "longest_path": {unit: paths[unit] for unit in bounds},
        "serial_s": serial.median,
        "policies": [_one(one, serial.median, bounds[one.policy.unit]) for one in others],
    }


def _one(one: Measured, serial: float, path: float) -> dict[str, Any]:
    bound = max(serial / one.policy.threads, path)
    assert one.last is not None
    return {
        "policy": one.name,
        "threads": one.policy.threads,
        "seconds": one.median,
        "events_per_s": round(one.rate),
        "speedup": serial / one.median,
        "bound_s": bound,
        "time_to_bound": one.median / bound,
        "spent_s": {name: float(seconds) for name, seconds in one.last.spent.items()},
    }


def longest_paths(events: dict[str, Any]) -> dict[str, int]:
    """In operations: all of them, the longest path of whole transactions, and the longest chain of one record."""
    width = max(len(columns) for columns in RECORDS.values())
    ts, records = [], []
    for name, columns in RECORDS.items():
        table = events[name]
        found = np.full((table.num_rows, width), -1, np.int64)
        for k, column in enumerate(columns):
            found[:, k] = 2 * table[column].to_numpy() + column.endswith("asset")  # two tables: even and odd
        ts.append(table["ts"].to_numpy())
        records.append(found)
    order = np.argsort(np.concatenate(ts))
    reached: dict[int, int] = {}
    for row in np.concatenate(records)[order].tolist():
        own = [record for record in row if record >= 0]
        end = max(reached.get(record, 0) for record in own) + len(own)
        for record in own:
            reached[record] = end
    used = np.concatenate(records)
    used = used[used >= 0]
    _, chains = np.unique(used, return_counts=True)
    return {"work": used.size, "transaction": max(reached.values()), "operation": int(chains.max())}


def construction(bench: Bench, knobs: StreamingLedger) -> dict[str, Any]:
    """Operations a second, one thread: finding records, linking the graph, and at the end installing the versions."""
    events, policy = knobs.events(seed=1), Policy.parse("ready/transaction/eager", 1)
    seconds = [float(bench.run(events, policy).spent["construct"]) for _ in range(BUILD_REPEATS + 1)][1:]
    operations = sum(events[name].num_rows * len(columns) for name, columns in RECORDS.items())
    return {"theta": knobs.theta, "operations": operations, "per_s": operations / statistics.median(seconds)}


# -- as Markdown, to be pasted --------------------------------------------------------------------


def _print_scaled(s: dict[str, Any], cores: list[int]) -> None:
    paths = ", ".join(f"{length:,} by {unit}" for unit, length in s["longest_path"].items())
    print(f"theta {s['theta']:g}: serial {s['serial_s']:.3f} s; {s['operations']:,} operations, longest path {paths}\n")
    print("| policy | " + " | ".join(f"{n} cores" if n > 1 else "1 core" for n in cores) + " | time / bound |")
    print("| --- |" + " ---: |" * (len(cores) + 1))
    for name in POLICIES:
        row = [p for p in s["policies"] if p["policy"] == name]
        speedups = " | ".join(f"{p['speedup']:.2f}" for p in row)
        print(f"| {name} | {speedups} | {row[-1]['time_to_bound']:.2f} |")
    print(flush=True)


def _print_construction(found: list[dict[str, Any]]) -> None:
    rates = ", ".join(f"{one['per_s'] / 1e6:.1f} M (theta {one['theta']:g})" for one in found)
    print(f"graph construction on one thread, operations a second: {rates}")
