"""When graphs are left for a while, and when one is tried again.

too dear   it seemed so for some batches: perhaps only by what was learned, so that is forgotten, and one is tried
lost       it did not seem so, but some in a row took longer than they would have without: the next ones run without,
           unless the first of those shows that it is they that take longer

How many these are begins with a few and doubles every time, until a graph has paid.
"""

from __future__ import annotations

_FIRST, _SELDOM = 4, 64
# So many in a row have to lose; and those that follow are not left if events cost so many times as much by then.
_LOSSES, _DEARER = 3, 3.0
# What they would have taken is only thought. Those that run without show it, if they take so many times as long.
_LONGER = 1.05


class Retry:
    def __init__(self) -> None:
        self._after = _FIRST  # batches
        self._dear = 0  # batches for which a graph seemed too dear
        # Batches in a row that took longer by a graph; and of the quickest of them, the seconds of an event.
        self._lost, self._took = 0, 0.0
        self._left, self._cost = 0, 0.0  # batches that are to run without, and what an event cost when that was said

    def paid(self) -> None:
        self._lost, self._dear, self._after = 0, 0, _FIRST

    def has_lost(self, cost: float, took: float) -> None:
        """cost: of an event, as it is thought; took: with all that the graph took."""
        self._lost, self._took = self._lost + 1, min(took, self._took) if self._lost else took
        if self._lost >= _LOSSES:
            self._left, self._cost = 1 + self._later(), cost

    def ran_without(self, took: float) -> None:
        """took: an event."""
        self._lost = 0
        if self._left and took > _LONGER * self._took:
            self._left, self._after = 0, _FIRST

    def left(self, others: bool, cost: float) -> bool:
        """Whether the next batch is to run without; not if it is another kind of batch, or far dearer."""
        if self._left and (others or cost > _DEARER * self._cost):
            self._left = self._lost = 0
        self._left = max(0, self._left - 1)
        return self._left > 0

    def seems_dear(self) -> None:
        self._dear += 1

    @property
    def due(self) -> bool:
        """Whether a graph has seemed too dear for long enough."""
        return self._dear >= self._after

    def tries(self) -> None:
        """The next one is tried, unless it seems too dear even by what was thought at first."""
        self._dear = 0
        self._later()

    def _later(self) -> int:
        wait, self._after = self._after, min(2 * self._after, _SELDOM)
        return wait
