"""Many histories, one after the other, and what they came to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from simulation.history import Focus, Result, run


@dataclass(slots=True)
class Sweep:
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[Result] = field(default_factory=list)

    def add(self, result: Result) -> None:
        counts = result.counts
        self.counts["histories"] += 1
        self.counts["operations"] += counts.operations
        self.counts["commits"] += result.commits
        self.counts["answers judged"] += result.answers
        self.counts.update({f"crashes: {kind}": n for kind, n in counts.crashes.items()})
        self.counts.update({f"faults: {kind}": n for kind, n in counts.faults.items()})
        if result.wrong is not None:
            self.wrong.append(result)

    def __str__(self) -> str:
        first = ("histories", "operations", "commits", "answers judged")
        rest = sorted(self.counts.keys() - set(first))
        lines = [f"{what:20} {self.counts[what]:14,}" for what in (*first, *rest)]
        return "\n".join([*lines, f"{'wrong':20} {len(self.wrong):14,}"])


def sweep(seeds: Iterable[int], focus: Focus | None = None, *, wrong_max: int = 1) -> Sweep:
    """Stops when so many are wrong."""
    found = Sweep()
    for seed in seeds:
        found.add(run(seed, focus=focus))
        if len(found.wrong) >= wrong_max:
            break
    return found


def told(result: Result) -> str:
    """A wrong history, step by step."""
    return "\n".join([*result.trace, f"seed {result.seed} is wrong: {type(result.wrong).__name__}: {result.wrong}"])
