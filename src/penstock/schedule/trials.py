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
# choice, and not on small ones, which have no time for it.
_NEAR, _BEHIND, _FEWEST = 0.97, 2, 2048
# Batches are of a kind if events, their cost and the hottest record's accesses are the same to within this ratio, and
# the share that aborts to within this difference.
_KIN, _ABORTS = 0.7, 0.1


class Trials:
    def __init__(self) -> None:
        self._of: Features | None = None
        self._found: dict[str, list[float]] = {}  # rival -> its times over those of the last choice
        self._corrections: dict[str, float] = {}
        self._ran: list[tuple[str, float]] = []  # the last batches: policy, seconds of an event

    def corrected(self, f: Features, estimates: dict[str, float]) -> dict[str, float]:
        """The estimates of a batch that is looked at, as far as trials know better."""
        if self._of is None or not _alike(self._of, f):
            self._of = f
            self._found, self._corrections, self._ran = {}, {}, []
        return {name: seconds * self._corrections.get(name, 1.0) for name, seconds in estimates.items()}

    def rival(self, last: str, estimates: dict[str, float]) -> str | None:
        """Who is to be tried instead of the last choice."""
        stood = [who for who, _ in self._ran[-_BEHIND:]] == [last] * _BEHIND
        if self._of is None or self._of.events < _FEWEST or not stood:
            return None
        untried = [who for who in estimates if who not in (last, "serial") and len(self._found.get(who, ())) < 2]
        near = [who for who in untried if _NEAR * estimates[who] <= estimates[last]]
        return min(near, key=estimates.__getitem__, default=None)

    def ran(self, who: str, seconds: float, estimates: dict[str, float]) -> None:
        """A batch that was looked at took so long an event; estimates: of it."""
        self._ran = [*self._ran[-2:], (who, seconds)]
        if len(self._ran) < 3:
            return
        (last, before), (rival, tried), (again, after) = self._ran
        if last == again != rival and last in estimates and rival in estimates:
            found = self._found.setdefault(rival, [])
            found.append(2 * tried / (before + after))
            if len(found) == 2:
                thought = estimates[rival] / estimates[last]
                believed = sorted((*found, thought))[1]
                self._corrections[rival] = self._corrections.get(rival, 1.0) * believed / thought


def _alike(a: Features, b: Features) -> bool:
    pairs = ((a.events, b.events), (a.cost, b.cost), (1 + a.chain, 1 + b.chain))
    return (
        a.threads == b.threads
        and (a.path > 0) == (b.path > 0)
        and all(_KIN * x <= y <= x / _KIN for x, y in pairs)
        and abs(a.abort_ratio - b.abort_ratio) <= _ABORTS
    )
