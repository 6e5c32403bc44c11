"""What building and exploring a graph costs an app on this machine: learned from its batches, and kept for its next
process.

A policy costs what was thought of it at first, times what all of them cost more, or less, than thought, times what it
alone does. The second follows every batch, whoever ran it: what slows the machine down for a while must not make the
policy that ran meanwhile look worse than those that did not. The third follows slowly, and fades while others run.

What a batch took more than its work, but for building, is keeping versions, and whatever is wrong with what is thought
of the work: that is common to all. Exploring is each policy's own, and is not scaled with it: or where versions seem to
cost nothing, so would the difference between the policies.
"""

from __future__ import annotations

import contextlib
import json
import math
from dataclasses import dataclass, field
from pathlib import Path

from penstock.execute.cache import read, write

_FILE = "schedule-learned-2-{app}.json"  # the number: of what the factors mean
# How much of a new measurement is taken over, if it is lower and if it is higher: whatever else runs, and memory that
# is touched for the first time, can only make a batch dearer. How much at first.
_LOWER, _HIGHER, _AT_FIRST = 0.4, 0.1, 0.8
# So much of that is thought to be one policy's own, lower and higher in the same proportion: or the one that runs would
# come to look better than the others, or worse, for no more than having run. Of its first batch, which touches arrays
# that no other needs, nothing.
_OWN = 0.1
# One measurement that is far off must not count for much; nor must all that were.
_LEAST, _MOST, _BOUNDS = 0.5, 3.0, (0.3, 10.0)
# What is thought of a policy besides the work may be that wrong.
_WRONG = (0.5, 2.0)
# What is left of what is known of one policy alone after a batch of another.
_FADES = 0.98
# A small batch stays in the caches of a core, so what it costs is learned apart. It tells what a batch costs to begin
# with; a large one, what an access costs to build in. From smaller ones nothing can be learned.
_LARGE, _SMALL = 4096, 128
# What keeping versions and exploring cost is what a batch took more than its work: where an access is work for longer
# than this, in seconds, that is but the error of what is thought of the work.
_DEAR = 1.5e-6


@dataclass(frozen=True, slots=True)
class Cost:
    """In seconds."""

    exploring: float  # for an access, on one thread
    versions: float = 20e-9  # of keeping them, likewise
    entry: float = 40e-9  # of building, for an access, by the wall clock
    start: float = 0.25e-3  # of a batch

    @property
    def more(self) -> float:
        """Than the work itself."""
        return self.versions + self.exploring


# Before anything was measured: large batches on two cores of 2024, of apps that suit graphs, for what seems too dear is
# not tried and never known better. What counts is how they compare with each other.
_FIRST = {
    "bfs/transaction/eager": Cost(0.0),
    "dfs/transaction/eager": Cost(45e-9),
    "ready/transaction/eager": Cost(90e-9),
    "bfs/operation/eager": Cost(80e-9, entry=50e-9),
    "dfs/operation/eager": Cost(120e-9, entry=50e-9),
    "dfs/operation/lazy": Cost(90e-9, entry=50e-9),
    "ready/operation/lazy": Cost(150e-9, entry=50e-9),
    "ready/operation/eager": Cost(210e-9, entry=50e-9),
}
# What small batches take of that.
_CACHED = 0.5

# Of start, entry and versions; one policy's own last: of exploring too. Of a policy that was tried, only the last: of
# all that it takes besides the work.
Factors = tuple[float, float, float]
_AS_THOUGHT: Factors = (1.0, 1.0, 1.0)


@dataclass(slots=True)
class Costs:
    directory: Path | None = None
    app: str = ""
    known: dict[str, Factors] = field(default_factory=dict)  # by threads and size; and those of one policy alone
    learned: int = 0  # measurements, since it was last kept
    _at_hand: dict[tuple[str, int, bool], Cost] = field(default_factory=dict)

    def __post_init__(self) -> None:
        kept = read(self.directory, self._file) if self.directory is not None else None
        if kept is not None:
            # It is no longer what was written: then nothing is known.
            with contextlib.suppress(ValueError, TypeError, AttributeError, ArithmeticError, RecursionError):
                self.known = {where: _bounded(*map(float, factors)) for where, factors in json.loads(kept).items()}

    @property
    def _file(self) -> str:
        return _FILE.format(app=self.app)

    def of(self, name: str, threads: int, events: float) -> Cost:
        key = name, threads, events < _LARGE
        found = self._at_hand.get(key)
        if found is None:
            where = _where(threads, events)
            every, own = self.known.get(where, _AS_THOUGHT), self.known.get(f"{name}:{where}", _AS_THOUGHT)
            first, size = _FIRST[name], _CACHED if events < _LARGE else 1.0
            found = self._at_hand[key] = Cost(
                start=first.start * every[0] * own[0],
                entry=first.entry * every[1] * own[1] * size,
                versions=first.versions * every[2] * own[2] * size,
                exploring=first.exploring * own[2] * size,
            )
        return found

    def learn(
        self, name: str, threads: int, *, events: int, entries: int, work: float, spent: dict[str, float]
    ) -> None:
        """One batch's truth, in thread-seconds. work: of the serial loop, as it was thought to be."""
        if name not in _FIRST or events < _SMALL:
            return
        old, building = self.of(name, threads, events), spent["construct"] / threads
        start = entry = more = 1.0
        if events < _LARGE:
            start = _off(old.start, building - entries * old.entry)
        else:
            entry = _off(old.entry, (building - old.start) / max(1, entries))
        if work < _DEAR * entries:
            took = spent["useful"] + spent["abort"] + spent["explore"]
            more = _off(old.more, (took - work) / entries)
        self._take_over(_where(threads, events), name, (start, entry, more))
        self._at_hand.clear()
        self.learned += 1

    def _take_over(self, where: str, name: str, off: Factors) -> None:
        """off: how far off what was thought of this policy was."""
        every, own, known = self.known.get(where), self.known.get(f"{name}:{where}"), self.known
        if every is None:
            known[where], known[f"{name}:{where}"] = _times(_AS_THOUGHT, off, _AT_FIRST, _AT_FIRST), _AS_THOUGHT
        elif own is None:
            known[f"{name}:{where}"] = _AS_THOUGHT
        else:
            known[where] = common = _times(every, off, _LOWER, _HIGHER)
            # A part of how far that went: beyond its bounds, the rest is not this policy's own either.
            known[f"{name}:{where}"] = _bounded(
                *(o * (c / e) ** _OWN for o, c, e in zip(own, common, every, strict=True))
            )
        for other in _FIRST:
            fading = known.get(f"{other}:{where}")
            if fading is not None and other != name:
                known[f"{other}:{where}"] = _times(_AS_THOUGHT, fading, _FADES, _FADES)

    def correction(self, name: str, threads: int, events: float, hot: bool) -> float | None:
        """What this policy takes besides the work, over what is thought, where a record is hot or none is; None: not
        known."""
        known = self.known.get(_tried(name, threads, events, hot))
        return None if known is None else known[2]

    def correct(self, name: str, threads: int, events: float, hot: bool, more: float) -> None:
        """Trials tell that it is yet so many times as much."""
        before = self.correction(name, threads, events, hot) or 1.0
        low, high = _WRONG
        self.known[_tried(name, threads, events, hot)] = 1.0, 1.0, min(max(before * more, low), high)
        self.learned += 1

    def forget(self, threads: int, events: int) -> None:
        """What was learned of batches of this size: perhaps only something else that ran made them dear. Not what
        trials told, which compare policies."""
        where = _where(threads, events)
        self.known = {key: factors for key, factors in self.known.items() if not f":{key}".endswith(f":{where}")}
        self._at_hand.clear()

    def keep(self) -> None:
        """Write what was learned; a place that cannot be written to means learning again."""
        if self.directory is None or not self.learned:
            return
        if write(self.directory, self._file, json.dumps(self.known, indent=1).encode()):
            self.learned = 0
            with contextlib.suppress(OSError):
                for older in self.directory.glob(f"schedule-*-{self.app}.json"):
                    if older.name != self._file:
                        older.unlink()


def _where(threads: int, events: float) -> str:
    return f"{threads}:{'small' if events < _LARGE else 'large'}"


def _tried(name: str, threads: int, events: float, hot: bool) -> str:
    return f"{_where(threads, events)}:{'hot' if hot else 'even'}:{name}"


def _off(thought: float, seen: float) -> float:
    return min(max(seen / thought, _LEAST), _MOST)


def _times(factors: Factors, off: Factors, lower: float, higher: float) -> Factors:
    return _bounded(*(f * o ** (lower if o < 1.0 else higher) for f, o in zip(factors, off, strict=True)))


def _bounded(start: float, entry: float, more: float) -> Factors:
    low, high = _BOUNDS
    if math.isnan(start + entry + more):
        raise ValueError("a factor is not a number")
    return min(max(start, low), high), min(max(entry, low), high), min(max(more, low), high)
