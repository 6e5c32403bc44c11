"""What it costs an app to build and explore a graph on this machine: learned from its batches, and saved for its next
process.

    cost of a policy  =  first estimate  x  a factor common to all policies  x  a factor of its own

The common factor follows every batch, whichever policy ran it: what slows the machine down for a while must not make
the policy that ran meanwhile look worse than those that did not. A policy's own factor follows slowly, and fades while
others run.

What a batch took beyond its work, building left out, is the cost of keeping versions and the error of the estimate of
the work. Both are common to all policies. Exploring is a policy's own cost and is not scaled by the common factor:
where versions seem to cost nothing, policies would otherwise seem equal.
"""

from __future__ import annotations

import contextlib
import json
import math
from dataclasses import dataclass, field
from pathlib import Path

from penstock.execute.cache import read, write

_FILE = "schedule-learned-2-{app}.json"  # the number changes with the meaning of the factors
# How much of a new measurement is taken over, as an exponent of its ratio to what was expected: if it is lower, if it
# is higher, and the first one. Whatever else runs, and memory that is touched for the first time, can only make a batch
# slower, so lower ones count for more. Chosen by hand.
_FOLLOW_DOWN, _FOLLOW_UP, _FOLLOW_FIRST = 0.4, 0.1, 0.8
# The share of a change of the common factor that also goes to the factor of the policy that ran, lower and higher
# alike: otherwise that policy would come to look better than others, or worse, only because it ran. Its first batch
# changes nothing: it touches arrays that no other policy needs. Chosen by hand.
_OWN_SHARE = 0.1
# Bounds of one measurement over what was expected, and of a factor. One that is far off must not count for much, nor
# must many. Chosen by hand.
_LEAST_RATIO, _MOST_RATIO, _FACTOR_BOUNDS = 0.5, 3.0, (0.3, 10.0)
# Bounds of what trials may correct: a policy's time besides the work, over its estimate. Chosen by hand.
_CORRECTION_BOUNDS = (0.5, 2.0)
# How much of a policy's own factor is left, as an exponent, after each batch of another policy: half of it after 34.
# Chosen by hand.
_FADE = 0.98
# Events from which a batch is large. A smaller one stays in the caches of a core, so its costs are learned separately.
# Small batches show what it costs to begin one, large ones what an access costs to build. Chosen by hand.
_LARGE = 4096
# From batches of fewer events nothing is learned. Chosen by hand.
_LEAST_EVENTS = 128
# The overhead of versions and exploring is what a batch took beyond its work. Where the work of an access takes longer
# than this, in seconds, that difference is mostly the error of the estimated work. Chosen by hand.
_LONG_WORK = 1.5e-6


@dataclass(frozen=True, slots=True)
class Cost:
    """What a policy costs besides the work, in seconds."""

    exploring: float  # to find the next task: per access, on one thread
    versions: float = 20e-9  # to keep versions: per access, on one thread
    entry: float = 40e-9  # to build the graph: per access, of wall time
    start: float = 0.25e-3  # to begin a batch

    @property
    def overhead(self) -> float:
        """Per access while threads explore."""
        return self.versions + self.exploring


# Policy -> its cost, in seconds, before anything was measured. Measured on large batches on two cores of an AMD EPYC,
# of apps that suit graphs (docs/SCHEDULING.md): what seems too expensive is not tried, so too low is better than
# too high. What counts is how they compare with each other. The defaults in Cost belong to them.
_FIRST_ESTIMATES = {
    "bfs/transaction/eager": Cost(0.0),
    "dfs/transaction/eager": Cost(45e-9),
    "ready/transaction/eager": Cost(90e-9),
    "bfs/operation/eager": Cost(80e-9, entry=50e-9),
    "dfs/operation/eager": Cost(120e-9, entry=50e-9),
    "dfs/operation/lazy": Cost(90e-9, entry=50e-9),
    "ready/operation/lazy": Cost(150e-9, entry=50e-9),
    "ready/operation/eager": Cost(210e-9, entry=50e-9),
}
# The share of these costs per access that small batches take, which stay in the caches. Chosen by hand.
_CACHED = 0.5

# Of start, of entry, of versions. The last factor of a policy's own is of exploring too. Where trials corrected a
# policy, only the last counts: it is of all that the policy takes besides the work.
Factors = tuple[float, float, float]
_NEUTRAL: Factors = (1.0, 1.0, 1.0)


@dataclass(slots=True)
class Costs:
    directory: Path | None = None
    app: str = ""
    # Those common to all policies, by threads and size; those of one policy; and corrections by trials.
    factors: dict[str, Factors] = field(default_factory=dict)
    unsaved: int = 0  # measurements since they were last saved
    _cache: dict[tuple[str, int, bool], Cost] = field(default_factory=dict)

    def __post_init__(self) -> None:
        saved = read(self.directory, self._file) if self.directory is not None else None
        if saved is not None:
            # If it is no longer what was written, nothing is known.
            with contextlib.suppress(ValueError, TypeError, AttributeError, ArithmeticError, RecursionError):
                self.factors = {key: _clamp(*map(float, factors)) for key, factors in json.loads(saved).items()}

    @property
    def _file(self) -> str:
        return _FILE.format(app=self.app)

    def of(self, name: str, threads: int, events: float) -> Cost:
        """The cost of a policy, for batches of so many events."""
        key = name, threads, events < _LARGE
        found = self._cache.get(key)
        if found is None:
            size_key = _size_key(threads, events)
            common, own = self.factors.get(size_key, _NEUTRAL), self.factors.get(f"{name}:{size_key}", _NEUTRAL)
            first, cached = _FIRST_ESTIMATES[name], _CACHED if events < _LARGE else 1.0
            found = self._cache[key] = Cost(
                start=first.start * common[0] * own[0],
                entry=first.entry * common[1] * own[1] * cached,
                versions=first.versions * common[2] * own[2] * cached,
                exploring=first.exploring * own[2] * cached,
            )
        return found

    def learn(
        self, name: str, threads: int, *, events: int, entries: int, work: float, spent: dict[str, float]
    ) -> None:
        """What one batch took, in thread-seconds. work: the estimate of the serial loop's."""
        if name not in _FIRST_ESTIMATES or events < _LEAST_EVENTS:
            return
        expected, building = self.of(name, threads, events), spent["construct"] / threads
        start = entry = overhead = 1.0
        if events < _LARGE:
            start = _ratio(expected.start, building - entries * expected.entry)
        else:
            entry = _ratio(expected.entry, (building - expected.start) / max(1, entries))
        if work < _LONG_WORK * entries:
            took = spent["useful"] + spent["abort"] + spent["explore"]
            overhead = _ratio(expected.overhead, (took - work) / entries)
        self._update(_size_key(threads, events), name, (start, entry, overhead))
        self._cache.clear()
        self.unsaved += 1

    def _update(self, size_key: str, name: str, ratios: Factors) -> None:
        """ratios: what was measured of this policy, over what was expected of it."""
        common, own, factors = self.factors.get(size_key), self.factors.get(f"{name}:{size_key}"), self.factors
        if common is None:
            factors[size_key] = _scale(_NEUTRAL, ratios, _FOLLOW_FIRST, _FOLLOW_FIRST)
            factors[f"{name}:{size_key}"] = _NEUTRAL
        elif own is None:
            factors[f"{name}:{size_key}"] = _NEUTRAL
        else:
            factors[size_key] = changed = _scale(common, ratios, _FOLLOW_DOWN, _FOLLOW_UP)
            # A share of how far the common factor went: what its bounds cut off is not this policy's own either.
            factors[f"{name}:{size_key}"] = _clamp(
                *(o * (new / old) ** _OWN_SHARE for o, new, old in zip(own, changed, common, strict=True))
            )
        for other in _FIRST_ESTIMATES:
            fading = factors.get(f"{other}:{size_key}")
            if fading is not None and other != name:
                factors[f"{other}:{size_key}"] = _scale(_NEUTRAL, fading, _FADE, _FADE)

    def correction(self, name: str, threads: int, events: float, hot: bool) -> float | None:
        """What trials showed this policy to take besides the work, over its estimate, for batches with a hot record or
        without. None: there were no trials."""
        known = self.factors.get(_trial_key(name, threads, events, hot))
        return None if known is None else known[2]

    def correct(self, name: str, threads: int, events: float, hot: bool, ratio: float) -> None:
        """Trials show that it takes so many times as much as its corrected estimate."""
        before = self.correction(name, threads, events, hot) or 1.0
        low, high = _CORRECTION_BOUNDS
        self.factors[_trial_key(name, threads, events, hot)] = 1.0, 1.0, min(max(before * ratio, low), high)
        self.unsaved += 1

    def forget(self, threads: int, events: int) -> None:
        """Forget what was learned of batches of this size: perhaps only something else that ran made them slow.
        Corrections stay, for trials compare policies."""
        size_key = _size_key(threads, events)
        self.factors = {key: factors for key, factors in self.factors.items() if not f":{key}".endswith(f":{size_key}")}
        self._cache.clear()

    def save(self) -> None:
        """Write what was learned. Where nothing can be written, the next process learns anew."""
        if self.directory is None or not self.unsaved:
            return
        if write(self.directory, self._file, json.dumps(self.factors, indent=1).encode()):
            self.unsaved = 0
            with contextlib.suppress(OSError):
                for older in self.directory.glob(f"schedule-*-{self.app}.json"):
                    if older.name != self._file:
                        older.unlink()


def _size_key(threads: int, events: float) -> str:
    return f"{threads}:{'small' if events < _LARGE else 'large'}"


def _trial_key(name: str, threads: int, events: float, hot: bool) -> str:
    return f"{_size_key(threads, events)}:{'hot' if hot else 'even'}:{name}"


def _ratio(expected: float, measured: float) -> float:
    return min(max(measured / expected, _LEAST_RATIO), _MOST_RATIO)


def _scale(factors: Factors, ratios: Factors, down: float, up: float) -> Factors:
    """down, up: the exponent of a ratio below 1, and of others."""
    return _clamp(*(f * r ** (down if r < 1.0 else up) for f, r in zip(factors, ratios, strict=True)))


def _clamp(start: float, entry: float, overhead: float) -> Factors:
    low, high = _FACTOR_BOUNDS
    if math.isnan(start + entry + overhead):
        raise ValueError("a factor is not a number")
    return min(max(start, low), high), min(max(entry, low), high), min(max(overhead, low), high)
