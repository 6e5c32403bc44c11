"""Policies whose estimates are near each other are tried: estimates differ by less than they are wrong by.

    the last choice   the last choice   a rival   the last choice

A rival's time over the mean of its neighbours' tells how they compare: what slows the machine down for a while slows
down both. It is tried twice. Of what the two say and what was thought, the one in the middle is believed from then on,
as long as batches are of the kind that it was tried on: so one that was held up says nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.schedule.choose import Features

# A rival is near if the best estimate is at least this share of its own. It is tried behind so many batches of the last
# choice; not on small ones, which have no time for it; nor where the events' own work is more than this share of the
# time, for there is not much else to be wrong about.
_NEAR, _BEHIND, _FEWEST, _WORK = 0.97, 2, 2048, 0.85
# Batches are of a kind if events, their cost and the hottest record's accesses are the same to within this ratio, and
# the share that aborts to within this difference.
_KIN, _ABORTS = 0.7, 0.1


class Trials:
    def __init__(self) -> None:
        self._of: Features | None = None
        self._found: dict[tuple[str, str], list[float]] = {}  # a rival, the last choice -> its times over the other's
        self._corrections: dict[str, float] = {}
        self._ran: list[tuple[str, float]] = []  # the last batches: policy, seconds of an event

    def corrected(self, f: Features, estimates: dict[str, float]) -> dict[str, float]:
        """The estimates of a batch that is looked at, as far as trials know better."""
        if self._of is None or not _alike(self._of, f, cost=len({who for who, _ in self._ran}) == 1):
            self._of = f
            self._found, self._corrections, self._ran = {}, {}, []
        return {name: seconds * self._corrections.get(name, 1.0) for name, seconds in estimates.items()}

    def rival(self, last: str, estimates: dict[str, float]) -> str | None:
        """Who is to be tried instead of the last choice. Nobody who runs ahead: if events begin to abort just then,
        that costs more than anybody could gain."""
        f, stood = self._of, [who for who, _ in self._ran[-_BEHIND:]] == [last] * _BEHIND
        if f is None or not stood or f.events < _FEWEST or f.work / f.threads > _WORK * estimates[last]:
            return None
        cautious = [who for who in estimates if who.endswith("/eager") and who != last]
        untried = [who for who in cautious if len(self._found.get((who, last), ())) < 2]
        near = [who for who in untried if _NEAR * estimates[who] <= estimates[last]]
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
                thought = estimates[rival] / estimates[last]
                believed = sorted((*found, thought))[1]
                self._corrections[rival] = self._corrections.get(rival, 1.0) * believed / thought


def _alike(a: Features, b: Features, *, cost: bool) -> bool:
    """cost: whether to look at that too. Policies differ in what they say of it, so not while one is tried."""
    pairs = [(a.events, b.events), (1 + a.chain, 1 + b.chain), *([(a.cost, b.cost)] if cost else [])]
    return (
        a.threads == b.threads
        and (a.path > 0) == (b.path > 0)
        and all(_KIN * x <= y <= x / _KIN for x, y in pairs)
        and abs(a.abort_ratio - b.abort_ratio) <= _ABORTS
    )
