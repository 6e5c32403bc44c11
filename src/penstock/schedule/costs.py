"""What building and exploring a graph costs on this machine: learned from batches, and kept for the next process."""

from __future__ import annotations

import contextlib
import json
import math
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

_FILE = "schedule-costs-2.json"
# How much of a new measurement is taken over.
_LEARN = 0.3
# Large batches tell what an access costs to build in, small ones what a batch costs to begin with.
_LARGE, _SMALL = 2048, 512
# What a task costs besides its work is what its batch took more than that: where a task is work for longer than this,
# in seconds, that is but the error of what is thought of the work.
_DEAR = 3e-6


@dataclass(frozen=True, slots=True)
class Cost:
    """In seconds."""

    start: float = 0.25e-3  # of a batch
    entry: float = 45e-9  # of building, for an access, by the wall clock
    task: float = 600e-9  # of exploring and of keeping versions, for a task, on one thread


# Before anything was measured: on two cores of 2024. What counts is how they compare with each other.
_FIRST = {
    "dfs/transaction/eager": Cost(entry=60e-9, task=450e-9),
    "bfs/transaction/eager": Cost(entry=60e-9, task=550e-9),
    "ready/transaction/eager": Cost(entry=60e-9, task=700e-9),
    "dfs/operation/lazy": Cost(entry=80e-9, task=300e-9),
    "ready/operation/lazy": Cost(entry=80e-9, task=400e-9),
    "ready/operation/eager": Cost(entry=80e-9, task=600e-9),
}


@dataclass(slots=True)
class Costs:
    directory: Path | None = None
    known: dict[str, Cost] = field(default_factory=dict)
    changed: bool = False
    _at_hand: dict[tuple[str, int], Cost] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.directory is not None:
            with contextlib.suppress(OSError, ValueError, TypeError):
                stored = json.loads((self.directory / _FILE).read_text())
                self.known = {name: Cost(**cost) for name, cost in stored.items()}

    def of(self, name: str, threads: int) -> Cost:
        found = self._at_hand.get((name, threads))
        if found is None:
            found = self.known.get(f"{name}:{threads}") or self._guess(_FIRST.get(name, Cost()), threads)
            self._at_hand[name, threads] = found
        return found

    def _guess(self, first: Cost, threads: int) -> Cost:
        """A policy that has not run yet: as much dearer than thought as those that have, or it would be preferred to
        them for nothing but its being unknown."""
        ran = [(self.known[f"{name}:{threads}"], _FIRST[name]) for name in _FIRST if f"{name}:{threads}" in self.known]
        if not ran:
            return first
        start, entry, task = (
            math.exp(math.fsum(math.log(max(getattr(own, of), 1e-9) / getattr(was, of)) for own, was in ran) / len(ran))
            for of in ("start", "entry", "task")
        )
        return Cost(first.start * start, first.entry * entry, first.task * task)

    def learn(
        self, name: str, threads: int, *, events: int, entries: int, tasks: int, work: float, spent: dict[str, float]
    ) -> None:
        """One batch's truth, in thread-seconds. work: of the serial loop, as it was thought to be."""
        if name not in _FIRST or events < _SMALL:
            return
        old = self.of(name, threads)
        start, entry, building = old.start, old.entry, spent["construct"] / threads
        if events < _LARGE:
            start = _towards(start, max(0.0, building - entries * entry))
        else:
            entry = _towards(entry, max(0.0, building - start) / max(1, entries))
        task = old.task
        if work < _DEAR * tasks:
            more = spent["useful"] + spent["abort"] + spent["explore"] - work
            task = _towards(task, max(0.0, more) / tasks)
        self.known[f"{name}:{threads}"] = Cost(start, entry, task)
        self._at_hand.clear()
        self.changed = True

    def keep(self) -> None:
        """Write what was learned; a place that cannot be written to means learning again."""
        if self.directory is None or not self.changed:
            return
        with contextlib.suppress(OSError):
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            temporary = self.directory / f"{_FILE}.{os.getpid()}"
            temporary.write_text(json.dumps({name: asdict(cost) for name, cost in self.known.items()}, indent=1))
            temporary.replace(self.directory / _FILE)
            self.changed = False


def _towards(old: float, new: float) -> float:
    """A little of the new; one measurement that another process disturbed must not count for much."""
    return old + _LEARN * (min(max(new, old / 2), 2 * old) - old)
