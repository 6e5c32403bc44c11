"""A batch under a policy: serially, by its graph, or under locks.

An event whose records cannot be foreseen runs alone: what comes before it runs first, what comes after it last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.execute.locked import Locked
from penstock.execute.native import Kernel, Running
from penstock.execute.versioned import Versioned
from penstock.plan.foresee import foresee
from penstock.schedule.policy import LOCKING, Policy


@dataclass(frozen=True, slots=True)
class Conducted:
    """How a batch was run."""

    policy: Policy
    why: str
    spent: dict[str, float] = field(default_factory=dict)  # thread-seconds by what they went to


class Conductor:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        numbers = {e.name: n for n, e in enumerate(kernel.plan.program.events)}
        self.unforeseen = [numbers[t.event] for t in kernel.plan.transactions if foresee(t) is None]
        self._versioned: Versioned | None = None
        self._locked: Locked | None = None

    @property
    def versioned(self) -> Versioned:
        if self._versioned is None:
            self._versioned = Versioned(self.kernel)
        return self._versioned

    @property
    def locked(self) -> Locked:
        if self._locked is None:
            self._locked = Locked(self.versioned)
        return self._locked

    def run(self, running: Running, policy: Policy) -> Conducted:
        if policy.scheme in ("serial", "adaptive"):
            self.kernel.run(running)
            return Conducted(Policy.serial(), "as asked" if policy.scheme == "serial" else "")
        way = self.locked if policy.scheme in LOCKING else self.versioned
        spent = self._in_parts(running, lambda a, b: way.run(running, policy, a, b))
        why = "as asked" if policy.scheme != "none" else "as asked; without locks its results may be wrong"
        return Conducted(policy, why, spent)

    def _in_parts(self, running: Running, run: Callable[[int, int], dict[str, float]]) -> dict[str, float]:
        """Run what can be foreseen in parts, and between them, alone, what cannot."""
        spent: dict[str, float] = {}
        start = 0
        for alone in [*self._alone(running), running.count]:
            if start < alone:
                for name, seconds in run(start, int(alone)).items():
                    spent[name] = spent.get(name, 0.0) + seconds
            if alone < running.count:
                self.kernel.run(running, int(alone), int(alone) + 1)
            start = int(alone) + 1
        return spent

    def _alone(self, running: Running) -> Any:
        if not self.unforeseen:
            return []
        return np.flatnonzero(np.isin(running.fixed["kind"], self.unforeseen))

    def close(self) -> None:
        if self._versioned is not None:
            self._versioned.team.close()
