"""Trials of policies whose estimates are close: estimates are off by more than such policies differ.

    the last choice   a rival   the last choice

A rival's time over the mean of its neighbours' compares the two: what slows the machine down for a while slows down
both. A rival is tried twice. Of the two ratios and the estimated one the median is believed from then on, so one batch
that was held up does not count. It corrects what the policy takes besides the events' own work, separately for batches
with a hot record and for those without. Corrections are saved with what else was learned of the app (costs.py). Now
and then a rival is tried again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.schedule.costs import Costs

if TYPE_CHECKING:
    from penstock.schedule.choose import Features

# A rival is close if the last choice's estimate is at least this share of its own: one that was never tried, and one
# that was. Chosen by hand, below what estimates are off by (a tenth, docs/SCHEDULING.md).
_CLOSE_UNTRIED, _CLOSE_TRIED = 0.94, 0.97
# Batches that are looked at until a rival is tried again. Chosen by hand.
_TRIAL_INTERVAL = 64
# There are no trials on batches of fewer events, which have no time for them. Chosen by hand.
_LEAST_EVENTS = 2048
# Nor where the events' own work is more than this share of the time: little else is left to be wrong about. Chosen by
# hand.
_MOST_WORK = 0.85
# A record is hot if it is reached at least once for every so many events of a thread's share. Chosen by hand.
_HOT = 10
# Batches are comparable if their events are as many to within the first ratio and cost the same to within the second,
# and if the shares that abort differ by at most the third. Chosen by hand.
_COMPARABLE_SIZE, _COMPARABLE_COST, _COMPARABLE_ABORTS = 0.7, 0.5, 0.2
_NEVER = float("inf")


class Trials:
    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._features: Features | None = None  # of the last batch that was looked at
        self._looks = 0  # how many were
        self._recent: list[tuple[str, float]] = []  # the last of them: policy, seconds of an event
        # A rival, the last choice, whether a record is hot -> the rival's times over the other's.
        self._ratios: dict[tuple[str, str, bool], list[float]] = {}
        self._trial_looks: dict[tuple[str, bool], int] = {}  # a policy, whether hot -> _looks at its last trial

    def apply_corrections(self, f: Features, estimates: dict[str, float]) -> dict[str, float]:
        """The estimates of a batch that is looked at, corrected by earlier trials."""
        if self._features is None or not _comparable(
            self._features, f, cost=len({name for name, _ in self._recent}) == 1
        ):
            self._recent = []
        self._features, self._looks, work = f, self._looks + 1, f.work / f.threads
        return {
            name: work + (seconds - work) * (self._correction(f, name) or 1.0) for name, seconds in estimates.items()
        }

    def rival(self, last: str, estimates: dict[str, float]) -> str | None:
        """The policy to try instead of the last choice, if there is one. Never a lazy one: if events begin to abort
        just then, that costs more than it could gain."""
        f = self._features
        if f is None or not self._recent or self._recent[-1][0] != last:
            return None
        if f.events < _LEAST_EVENTS or f.work / f.threads > _MOST_WORK * estimates[last]:
            return None
        eager = [name for name in estimates if name.endswith("/eager") and name != last]
        close = [name for name in eager if self._closeness(f, name) * estimates[name] <= estimates[last]]
        return min(close, key=estimates.__getitem__, default=None)

    def observe(self, name: str, seconds: float, estimates: dict[str, float]) -> None:
        """A batch that was looked at took so many seconds per event. estimates: those of this batch."""
        self._recent = [*self._recent[-2:], (name, seconds)]
        if self._features is None or len(self._recent) < 3:
            return
        (last, before), (rival, trial), (again, after) = self._recent
        if last == again != rival and last in estimates and rival in estimates:
            ratios = self._ratios.setdefault((rival, last, _has_hot_record(self._features)), [])
            ratios.append(2 * trial / (before + after))
            if len(ratios) == 2:
                median = sorted((*ratios, estimates[rival] / estimates[last]))[1]
                self._correct(self._features, rival, estimates[rival], median * estimates[last])
                ratios.clear()

    def _closeness(self, f: Features, name: str) -> float:
        """How close a policy's estimate has to be for a trial."""
        if self._correction(f, name) is None:
            return _CLOSE_UNTRIED
        due = self._looks >= self._trial_looks.get((name, _has_hot_record(f)), 0) + _TRIAL_INTERVAL
        return _CLOSE_TRIED if due else _NEVER

    def _correction(self, f: Features, name: str) -> float | None:
        return self._costs.correction(name, f.threads, f.events, _has_hot_record(f))

    def _correct(self, f: Features, name: str, estimate: float, seconds: float) -> None:
        self._trial_looks[name, _has_hot_record(f)] = self._looks
        work = f.work / f.threads
        if estimate > work:
            self._costs.correct(name, f.threads, f.events, _has_hot_record(f), (seconds - work) / (estimate - work))


def _has_hot_record(f: Features) -> bool:
    return _HOT * f.chain * f.threads >= f.events


def _comparable(a: Features, b: Features, *, cost: bool) -> bool:
    """cost: whether to compare the cost of an event too. Not during a trial: policies measure it differently."""
    return (
        a.threads == b.threads
        and _has_hot_record(a) == _has_hot_record(b)
        and _COMPARABLE_SIZE * a.events <= b.events <= a.events / _COMPARABLE_SIZE
        and (not cost or _COMPARABLE_COST * a.cost <= b.cost <= a.cost / _COMPARABLE_COST)
        and abs(a.abort_ratio - b.abort_ratio) <= _COMPARABLE_ABORTS
    )
