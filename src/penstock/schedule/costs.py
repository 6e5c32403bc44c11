"""What building and exploring a graph costs an app on this machine: learned from its batches, and kept for its next
process."""

from __future__ import annotations

import contextlib
import json
import math
import os
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

_FILE = "schedule-costs-{app}.json"
# How much of a new measurement is taken over, if it is lower and if it is higher: whatever else runs, and memory that
# is touched for the first time, can only make a batch dearer. After how many of them guesses about others follow.
_LOWER, _HIGHER, _FOLLOW = 0.4, 0.1, 16
_AT_FIRST = 0.8  # of the first measurement
# A small batch stays in the caches of a core, so what it costs is learned apart. It tells what a batch costs to begin
# with; a large one, what an access costs to build in. From smaller ones nothing can be learned.
_LARGE, _SMALL = 4096, 512
# What keeping versions and exploring cost is what a batch took more than its work: where an access is work for longer
# than this, in seconds, that is but the error of what is thought of the work.
_DEAR = 1.5e-6


@dataclass(frozen=True, slots=True)
class Cost:
    """In seconds."""

    start: float = 0.25e-3  # of a batch
    entry: float = 40e-9  # of building, for an access, by the wall clock
    more: float = 100e-9  # of exploring and of keeping versions, for an access, on one thread


# Before anything was measured: large batches on two cores of 2024, of apps that suit graphs, for what seems too dear is
# not tried and never known better. What counts is how they compare with each other.
_FIRST = {
    "bfs/transaction/eager": Cost(more=50e-9),
    "dfs/transaction/eager": Cost(more=60e-9),
    "ready/transaction/eager": Cost(more=80e-9),
    "dfs/operation/lazy": Cost(entry=50e-9, more=120e-9),
    "ready/operation/lazy": Cost(entry=50e-9, more=180e-9),
    "ready/operation/eager": Cost(entry=50e-9, more=240e-9),
}
# What small batches take of that.
_CACHED = 0.5


@dataclass(slots=True)
class Costs:
    directory: Path | None = None
    app: str = ""
    known: dict[str, Cost] = field(default_factory=dict)
    learned: int = 0  # measurements, since it was last kept
    _at_hand: dict[tuple[str, int, bool], Cost] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.directory is not None:
            with contextlib.suppress(OSError, ValueError, TypeError):
                stored = json.loads((self.directory / self._file).read_text())
                self.known = {name: Cost(**cost) for name, cost in stored.items()}

    @property
    def _file(self) -> str:
        return _FILE.format(app=self.app)

    def of(self, name: str, threads: int, events: float) -> Cost:
        key = name, threads, events < _LARGE
        found = self._at_hand.get(key)
        if found is None:
            where = _where(threads, events)
            found = self._at_hand[key] = self.known.get(f"{name}:{where}") or self._guess(name, where)
        return found

    def _guess(self, name: str, where: str) -> Cost:
        """A policy that has not run yet: as much dearer than thought as those that have, or it would be preferred to
        them for nothing but its being unknown. Those of its own unit tell most."""
        first = _first(name, where)
        known = [n for n in _FIRST if f"{n}:{where}" in self.known]
        if not known:
            return first
        alike = [n for n in known if _unit(n) == _unit(name)]
        ran = [(self.known[f"{n}:{where}"], _first(n, where)) for n in alike or known]
        start, entry, more = (
            math.exp(math.fsum(math.log(max(getattr(own, of), 1e-9) / getattr(was, of)) for own, was in ran) / len(ran))
            for of in ("start", "entry", "more")
        )
        return Cost(first.start * start, first.entry * entry, first.more * more)

    def learn(
        self, name: str, threads: int, *, events: int, entries: int, work: float, spent: dict[str, float]
    ) -> None:
        """One batch's truth, in thread-seconds. work: of the serial loop, as it was thought to be."""
        if name not in _FIRST or events < _SMALL:
            return
        old = self.of(name, threads, events)
        higher = _HIGHER if f"{name}:{_where(threads, events)}" in self.known else _AT_FIRST
        start, entry, building = old.start, old.entry, spent["construct"] / threads
        if events < _LARGE:
            start = _towards(start, max(0.0, building - entries * entry), higher)
        else:
            entry = _towards(entry, max(0.0, building - start) / max(1, entries), higher)
        more = old.more
        if work < _DEAR * entries:
            took = spent["useful"] + spent["abort"] + spent["explore"]
            more = _towards(more, max(0.0, took - work) / entries, higher)
        learned = self._at_hand[name, threads, events < _LARGE] = Cost(start, entry, more)
        self.known[f"{name}:{_where(threads, events)}"] = learned
        self.learned += 1
        if self.learned % _FOLLOW == 1:
            self._at_hand.clear()

    def forget(self, threads: int, events: int) -> None:
        """What was learned of batches of this size: perhaps only something else that ran made them dear."""
        where = f":{_where(threads, events)}"
        self.known = {key: cost for key, cost in self.known.items() if not key.endswith(where)}
        self._at_hand.clear()

    def keep(self) -> None:
        """Write what was learned; a place that cannot be written to means learning again."""
        if self.directory is None or not self.learned:
            return
        with contextlib.suppress(OSError):
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            temporary = self.directory / f"{self._file}.{os.getpid()}"
            temporary.write_text(json.dumps({name: asdict(cost) for name, cost in self.known.items()}, indent=1))
            temporary.replace(self.directory / self._file)
            self.learned = 0


def _unit(name: str) -> str:
    return name.split("/")[1]


def _where(threads: int, events: float) -> str:
    return f"{threads}:{'small' if events < _LARGE else 'large'}"


def _first(name: str, where: str) -> Cost:
    first = _FIRST.get(name, Cost())
    return replace(first, entry=_CACHED * first.entry, more=_CACHED * first.more) if where.endswith("small") else first


def _towards(old: float, new: float, higher: float) -> float:
    """A little of the new; one measurement that is far off must not count for much."""
    return old + (_LOWER if new < old else higher) * (min(max(new, old / 2), 3 * old) - old)
