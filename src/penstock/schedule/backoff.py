"""When graphs are left alone for a while, and when one is tried again.

skipped   A graph seemed too expensive for some batches. Perhaps only what was learned says so: it is forgotten, and a
          graph is tried.
lost      A graph did not seem too expensive, but some in a row took longer than the serial loop would have. The next
          batches run serially, unless the first of them shows that events themselves take longer now.

How many batches that is begins with a few and doubles every time, until a graph has paid.
"""

from __future__ import annotations

# Batches to wait before a graph is tried again: the first time, and at most. Chosen by hand.
_FIRST_WAIT, _LONGEST_WAIT = 4, 64
# Graph batches in a row that have to lose before graphs are left. Chosen by hand.
_LOSSES = 3
# Graphs are taken up again if events cost more than so many times what they did when graphs were left. Chosen by hand.
_COST_RISE = 3.0
# They are also taken up if an event of a serial batch takes more than so many times what it took by the quickest of the
# graphs that seemed to lose. What the serial loop would have taken was only estimated then. Chosen by hand.
_SLOWER = 1.05


class Backoff:
    def __init__(self) -> None:
        self._wait = _FIRST_WAIT  # batches
        self._skips = 0  # batches for which a graph seemed too expensive
        # Graph batches in a row that lost; and of the quickest of them, the seconds of an event.
        self._losses, self._quickest = 0, 0.0
        self._serial, self._cost = 0, 0.0  # batches that are to run serially, and what an event cost when that began

    def record_win(self) -> None:
        """A graph batch took less than the serial loop would have."""
        self._losses, self._skips, self._wait = 0, 0, _FIRST_WAIT

    def record_loss(self, cost: float, took: float) -> None:
        """Seconds of an event. cost: in the serial loop, by estimate; took: by the graph, with all that it needs."""
        self._losses, self._quickest = self._losses + 1, min(took, self._quickest) if self._losses else took
        if self._losses >= _LOSSES:
            self._serial, self._cost = 1 + self._double_wait(), cost

    def observe_serial(self, took: float) -> None:
        """took: seconds of an event, in a batch that ran serially."""
        self._losses = 0
        if self._serial and took > _SLOWER * self._quickest:
            self._serial, self._wait = 0, _FIRST_WAIT

    def next_is_serial(self, changed: bool, cost: float) -> bool:
        """Whether the next batch is to run serially, because graphs lost. Not if batches have changed, or cost far
        more."""
        if self._serial and (changed or cost > _COST_RISE * self._cost):
            self._serial = self._losses = 0
        self._serial = max(0, self._serial - 1)
        return self._serial > 0

    def record_skip(self) -> None:
        """A graph seemed too expensive for a batch."""
        self._skips += 1

    @property
    def retry_due(self) -> bool:
        """Whether a graph has seemed too expensive for long enough."""
        return self._skips >= self._wait

    def start_retry(self) -> None:
        """The next graph is tried, unless it seems too expensive even by the first estimates."""
        self._skips = 0
        self._double_wait()

    def _double_wait(self) -> int:
        """Returns the wait that begins now."""
        wait, self._wait = self._wait, min(2 * self._wait, _LONGEST_WAIT)
        return wait
