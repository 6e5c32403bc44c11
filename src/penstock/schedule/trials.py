"""Policies whose estimates are near each other are tried: estimates differ by less than they are wrong by.

    the last choice   a rival   the last choice

A rival's time over the mean of its neighbours' tells how they compare: what slows the machine down for a while slows
down both. It is tried twice. Of what the two say and what was thought, the one in the middle is believed from then on:
so one that was held up says nothing. What a policy takes besides the events' own work is corrected by it, for batches
with a hot record or for those without; and that is kept with what else is known of the app on this machine (costs.py).
When batches have changed it may be tried again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.schedule.costs import Costs

if TYPE_CHECKING:
    from penstock.schedule.choose import Features

# A rival is near if the best estimate is at least this share of its own: for one of which nothing is known yet, and for
# the others. It is not tried on small batches, which have no time for it; nor where the events' own work is more than
# this share of the time, for there is not much else to be wrong about.
_UNKNOWN, _KNOWN, _FEWEST, _WORK = 0.94, 0.97, 2048, 0.85
# A record is hot if so many times a thread's share of the accesses to it would be the share of all events.
_HOTTEST = 10
# Batches have changed if events are not as many to within the one ratio, or cost something else by the other, or if the
# share that aborts differs by so much.
_SIZE, _COST, _ABORTS = 0.7, 0.5, 0.2


class Trials:
    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._of: Features | None = None  # the first batch since they changed
        self._now: Features | None = None  # the last one
        self._found: dict[tuple[str, str], list[float]] = {}  # a rival, the last choice -> its times over the other's
        self._ran: list[tuple[str, float]] = []  # the last batches: policy, seconds of an event

    def corrected(self, f: Features, estimates: dict[str, float]) -> dict[str, float]:
        """The estimates of a batch that is looked at, as far as trials know better."""
        if self._of is None or not _alike(self._of, f, cost=len({who for who, _ in self._ran}) == 1):
            self._of, self._found, self._ran = f, {}, []
        self._now, work = f, f.work / f.threads
        return {who: work + (seconds - work) * (self._known(who) or 1.0) for who, seconds in estimates.items()}

    def rival(self, last: str, estimates: dict[str, float]) -> str | None:
        """Who is to be tried instead of the last choice. Nobody who runs ahead: if events begin to abort just then,
        that costs more than anybody could gain."""
        f = self._now
        if f is None or not self._ran or self._ran[-1][0] != last:
            return None
        if f.events < _FEWEST or f.work / f.threads > _WORK * estimates[last]:
            return None
        cautious = [who for who in estimates if who.endswith("/eager") and who != last]
        untried = [who for who in cautious if len(self._found.get((who, last), ())) < 2]
        near = [who for who in untried if self._near(who) * estimates[who] <= estimates[last]]
        return min(near, key=estimates.__getitem__, default=None)

    def ran(self, who: str, seconds: float, estimates: dict[str, float]) -> None:
        """A batch that was looked at took so long an event; estimates: of it."""
        self._ran = [*self._ran[-2:], (who, seconds)]
        if len(self._ran) < 3:
            return
        (last, before), (rival, tried), (again, after) = self._ran
        if last == again != rival and last in estimates and rival in estimates:
            found = self._found.setdefault((rival, last), [])
            found.append(2 * tried / (before + after))
            if len(found) == 2:
                believed = sorted((*found, estimates[rival] / estimates[last]))[1]
                self._believe(rival, estimates[rival], believed * estimates[last])

    def _near(self, who: str) -> float:
        return _UNKNOWN if self._known(who) is None else _KNOWN

    def _known(self, who: str) -> float | None:
        f = self._now
        return self._costs.correction(who, f.threads, f.events, _hot(f)) if f else None

    def _believe(self, who: str, thought: float, seconds: float) -> None:
        f = self._now
        if f is not None and thought > f.work / f.threads:
            more = (seconds - f.work / f.threads) / (thought - f.work / f.threads)
            self._costs.correct(who, f.threads, f.events, _hot(f), more)


def _hot(f: Features) -> bool:
    return _HOTTEST * f.chain * f.threads >= f.events


def _alike(a: Features, b: Features, *, cost: bool) -> bool:
    """cost: whether to look at that too. Policies differ in what they say of it, so not while one is tried."""
    return (
        a.threads == b.threads
        and _hot(a) == _hot(b)
        and _SIZE * a.events <= b.events <= a.events / _SIZE
        and (not cost or _COST * a.cost <= b.cost <= a.cost / _COST)
        and abs(a.abort_ratio - b.abort_ratio) <= _ABORTS
    )
