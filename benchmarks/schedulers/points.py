"""The grid: workloads from the cheapest to the costliest, tame and skewed, with few aborts and many.

The batch is the smaller the dearer its operations are, so that a serial run takes 0.005 to 0.3 seconds.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from penstock.workloads import GrepSum, Knobs, OnlineBidding, StreamingLedger, TollProcessing

# microseconds an operation -> events a batch
BATCHES = {0.0: 102_400, 0.3: 40_960, 1.0: 20_480, 3.0: 10_240, 10.0: 5_120}


def grid() -> list[Knobs]:
    return [*_ledger(), *_grep_sum(), *_bidding(), *_tolls()]


def few() -> list[Knobs]:
    """A point of each workload, small."""
    small: dict[str, Any] = {"keys": 200, "batch": 300, "cost_us": 0.3}
    return [one(**small) for one in (StreamingLedger, GrepSum, OnlineBidding, TollProcessing)]


def _sized(cost_us: float, share: float = 1.0) -> dict[str, Any]:
    return {"cost_us": cost_us, "batch": int(BATCHES[cost_us] * share)}


def _ledger() -> list[Knobs]:
    one = StreamingLedger
    return [
        *(one(theta=theta, **_sized(cost)) for cost in BATCHES for theta in (0.0, 0.6, 1.0)),
        *(one(abort_ratio=aborts, **_sized(cost)) for cost in (1.0, 10.0) for aborts in (0.3, 0.6, 0.9)),
        *(one(theta=0.6, cost_us=cost, batch=1_024) for cost in (0.0, 0.3, 1.0, 3.0, 10.0)),
        one(theta=0.6, cost_us=1.0, batch=102_400),
        *(one(theta=0.6, length=6, **_sized(cost, 0.3)) for cost in (0.0, 1.0, 3.0)),
        one(theta=1.0, transfer_ratio=1.0, **_sized(3.0)),
    ]


def _grep_sum() -> list[Knobs]:
    one = GrepSum
    return [
        *(one(theta=theta, **_sized(cost)) for cost in (0.0, 1.0, 10.0) for theta in (0.0, 1.0)),
        *(one(length=10, accesses=1, read_ratio=0.5, theta=0.6, **_sized(cost, 0.2)) for cost in (0.0, 0.3, 1.0)),
        one(accesses=8, **_sized(1.0)),
        *(one(abort_ratio=aborts, **_sized(3.0)) for aborts in (0.5, 0.9)),
        one(theta=0.8, accesses=1, **_sized(3.0)),
    ]


def _bidding() -> list[Knobs]:
    return [OnlineBidding(theta=theta, **_sized(cost, 0.3)) for cost in (0.0, 1.0, 3.0) for theta in (0.0, 0.9)]


def _tolls() -> list[Knobs]:
    one = TollProcessing
    return [
        *(one(theta=theta, **_sized(cost)) for cost in (0.0, 1.0, 10.0) for theta in (0.2, 1.0)),
        *(one(abort_ratio=aborts, **_sized(3.0)) for aborts in (0.5, 0.9)),
    ]


def describe(knobs: Knobs, without: str = "") -> str:
    """The workload, the knobs that matter for scheduling, and those that are not as usual; without one that moves."""
    usual = type(knobs)()
    shown = {"batch": f"T={knobs.batch}", "cost_us": f"C={knobs.cost_us:g}", "theta": f"theta={knobs.theta:g}"}
    for one in fields(knobs):
        value = getattr(knobs, one.name)
        if one.name not in shown and value != getattr(usual, one.name):
            shown[one.name] = f"{one.name}={value:g}" if isinstance(value, float) else f"{one.name}={value}"
    return " ".join((knobs.name, *(text for name, text in shown.items() if name != without)))


def same_tables(knobs: Knobs) -> tuple[Any, ...]:
    """Points that agree in this can run on one open app."""
    return knobs.name, getattr(knobs, "plain", True), knobs.keys


def compile_batch(knobs: Knobs) -> dict[str, Any]:
    """A small batch of the same kinds of events."""
    return replace(knobs, batch=64, cost_us=0.0).events()
