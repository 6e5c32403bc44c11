"""Job: what `penstock bench` is asked to measure, checked against the workloads there are.

A workload is bare (nothing but the job) unless a knob is asked for: then it is the tuned one, whose operations cost
something and whose other knobs are those of docs/WORKLOADS.md.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, fields
from typing import Any

from penstock.errors import InputError
from penstock.schedule.policy import LOCKING, Policy
from penstock.workloads import TUNED, WORKLOADS, Workload, as_workload

BATCH, TUNED_BATCH = 100_000, 10_240  # events; a tuned one's operations are dear
MEMORY_EVENTS, TUNED_MEMORY_EVENTS = 1_000_000, 50_000
# option -> knob
KNOBS = {
    "cost": "cost_us",
    "abort_ratio": "abort_ratio",
    "length": "length",
    "accesses": "accesses",
    "read_ratio": "read_ratio",
}


@dataclass(frozen=True, slots=True)
class Job:
    """One job to measure; plain values, so that it can be handed to another process as JSON."""

    workload: str
    policy: str
    threads: int
    keys: str
    size: int
    theta: float
    batch: int
    batches: int
    memory_events: int
    knobs: dict[str, float] = field(default_factory=dict)  # by option; only those that were asked for

    @classmethod
    def of(
        cls,
        workload: str,
        *,
        policy: str,
        threads: int,
        keys: str,
        size: int | None,
        theta: float | None,
        batch: int | None,
        batches: int,
        memory_events: int | None,
        knobs: dict[str, float | None],
    ) -> Job:
        asked = {name: value for name, value in knobs.items() if value is not None}
        known = _definition(workload, asked)
        _need_policy(policy, threads)
        if keys not in known.keys:
            raise InputError(f"workload '{workload}' has keys {' or '.join(known.keys)}, not '{keys}'")
        tuned = _tuned(workload, asked)
        return cls(
            workload,
            policy,
            threads,
            keys,
            size or known.size,
            known.theta if theta is None else theta,
            batch or (TUNED_BATCH if tuned else BATCH),
            batches,
            memory_events or (TUNED_MEMORY_EVENTS if tuned else MEMORY_EVENTS),
            asked,
        )

    @property
    def definition(self) -> Workload:
        return _definition(self.workload, self.knobs)

    @property
    def tuned(self) -> bool:
        return _tuned(self.workload, self.knobs)

    @property
    def command(self) -> str:
        words = ["penstock", "bench", self.workload, "--policy", self.policy, "--keys", self.keys]
        if self.threads:
            words += ["--threads", str(self.threads)]
        words += ["--accounts", str(self.size), "--theta", str(self.theta)]
        for name, value in self.knobs.items():
            words += [f"--{name.replace('_', '-')}", str(value)]
        words += ["--batch", str(self.batch), "--batches", str(self.batches)]
        words += ["--memory-events", str(self.memory_events)]
        return shlex.join(words)


def _tuned(workload: str, knobs: dict[str, float]) -> bool:
    return bool(knobs) or workload not in WORKLOADS


def _definition(workload: str, knobs: dict[str, float]) -> Workload:
    names = list(dict.fromkeys([*WORKLOADS, *TUNED]))
    if workload not in names:
        raise InputError(f"there is no workload '{workload}'; choose one of {', '.join(names)}")
    if not _tuned(workload, knobs):
        return WORKLOADS[workload]
    if workload not in TUNED:
        raise InputError(f"workload '{workload}' has no knobs; those that have are {', '.join(TUNED)}")
    cls = TUNED[workload]
    has = {one.name for one in fields(cls)}
    for name in knobs:
        if KNOBS[name] not in has:
            raise InputError(f"workload '{workload}' has no --{name.replace('_', '-')}")
    given: dict[str, Any] = {KNOBS[name]: value for name, value in knobs.items()}
    return as_workload(cls(**given))


def _need_policy(policy: str, threads: int) -> None:
    try:
        Policy.parse(policy, threads)
    except ValueError:
        names = f"adaptive, serial, tstream, {', '.join(LOCKING)}, or parts such as ready/transaction/eager"
        raise InputError(f"there is no policy '{policy}' to bench; use {names}") from None
