"""The adaptive policy: from what is measured of a batch, the schedule that should take the least time, and why.

    work       events x cost of one, measured on the first events of this very batch
    serial     work
    graph      building it + exploring it + max(work / threads, longest path)

A transaction's path is that of all the work of those that wait for each other; an operation's is only its record's
chain, so a hot record favours operations. Running ahead of decisions (lazy) pays for aborts twice. What building and
exploring cost is learned from the batches themselves and kept for the next process (costs.py).

The last choice stands unless another promises to be clearly faster: two that are nearly as good do not take turns.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache

from penstock.schedule.costs import Costs
from penstock.schedule.policy import Policy

# Another policy has to promise this much of the time of the last one; a graph, of a serial run's; a serial run, of what
# is left to do when the graph is there.
_BETTER, _BETTER_THAN_SERIAL, _BETTER_THAN_GRAPH = 0.95, 0.9, 0.95
# Below this much work no graph can be worth its building, in seconds.
LITTLE = 0.5e-3
# A whole transaction that aborts stops there; in pieces, the others run to their end: so much more of it.
_STOPPED = 0.8
# What running ahead has to redo grows with the aborts: each drags along what saw it.
_DRAGGED = 20.0
# Of what building costs, the part that is done when the graph is known.
_SUNK = 0.6
_BARRIER = 3e-6
# Where a record is hot, tasks pass through the common heap, and threads wait for its lock: seconds of an access for two
# threads, and how that grows with more. (Not lazy operations: who runs a hot record's makes its next one ready.)
_HEAP, _CROWD = 20e-9, 1.25
# A thread that keeps to its own share waits where another has an earlier part of a chain: so much of the hottest one.
_OWN_SHARE = 0.6


@dataclass(frozen=True, slots=True)
class Features:
    """What is known of a batch before it runs."""

    events: int
    cost: float  # seconds of one event
    threads: int
    accesses: float = 0.0  # records that an event reaches, on average
    cut: bool = False  # whether transactions can run in pieces
    abort_ratio: float = 0.0  # of recent batches
    chain: int = 0  # accesses to the record that is wanted most
    path: float = 0.0  # events on the longest path of whole events; 0: not binding

    @property
    def work(self) -> float:
        return self.events * self.cost

    @property
    def entries(self) -> float:
        return self.events * self.accesses

    @property
    def piece(self) -> float:
        """Seconds of one operation."""
        return self.cost / max(1.0, self.accesses)


@dataclass(frozen=True, slots=True)
class Choice:
    policy: Policy
    why: str


@dataclass(frozen=True, slots=True)
class _Candidate:
    name: str
    explore: str
    pieces: bool
    lazy: bool


def _candidate(name: str) -> _Candidate:
    explore, unit, on_abort = name.split("/")
    return _Candidate(name, explore, unit == "operation", on_abort == "lazy")


# Of two that seem equal the first.
_WHOLE = tuple(map(_candidate, ("bfs/transaction/eager", "dfs/transaction/eager", "ready/transaction/eager")))
_ALL = (*_WHOLE, *map(_candidate, ("dfs/operation/lazy", "ready/operation/lazy", "ready/operation/eager")))


@dataclass(slots=True)
class Chooser:
    costs: Costs
    last: str = "serial"
    estimates: dict[str, float] = field(default_factory=dict)  # of the last choice

    def worth_a_graph(self, f: Features) -> bool:
        """Whether a graph could win if nothing in the batch waited for anything."""
        if f.threads < 2 or f.work < LITTLE:
            return False
        least = min(self._seconds(f, one) for one in _WHOLE)
        return least < (_BETTER_THAN_SERIAL if self.last == "serial" else 1.0) * f.work

    def hopeless(self, f: Features) -> bool:
        """Whether a graph would not be worth it even if events cost twice as much as they did lately."""
        return not self.worth_a_graph(replace(f, cost=2 * f.cost))

    def serial(self, why: str) -> Choice:
        self.last = "serial"
        return Choice(policy("serial", 1), why)

    def choose(self, f: Features) -> Choice:
        """Of all candidates the one with the least estimate; f.chain and f.path are known now."""
        candidates = _ALL if f.cut and f.path else _WHOLE  # where nothing waits, pieces have nothing to gain
        self.estimates = {one.name: self._seconds(f, one) for one in candidates}
        best = min(self.estimates, key=self.estimates.__getitem__)
        kept = self.estimates.get(self.last)
        if kept is not None and self.estimates[best] > _BETTER * kept:
            best = self.last
        # By now the graph is there: what it cost is spent either way, and a serial run would be a waste of it.
        left = self.estimates[best] - _SUNK * f.entries * self.costs.of(best, f.threads, f.events).entry
        self.estimates["serial"] = f.work
        if f.work < _BETTER_THAN_GRAPH * left:
            best = "serial"
        self.last = best
        return Choice(policy(best, f.threads), self._why(f, best))

    def _seconds(self, f: Features, one: _Candidate) -> float:
        own = self.costs.of(one.name, f.threads, f.events)
        redo = _redone(f) if one.lazy else 0.0
        done = f.work / (1 - _STOPPED * f.abort_ratio) if one.pieces else f.work
        work, waits = (done * (1 + redo) + f.entries * own.more) / f.threads, 0.0
        if one.explore == "bfs":  # every stratum ends with a barrier, and with threads that have nothing left to do
            work += max(f.chain, f.path) * (_BARRIER + f.cost / 2)
        elif one.explore == "dfs":
            waits = _OWN_SHARE * f.chain * (f.piece if one.pieces else f.cost)
        elif f.path and not one.lazy:
            work = max(work, f.entries * _HEAP * (f.threads - 1) ** _CROWD)
        return own.start + f.entries * own.entry + max(work, _path(f, one, own.more)) + waits

    def _why(self, f: Features, best: str) -> str:
        seconds, other = min((s, n) for n, s in self.estimates.items() if n != best)
        return (
            f"{f.events} events of {_time(f.cost)}, {f.accesses:.1f} records each, {f.chain} accesses to the hottest, "
            f"{100 * f.abort_ratio:.0f}% aborted lately: {_time(self.estimates[best])} on {f.threads} threads "
            f"against {_time(seconds)} for {other}"
        )


def _path(f: Features, one: _Candidate, more: float) -> float:
    if not one.pieces:
        return f.path * (f.cost + f.accesses * more)
    # Cautious operations wait for whole transactions, whose pieces run side by side; and so does what is redone.
    cautious = max(f.chain, f.path) * (f.piece + more)
    return f.chain * (f.piece + more) + _redone(f) * cautious if one.lazy else cautious


def _redone(f: Features) -> float:
    """The share of the work that running ahead does twice."""
    return min(1.0, _DRAGGED * f.abort_ratio)


@lru_cache(maxsize=256)
def policy(name: str, threads: int) -> Policy:
    return Policy.serial() if name == "serial" else Policy.parse(name, threads)


def too_little(events: int, cost: float) -> str:
    """Why a batch is not worth a graph. Small ones have no time for more words."""
    return f"{events} events of {1e6 * cost:.3g} us are less work than a graph would cost"


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.0f} ns"
