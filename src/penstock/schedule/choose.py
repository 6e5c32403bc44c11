"""The choice of the adaptive policy: from what is known of a batch, the policy that should take the least time.

    work       events x cost of one, as it was lately
    serial     work
    graph      building it + exploring it

    bfs        every stratum as long as its largest task or its share of all, and a barrier
    dfs        work / threads + the wait for parts of chains that other threads own: some share of the longest path, and
               more where that path is most of the work
    ready      max(work / threads, longest path) + the wait for the lock of the shared heap

The path of whole transactions is all the work of those that wait for each other. The path of operations is only a
record's chain, so a hot record favours operations. Lazy policies, which run ahead of decisions, pay for aborts twice:
what is redone is explored eagerly. What it costs to build a graph and to keep versions is learned from the batches
themselves and saved for the next process (costs.py).

The last choice stands unless another promises to be clearly faster, or the same one to be slightly faster for a while:
two that are nearly as good do not take turns. Close rivals are tried, twice, before they are believed (trials.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache

from penstock.schedule.costs import Cost, Costs
from penstock.schedule.event_cost import ABORT_SAVING, SAME
from penstock.schedule.policy import Policy, redone
from penstock.schedule.trials import Trials

# To replace the last choice, a policy's estimate has to be less than this share of the last one's. Chosen by hand.
_CLEARLY_FASTER = 0.97
# Or less than this share, for so many batches in a row. Chosen by hand.
_SLIGHTLY_FASTER, _BATCHES_IN_A_ROW = 0.99, 4
# After a serial batch, a graph's estimate has to be less than this share of the serial loop's. Chosen by hand.
_FASTER_THAN_SERIAL = 0.9
# Once the graph is built, the serial loop's estimate has to be less than this share of what is left to do by the graph.
# Chosen by hand.
_FASTER_THAN_GRAPH = 0.95
# Seconds of work below which no graph can be worth building. Chosen by hand; twice Cost.start.
LEAST_WORK = 0.5e-3
# The share of the cost of building that is spent once the graph is known; the rest prepares tasks and installs
# versions. Chosen by hand.
_BUILT_SHARE = 0.6

# The numbers below were fitted together, to runs of ten policies on 2, 4 and 16 threads, over theta, transfers, aborts
# and costs from 0.15 to 10 us. Estimates are off by a tenth, or by a third where events cost less than signalling
# between threads (docs/SCHEDULING.md).

# lazy: the share of a batch that is redone, over the share that aborts. Each abort takes along what saw it: at a
# twentieth, all is redone.
_REDONE = 20.0
# bfs: a barrier of two threads, in seconds; it grows with threads - 1 to this power.
_BARRIER, _BARRIER_POWER = 0.45e-6, 0.65
# The share of exploring's cost that is saved, for whole transactions, where a record is hot: the way to the next event
# is short. All of this share is saved once the hottest record is reached for one in so many events of a thread's share.
_SAVED, _SAVED_HEAT = {"bfs": 0.0, "dfs": 1.0, "ready": 0.5}, 6
# dfs: how many times the longest path is waited for, if other threads own nearly all of it; and seconds until another
# thread sees one of its steps.
_WAIT, _HANDOVER = 2.0, 2e-6
# ready: seconds per access that two threads wait for the heap's lock; it grows with threads - 1 to this power.
_LOCK, _LOCK_POWER = 10e-9, 0.95
# They wait fully once the hottest record is reached for one in so many events of a thread's share, and once so many
# accesses a second are to be done. Lazy operations do not wait: who runs a hot record's makes its next one ready.
_LOCK_HEAT, _LOCK_RATE = 4, 8e6
# Fragments pass the heap one by one: so many times as long, for each access of an event.
_LOCK_FRAGMENTS = 1.5
# Accesses that only read a hot record need not wait for each other, so its chain may be longer than the longest path.
# The chain is ignored up to so many times the path. Not beyond: the path is that of a part of the events only.
_READERS = 4


@dataclass(frozen=True, slots=True)
class Features:
    """What is known of a batch before it runs."""

    events: int
    cost: float  # seconds of one event
    threads: int
    accesses: float = 0.0  # records that an event reaches, on average
    splittable: bool = False  # whether transactions can run in fragments
    abort_ratio: float = 0.0  # of recent batches
    chain: int = 0  # accesses to the hottest record
    path: float = 0.0  # events on the longest path of whole events; 0: it, strata and rounds do not matter
    strata: float = 0.0  # how many, of whole events
    rounds: float = 0.0  # events that a thread runs or waits for, if all go through them stratum by stratum

    @property
    def work(self) -> float:
        return self.events * self.cost

    @property
    def entries(self) -> float:
        return self.events * self.accesses

    @property
    def fragment_work(self) -> float:
        """Seconds of all operations, if those of an event that aborts run to their end."""
        return self.work / (1 - ABORT_SAVING * self.abort_ratio)


@dataclass(frozen=True, slots=True)
class Choice:
    policy: Policy
    why: str
    trial: bool = False  # whether the policy is tried: its estimate is close to the best


@dataclass(frozen=True, slots=True)
class _Candidate:
    name: str
    explore: str
    fragments: bool
    lazy: bool


def _parse_candidate(name: str) -> _Candidate:
    explore, unit, on_abort = name.split("/")
    return _Candidate(name, explore, unit == "operation", on_abort == "lazy")


# Of two with equal estimates the first is chosen.
_WHOLE = tuple(map(_parse_candidate, ("bfs/transaction/eager", "dfs/transaction/eager", "ready/transaction/eager")))
_ALL = (
    *_WHOLE,
    *(_parse_candidate(f"{explore}/operation/eager") for explore in ("bfs", "dfs", "ready")),
    *(_parse_candidate(f"{explore}/operation/lazy") for explore in ("dfs", "ready")),
)


def _candidates(f: Features) -> tuple[_Candidate, ...]:
    return _ALL if f.splittable and f.path else _WHOLE  # where nothing waits, fragments have nothing to gain


@dataclass(slots=True)
class Chooser:
    costs: Costs
    last: str = "serial"
    estimates: dict[str, float] = field(default_factory=dict)  # of the last choice
    last_features: Features | None = None  # of the last batch that had a graph
    trials: Trials = field(init=False)
    _challenger: str = ""  # the policy that promised to be slightly faster than the last choice
    _streak: int = 0  # for how many batches in a row

    def __post_init__(self) -> None:
        self.trials = Trials(self.costs)

    def graph_may_win(self, f: Features) -> bool:
        """Whether a graph could win. It is assumed that the batch is like the last one of its size; where there was
        none, that no event waits for another."""
        if f.threads < 2 or f.work < LEAST_WORK:
            return False
        last = self.last_features
        if last and last.threads == f.threads and SAME * last.events < f.events < last.events / SAME:
            f = replace(f, chain=last.chain, path=last.path, strata=last.strata, rounds=last.rounds)
        limit = (_FASTER_THAN_SERIAL if self.last == "serial" else 1.0) * f.work
        return any(self._estimate(f, one) < limit for one in _candidates(f))

    def serial_is_certain(self, f: Features) -> bool:
        """Whether the batch would run serially, as the last one did, even if events cost twice as much."""
        return self.last == "serial" and not self.graph_may_win(replace(f, cost=2 * f.cost))

    def forget(self, f: Features) -> None:
        """Forget what was learned of such batches: perhaps only something else that ran made them slow. A graph then
        only has to promise to be no slower than the serial loop."""
        self.costs.forget(f.threads, f.events)
        self.last, self.last_features = "", None

    def serial(self, why: str) -> Choice:
        """The serial loop, for a reason that needs no estimates."""
        self.last = "serial"
        return Choice(parse_policy("serial", 1), why)

    def choose(self, f: Features) -> Choice:
        """The candidate with the least estimate, now that the graph is built. Features are those of the graph."""
        self.estimates = self.trials.apply_corrections(f, {one.name: self._estimate(f, one) for one in _candidates(f)})
        best = min(self.estimates, key=self.estimates.__getitem__)
        if not self._replaces_last(best):
            best = self.last
        # What was spent to build the graph is spent either way: it counts for neither side.
        left = self.estimates[best] - _BUILT_SHARE * f.entries * self.costs.of(best, f.threads, f.events).entry
        self.estimates["serial"] = f.work
        if f.work < _FASTER_THAN_GRAPH * left:
            best = "serial"
        self.last, self.last_features = best, f
        rival = None if best == "serial" else self.trials.rival(best, self.estimates)
        if rival is not None:
            return Choice(
                parse_policy(rival, f.threads), f"to see how it compares: {self._reason(f, rival)}", trial=True
            )
        return Choice(parse_policy(best, f.threads), self._reason(f, best))

    def _replaces_last(self, best: str) -> bool:
        """Whether the policy with the best estimate is enough faster than the last choice."""
        standing = self.estimates.get(self.last)
        if standing is None or self.estimates[best] >= _SLIGHTLY_FASTER * standing:
            self._challenger, self._streak = "", 0
            return standing is None
        self._challenger, self._streak = best, self._streak + 1 if best == self._challenger else 1
        return self.estimates[best] < _CLEARLY_FASTER * standing or self._streak >= _BATCHES_IN_A_ROW

    def _estimate(self, f: Features, one: _Candidate) -> float:
        own = self.costs.of(one.name, f.threads, f.events)
        exploring = _exploring_time(f, one.explore, one.fragments, one.lazy, own)
        if one.lazy:
            by = redone(one.explore, f.fragment_work / max(1.0, f.entries), f.threads)
            again = _exploring_time(f, by, True, False, own)
            exploring += min(1.0, _REDONE * f.abort_ratio) * again
        return own.start + f.entries * own.entry + exploring

    def _reason(self, f: Features, best: str) -> str:
        seconds, other = min((s, n) for n, s in self.estimates.items() if n != best)
        return (
            f"{f.events} events of {_format_time(f.cost)}, {f.accesses:.1f} records each, "
            f"{f.chain} accesses to the hottest, {100 * f.abort_ratio:.0f}% aborted lately: "
            f"{_format_time(self.estimates[best])} on {f.threads} threads against {_format_time(seconds)} for {other}"
        )


def _exploring_time(f: Features, explore: str, fragments: bool, lazy: bool, own: Cost) -> float:
    """Seconds of wall time, with the events' own work."""
    saved = 0.0 if fragments else _SAVED[explore] * min(1.0, _SAVED_HEAT * f.chain * f.threads / f.events)
    work = (f.fragment_work if fragments else f.work) + f.entries * (own.versions + own.exploring * (1 - saved))
    step = work / max(1.0, f.entries if fragments else f.events)  # of a path
    steps = f.chain if lazy else max(f.chain, f.path)
    if not fragments and _READERS * f.path >= f.chain:
        steps = f.path
    others, shared = 1 - 1 / f.threads, work / f.threads
    if explore == "bfs":
        barrier = _BARRIER * (f.threads - 1) ** _BARRIER_POWER
        if f.rounds and not fragments:
            return f.rounds * step + f.strata * barrier
        return shared + steps * (barrier + (step if fragments else others * step / 2))
    path = steps * step
    if explore == "dfs":
        return max(shared + _WAIT * others**3 * (path + steps * _HANDOVER), path * (1 + others**2))
    if lazy:
        return max(shared, path)
    hot = min(1.0, _LOCK_HEAT * f.chain * f.threads / f.events)
    busy = min(1.0, f.entries / (_LOCK_RATE * max(shared, path)))
    lock = f.entries * _LOCK * (f.threads - 1) ** _LOCK_POWER * (_LOCK_FRAGMENTS * f.accesses if fragments else 1.0)
    return max(shared, path) + hot * busy * lock


@lru_cache(maxsize=256)
def parse_policy(name: str, threads: int) -> Policy:
    return Policy.serial() if name == "serial" else Policy.parse(name, threads)


def too_little_work(events: int, cost: float) -> str:
    """The reason of a batch that is not worth a graph. Small batches have no time for a longer one."""
    return f"{events} events of {1e6 * cost:.3g} us are less work than a graph would cost"


def _format_time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.0f} ns"
