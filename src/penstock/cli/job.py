"""Job: what `penstock bench` is asked to measure, checked against the workloads there are."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from penstock.errors import InputError
from penstock.workloads import WORKLOADS, Workload

POLICIES = ("adaptive", "serial")


@dataclass(frozen=True, slots=True)
class Job:
    """One job to measure; plain values, so that it can be handed to another process as JSON."""

    workload: str
    policy: str
    keys: str
    size: int
    theta: float
    batch: int
    batches: int
    memory_events: int

    @classmethod
    def of(
        cls,
        workload: str,
        policy: str,
        keys: str,
        size: int | None,
        theta: float | None,
        batch: int,
        batches: int,
        memory_events: int,
    ) -> Job:
        if workload not in WORKLOADS:
            raise InputError(f"there is no workload '{workload}'; choose one of {', '.join(WORKLOADS)}")
        known = WORKLOADS[workload]
        if policy not in POLICIES:
            raise InputError(f"there is no policy '{policy}' to bench; choose one of {', '.join(POLICIES)}")
        if keys not in known.keys:
            raise InputError(f"workload '{workload}' has keys {' or '.join(known.keys)}, not '{keys}'")
        return cls(
            workload,
            policy,
            keys,
            size or known.size,
            known.theta if theta is None else theta,
            batch,
            batches,
            memory_events,
        )

    @property
    def definition(self) -> Workload:
        return WORKLOADS[self.workload]

    @property
    def command(self) -> str:
        words = ["penstock", "bench", self.workload, "--policy", self.policy, "--keys", self.keys]
        words += ["--accounts", str(self.size), "--theta", str(self.theta)]
        words += ["--batch", str(self.batch), "--batches", str(self.batches)]
        words += ["--memory-events", str(self.memory_events)]
        return shlex.join(words)
