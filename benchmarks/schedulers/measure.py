"""One workload under several policies, side by side.

    round 1      every policy, in turn: warms up, and shows who is hopeless
    round 2, …   those that are left, in turn, in another order each time: these count

A policy that took three times as long as the best in the first round, twice in a row, is left out of the others, and
the shorter of the two is its time. So that what disturbs the machine disturbs all alike, policies take turns, on the
same events; and whose turn it is after whom changes, for a policy leaves caches to the next.

A final round between the best of them is longer: it tells those apart that are nearly as good.
"""

from __future__ import annotations

import json
import os
import platform
import random
import shlex
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock import Policy
from penstock.observe.report import BatchReport
from penstock.workloads import bind

FIXED = (
    "serial",
    *(f"{explore}/transaction/eager" for explore in ("bfs", "dfs", "ready")),
    *(f"{explore}/operation/{on_abort}" for explore in ("bfs", "dfs", "ready") for on_abort in ("eager", "lazy")),
    *(f"{explore}/chain/lazy" for explore in ("bfs", "dfs", "ready")),
)
HOPELESS = 3.0  # times the best of the first round
# A policy is repeated until it has run for about so many seconds, but at least and at most so often.
ENOUGH, FINAL = (0.2, 4, 9), (0.8, 9, 401)


@dataclass(slots=True)
class Measured:
    """What one policy took for one batch, repeated; seconds are those of `execute`."""

    policy: Policy
    events: int
    first: float = 0.0  # warming up; counts only where it is all there is
    seconds: list[float] = field(default_factory=list)
    chose: list[str] = field(default_factory=list)  # what ran in these rounds
    last: BatchReport | None = None

    @property
    def name(self) -> str:
        return self.policy.name

    @property
    def median(self) -> float:
        return statistics.median(self.seconds) if self.seconds else self.first

    def over(self, other: Measured) -> float:
        """This one's time over another's, less 1, by the rounds that both ran in: the machine's speed drifts, and what
        ran a moment ago can be compared better than what ran at any time. Of all rounds the middle half: not their
        median alone, for times may come in two heaps."""
        ratios = sorted(a / b for a, b in zip(self.seconds, other.seconds, strict=True))
        aside = len(ratios) // 4
        return statistics.geometric_mean(ratios[aside : len(ratios) - aside]) - 1

    @property
    def rate(self) -> float:
        return self.events / self.median


class Bench:
    """An app with its tables loaded; batches run on it one after the other."""

    def __init__(self, knobs: Any) -> None:
        self.app = knobs.app()
        self.db = self.app.open()
        for table, rows in bind(self.app, knobs.tables()).items():
            self.db.load(table, rows)

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self.db.close()

    def warm(self, policies: Iterable[Policy], events: dict[str, Any]) -> None:
        """Compile what these policies need. Adaptive would do it in the background, and run serially meanwhile."""
        for policy in policies:
            if policy.scheme == "adaptive":
                self.db.warm()
            self.run(events, policy)

    def run(self, events: dict[str, Any], policy: Policy) -> BatchReport:
        self.db.run(bind(self.app, events), policy=policy)
        assert self.db.last_batch is not None
        return self.db.last_batch

    def compare(
        self, events: dict[str, Any], policies: Sequence[Policy], repeat: int | None = None, hopeless: float = HOPELESS
    ) -> list[Measured]:
        """Each policy in turn, again and again; adaptive is never left out."""
        found = [Measured(policy, sum(t.num_rows for t in events.values())) for policy in policies]
        for one in found:
            one.last = self.run(events, one.policy)
            one.first = one.last.seconds["execute"]
        best = min(one.first for one in found)
        for one in found:
            if one.first > hopeless * best:  # perhaps it was only disturbed
                one.first = min(one.first, self.run(events, one.policy).seconds["execute"])
        left = [one for one in found if one.first <= hopeless * best or one.policy.scheme == "adaptive"]
        self._take_turns(events, left, repeat or _repeats(best, ENOUGH))
        return found

    def final(self, events: dict[str, Any], found: Sequence[Measured]) -> list[Measured]:
        """The same ones again, from the start, and more often."""
        again = [Measured(one.policy, one.events) for one in found]
        self._take_turns(events, again, _repeats(min(one.median for one in found), FINAL))
        return again

    def _take_turns(self, events: dict[str, Any], policies: Sequence[Measured], rounds: int) -> None:
        chance, order = random.Random(0), list(policies)
        for _ in range(rounds):
            chance.shuffle(order)
            for one in order:
                one.last = self.run(events, one.policy)
                one.seconds.append(one.last.seconds["execute"])
                one.chose.append(one.last.policy)


def _repeats(seconds: float, enough: tuple[float, int, int]) -> int:
    wanted, least, most = enough
    return min(most, max(least, round(wanted / seconds)))


def parsed(names: Iterable[str], threads: int) -> list[Policy]:
    return [Policy.parse(name, threads) for name in names]


# -- reporting ------------------------------------------------------------------------------------


def machine() -> str:
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return f"{model}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before, Python {platform.python_version()}"


def heading() -> dict[str, str]:
    """What every report begins with. To be called before anything is measured: it states the load."""
    words = ["python", "-m", "benchmarks.schedulers", *sys.argv[1:]]
    return {"command": shlex.join(words), "machine": machine()}


def write_json(path: Path | None, report: dict[str, Any]) -> None:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(report, indent=1) + "\n")
