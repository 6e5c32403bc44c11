"""One workload under several policies, side by side."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock import Policy
from penstock.observe.report import BatchReport
from penstock.workloads import Knobs


@dataclass(slots=True)
class Measured:
    """What one policy took for one batch, repeated; seconds are those of `execute`."""

    policy: Policy
    events: int
    seconds: list[float] = field(default_factory=list)
    last: BatchReport | None = None

    @property
    def best(self) -> float:
        return min(self.seconds)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def rate(self) -> float:
        return self.events / self.median


class Bench:
    """An app with its tables loaded; batches run on it one after the other."""

    def __init__(self, knobs: Any) -> None:
        self.knobs = knobs
        self.db = knobs.app().open()
        for name, table in knobs.tables().items():
            self.db.load(name, table)

    def warm(self, policies: Iterable[Policy], events: Any) -> None:
        """Compile what these policies need."""
        for policy in policies:
            if policy.scheme != "adaptive":
                self.db.run(events, policy=policy)

    def compare(self, knobs: Knobs, policies: Sequence[Policy], repeat: int = 3, seed: int = 1) -> list[Measured]:
        """Each policy in turn, again and again, so that what disturbs the machine disturbs all alike."""
        events = knobs.events(seed=seed)
        out = [Measured(policy, sum(t.num_rows for t in events.values())) for policy in policies]
        for _ in range(repeat):
            for one in out:
                self.db.run(events, policy=one.policy)
                one.last = self.db.last_batch
                assert one.last is not None
                one.seconds.append(one.last.seconds["execute"])
        return out

    def close(self) -> None:
        self.db.close()
