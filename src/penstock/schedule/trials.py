"""Policies whose estimates are near each other are tried: estimates differ by less than they are wrong by.

    the last choice   a rival   the last choice

A rival's time over the mean of its neighbours' tells how they compare: what slows the machine down for a while slows
down both. It is tried twice. Of what the two say and what was thought, the one in the middle is believed from then on:
so one that was held up says nothing. What a policy takes besides the events' own work is corrected by it, for batches
with a hot record or for those without; and that is kept with what else is known of the app on this machine (costs.py).
Now and then it is tried again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.schedule.costs import Costs

if TYPE_CHECKING:
    from penstock.schedule.choose import Features

# A rival is near if the best estimate is at least this share of its own: for one of which nothing is known yet, and for
# the others, which are tried again when so many batches have been looked at. It is not tried on small batches, which
# have no time for it; nor where the events' own work is more than this share of the time, for there is not much else to
# be wrong about.
_UNKNOWN, _KNOWN, _AGAIN, _FEWEST, _WORK = 0.94, 0.97, 64, 2048, 0.85
# A record is hot if it is reached at least once for so many events of a thread's share.
_HOT = 10
# Batches can be compared if events are as many to within the one ratio and cost the same to within the other, and if
# the share that aborts differs by no more than that.
_SIZE, _COST, _ABORTS = 0.7, 0.5, 0.2
_NEVER = float("inf")


class Trials:
    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._now: Features | None = None  # the last batch that was looked at
        self._looked = 0  # how many were
        self._ran: list[tuple[str, float]] = []  # the last ones: policy, seconds of an event
        # A rival, the last choice, whether a record is hot -> the rival's times over the other's.
        self._found: dict[tuple[str, str, bool], list[float]] = {}
        self._tried: dict[tuple[str, bool], int] = {}  # when that was

    def corrected(self, f: Features, estimates: dict[str, float]) -> dict[str, float]:
        """The estimates of a batch that is looked at, as far as trials know better."""
        if self._now is None or not _alike(self._now, f, cost=len({who for who, _ in self._ran}) == 1):
            self._ran = []
        self._now, self._looked, work = f, self._looked + 1, f.work / f.threads
        return {who: work + (seconds - work) * (self._known(f, who) or 1.0) for who, seconds in estimates.items()}

    def rival(self, last: str, estimates: dict[str, float]) -> str | None:
        """Who is to be tried instead of the last choice. Nobody who runs ahead: if events begin to abort just then,
        that costs more than anybody could gain."""
        f = self._now
        if f is None or not self._ran or self._ran[-1][0] != last:
            return None
        if f.events < _FEWEST or f.work / f.threads > _WORK * estimates[last]:
            return None
        cautious = [who for who in estimates if who.endswith("/eager") and who != last]
        near = [who for who in cautious if self._near(f, who) * estimates[who] <= estimates[last]]
        return min(near, key=estimates.__getitem__, default=None)

    def ran(self, who: str, seconds: float, estimates: dict[str, float]) -> None:
        """A batch that was looked at took so long an event; estimates: of it."""
        self._ran = [*self._ran[-2:], (who, seconds)]
        if self._now is None or len(self._ran) < 3:
            return
        (last, before), (rival, tried), (again, after) = self._ran
        if last == again != rival and last in estimates and rival in estimates:
            found = self._found.setdefault((rival, last, _hot(self._now)), [])
            found.append(2 * tried / (before + after))
            if len(found) == 2:
                believed = sorted((*found, estimates[rival] / estimates[last]))[1]
                self._believe(self._now, rival, estimates[rival], believed * estimates[last])
                found.clear()

    def _near(self, f: Features, who: str) -> float:
        """How near its estimate has to be for it to be tried."""
        if self._known(f, who) is None:
            return _UNKNOWN
        due = self._looked >= self._tried.get((who, _hot(f)), 0) + _AGAIN
        return _KNOWN if due else _NEVER

    def _known(self, f: Features, who: str) -> float | None:
        return self._costs.correction(who, f.threads, f.events, _hot(f))

    def _believe(self, f: Features, who: str, thought: float, seconds: float) -> None:
        self._tried[who, _hot(f)] = self._looked
        work = f.work / f.threads
        if thought > work:
            self._costs.correct(who, f.threads, f.events, _hot(f), (seconds - work) / (thought - work))


def _hot(f: Features) -> bool:
    return _HOT * f.chain * f.threads >= f.events


def _alike(a: Features, b: Features, *, cost: bool) -> bool:
    """cost: whether to look at that too. Policies differ in what they say of it, so not while one is tried."""
    return (
        a.threads == b.threads
        and _hot(a) == _hot(b)
        and _SIZE * a.events <= b.events <= a.events / _SIZE
        and (not cost or _COST * a.cost <= b.cost <= a.cost / _COST)
        and abs(a.abort_ratio - b.abort_ratio) <= _ABORTS
    )
