"""The adaptive policy: from what is measured of a batch, the schedule that should take the least time, and why.

    work       events x cost of one, as it was lately
    serial     work
    graph      building it + exploring it

    bfs        every stratum as long as its largest task or its share of all; and a barrier
    dfs        work / threads + what a thread waits for chains that lie in the shares of others, of which it is
               some part of the longest path, and more where that path is all there is
    ready      max(work / threads, longest path) + waiting for the lock of the common heap

A transaction's path is that of all the work of those that wait for each other; an operation's is only its record's
chain, so a hot record favours operations. Running ahead of decisions (lazy) pays for aborts twice: what is redone is
explored cautiously. What building costs, and keeping versions, is learned from the batches themselves and kept for the
next process (costs.py). The numbers below were fitted to runs on 2, 4 and 16 threads (docs/SCHEDULING.md).

The last choice stands unless another promises to be clearly faster, or the same one to be somewhat faster for a while:
two that are nearly as good do not take turns. But each is tried, twice, before that is believed (trials.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache

from penstock.schedule.costs import Cost, Costs
from penstock.schedule.policy import Policy, redone
from penstock.schedule.price import SAME, STOPPED
from penstock.schedule.trials import Trials

# Another policy has to promise this much of the time of the last one; a graph, of a serial run's; a serial run, of what
# is left to do when the graph is there.
_BETTER, _BETTER_THAN_SERIAL, _BETTER_THAN_GRAPH = 0.97, 0.9, 0.95
# Or only this much, for so many batches.
_SOMEWHAT, _LONG = 0.99, 4
# Below this much work no graph can be worth its building, in seconds.
LITTLE = 0.5e-3
# What running ahead has to redo grows with the aborts: each drags along what saw it.
_DRAGGED = 20.0
# Of what building costs, the part that is done when the graph is known.
_SUNK = 0.6
# A barrier of two threads, in seconds, and how that grows with more.
_BARRIER, _ALL_ARRIVE = 0.45e-6, 0.65
# Where many events wait for the same record, the way to the next of them is short: so much of exploring is saved.
_TRODDEN = {"bfs": 0.0, "dfs": 1.0, "ready": 0.5}
# A thread that keeps to its own share waits where another has an earlier part of a chain: so many times the longest
# path, if nearly all of it lies with others; and every step of it takes so much longer, in seconds.
_OTHERS, _HANDED = 2.0, 2e-6
# Where a record is hot, tasks pass through the common heap, and threads wait for its lock: seconds of an access for two
# threads, and how that grows with more; less if fewer accesses a second are to be done than would keep it busy. The
# fragments of a transaction pass through it one by one. (Not lazy operations: who runs a hot record's makes its next
# one ready.)
_HEAP, _CROWD, _BUSY, _PIECES = 10e-9, 0.95, 8e6, 1.5
# Accesses to a hot record that only read it need not wait for each other, so the longest path may be shorter than they
# are many; up to so many times, for it is that of a part of the events only.
_READERS = 4


@dataclass(frozen=True, slots=True)
class Features:
    """What is known of a batch before it runs."""

    events: int
    cost: float  # seconds of one event
    threads: int
    accesses: float = 0.0  # records that an event reaches, on average
    cut: bool = False  # whether transactions can run in fragments
    abort_ratio: float = 0.0  # of recent batches
    chain: int = 0  # accesses to the record that is wanted most
    path: float = 0.0  # events on the longest path of whole events; 0: not binding, nor are those that follow
    strata: float = 0.0  # of whole events
    rounds: float = 0.0  # events that a thread runs or waits for, if all go through them stratum by stratum

    @property
    def work(self) -> float:
        return self.events * self.cost

    @property
    def entries(self) -> float:
        return self.events * self.accesses

    @property
    def fragments(self) -> float:
        """Seconds of all operations, if those of an event that aborts run to their end."""
        return self.work / (1 - STOPPED * self.abort_ratio)


@dataclass(frozen=True, slots=True)
class Choice:
    policy: Policy
    why: str
    tried: bool = False  # not the best of the estimates, but near it


@dataclass(frozen=True, slots=True)
class _Candidate:
    name: str
    explore: str
    fragments: bool
    lazy: bool


def _candidate(name: str) -> _Candidate:
    explore, unit, on_abort = name.split("/")
    return _Candidate(name, explore, unit == "operation", on_abort == "lazy")


# Of two that seem equal the first.
_WHOLE = tuple(map(_candidate, ("bfs/transaction/eager", "dfs/transaction/eager", "ready/transaction/eager")))
_ALL = (
    *_WHOLE,
    *(_candidate(f"{explore}/operation/eager") for explore in ("bfs", "dfs", "ready")),
    *(_candidate(f"{explore}/operation/lazy") for explore in ("dfs", "ready")),
)


def _candidates(f: Features) -> tuple[_Candidate, ...]:
    return _ALL if f.cut and f.path else _WHOLE  # where nothing waits, fragments have nothing to gain


@dataclass(slots=True)
class Chooser:
    costs: Costs
    last: str = "serial"
    estimates: dict[str, float] = field(default_factory=dict)  # of the last choice
    found: Features | None = None  # of the last batch that had a graph
    trials: Trials = field(init=False)
    _rival: str = ""  # what promised to be somewhat faster than the last choice
    _since: int = 0  # for how many batches

    def __post_init__(self) -> None:
        self.trials = Trials(self.costs)

    def worth_a_graph(self, f: Features) -> bool:
        """Whether a graph could win, if the batch is like the last one of its size; or if nothing in it waited for
        anything, where there was none."""
        if f.threads < 2 or f.work < LITTLE:
            return False
        was = self.found
        if was and was.threads == f.threads and SAME * was.events < f.events < was.events / SAME:
            f = replace(f, chain=was.chain, path=was.path, strata=was.strata, rounds=was.rounds)
        enough = (_BETTER_THAN_SERIAL if self.last == "serial" else 1.0) * f.work
        return any(self._seconds(f, one) < enough for one in _candidates(f))

    def hopeless(self, f: Features) -> bool:
        """Whether it would be run serially, as the last one was, even if events cost twice as much."""
        return self.last == "serial" and not self.worth_a_graph(replace(f, cost=2 * f.cost))

    def forget(self, f: Features) -> None:
        """What was learned of such batches: perhaps only something else that ran made them dear. The next one need only
        promise to be no slower by a graph."""
        self.costs.forget(f.threads, f.events)
        self.last, self.found = "", None

    def serial(self, why: str) -> Choice:
        self.last = "serial"
        return Choice(policy("serial", 1), why)

    def choose(self, f: Features) -> Choice:
        """Of all candidates the one with the least estimate; what the graph tells is known now."""
        self.estimates = self.trials.corrected(f, {one.name: self._seconds(f, one) for one in _candidates(f)})
        best = min(self.estimates, key=self.estimates.__getitem__)
        if not self._takes_over(best):
            best = self.last
        # By now the graph is there: what it cost is spent either way, and a serial run would be a waste of it.
        left = self.estimates[best] - _SUNK * f.entries * self.costs.of(best, f.threads, f.events).entry
        self.estimates["serial"] = f.work
        if f.work < _BETTER_THAN_GRAPH * left:
            best = "serial"
        self.last, self.found = best, f
        rival = None if best == "serial" else self.trials.rival(best, self.estimates)
        if rival is not None:
            return Choice(policy(rival, f.threads), f"to see how it compares: {self._why(f, rival)}", tried=True)
        return Choice(policy(best, f.threads), self._why(f, best))

    def _takes_over(self, best: str) -> bool:
        """Whether the best of the estimates is enough better than the last choice."""
        kept = self.estimates.get(self.last)
        if kept is None or self.estimates[best] >= _SOMEWHAT * kept:
            self._rival, self._since = "", 0
            return kept is None
        self._rival, self._since = best, self._since + 1 if best == self._rival else 1
        return self.estimates[best] < _BETTER * kept or self._since >= _LONG

    def _seconds(self, f: Features, one: _Candidate) -> float:
        own = self.costs.of(one.name, f.threads, f.events)
        exploring = _exploring(f, one.explore, one.fragments, one.lazy, own)
        if one.lazy:
            by = redone(one.explore, f.fragments / max(1.0, f.entries), f.threads)
            again = _exploring(f, by, True, False, own)
            exploring += min(1.0, _DRAGGED * f.abort_ratio) * again
        return own.start + f.entries * own.entry + exploring

    def _why(self, f: Features, best: str) -> str:
        seconds, other = min((s, n) for n, s in self.estimates.items() if n != best)
        return (
            f"{f.events} events of {_time(f.cost)}, {f.accesses:.1f} records each, {f.chain} accesses to the hottest, "
            f"{100 * f.abort_ratio:.0f}% aborted lately: {_time(self.estimates[best])} on {f.threads} threads "
            f"against {_time(seconds)} for {other}"
        )


def _exploring(f: Features, explore: str, fragments: bool, lazy: bool, own: Cost) -> float:
    trodden = 0.0 if fragments else _TRODDEN[explore] * min(1.0, 6 * f.chain * f.threads / f.events)
    work = (f.fragments if fragments else f.work) + f.entries * (own.versions + own.exploring * (1 - trodden))
    step = work / max(1.0, f.entries if fragments else f.events)  # of a path
    steps = f.chain if lazy else max(f.chain, f.path)
    if not fragments and _READERS * f.path >= f.chain:
        steps = f.path
    others, shared = 1 - 1 / f.threads, work / f.threads
    if explore == "bfs":
        barrier = _BARRIER * (f.threads - 1) ** _ALL_ARRIVE
        if f.rounds and not fragments:
            return f.rounds * step + f.strata * barrier
        return shared + steps * (barrier + (step if fragments else others * step / 2))
    path = steps * step
    if explore == "dfs":
        return max(shared + _OTHERS * others**3 * (path + steps * _HANDED), path * (1 + others**2))
    if lazy:
        return max(shared, path)
    hot = min(1.0, 4 * f.chain * f.threads / f.events)
    busy = min(1.0, f.entries / (_BUSY * max(shared, path)))
    crowd = f.entries * _HEAP * (f.threads - 1) ** _CROWD * (_PIECES * f.accesses if fragments else 1.0)
    return max(shared, path) + hot * busy * crowd


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
