"""What an event costs, by the clock on the wall: as the last batches told, or the first events of this one.

Not by a thread's own clock: that takes longer to read than a small batch can spare. Of two batches the quicker counts,
since whatever else runs on the machine can only make them slower.
"""

from __future__ import annotations

import math

# A batch tells what an event costs, and not only what it costs at most, if calling the kernel is but a little of it.
_TELLING, _TELLS = 512, 0.5e-3
# How much longer an access takes on the versions that a graph's threads keep, in seconds: how fast that follows what is
# seen when a batch runs by a graph behind one that did not, and its bounds. Until then, so much for each time that the
# threads are doubled beyond two: they wait for each other's caches. More, for events that abort.
_FOLLOW, _LEAST, _MOST, _CROWDED, _UNDONE = 0.3, -50e-9, 150e-9, 40e-9, 50e-9
# A whole transaction that aborts stops there; in fragments, the others run to their end: so much more of it.
STOPPED = 0.8
# Batches say the same of themselves to within this ratio. One that differs was perhaps only held up.
SAME, _ODD = 0.85, 2


class Price:
    def __init__(self) -> None:
        self.one: float | None = None  # seconds of one event, in the serial loop
        self.last: float | None = None  # the same, as the last batch told it
        self._by = 0  # events of the batch that told it
        self._aborted = 0.0  # the share of them that aborted, in the last serial batch
        self._versions: float | None = None  # seconds that an access takes longer by a graph
        self._said = "", 0.0  # the policy of the last batch that was looked at, and what that said of an event
        self.odd = _ODD  # batches in a row that said something else
        self.looked = True  # whether the batch that runs was looked at

    def ran(self, took: float, events: int, abort_ratio: float = 0.0) -> None:
        """The serial loop ran so many events."""
        one = took / events
        if events < _TELLING and took <= _TELLS:
            if self.one is None or 2 * events >= self._by:  # of larger ones it says nothing
                self.one, self._by = min(one, self.one or one), events
            return
        self._by, self._aborted = events, abort_ratio
        self._told(one)
        self.said("serial", one)

    def ran_by_graph(
        self, policy: str, one: float, accesses: float, abort_ratio: float = 0.0, threads: int = 2
    ) -> None:
        """One event took so long on versions, and reached so many records."""
        undoing, known = _UNDONE * abort_ratio, self._versions
        if self._said[0] == "serial" and self.last is not None and accesses:
            serially = self.last * (1 - STOPPED * abort_ratio) / (1 - STOPPED * self._aborted)
            seen = min(max((one - serially) / accesses - undoing, _LEAST), _MOST)
            self._versions = seen if known is None else known + _FOLLOW * (seen - known)
        longer = _CROWDED * math.log2(threads / 2) if self._versions is None else self._versions
        self._told(max(one - accesses * (longer + undoing), one / 2))
        self.said(policy, one)

    def sampled(self, one: float) -> None:
        """The first events of a batch took so long, of which nothing else is known."""
        self.one, self.last = one, None

    def drop(self) -> None:
        """Of the events that come now, nothing is known."""
        self.one = self.last = None

    def _told(self, one: float) -> None:
        self.one, self.last = min(one, self.last or one), one

    def settled(self) -> bool:
        """Whether batches are as the last that was looked at, so that this one need not be."""
        return self.odd < _ODD

    def said(self, policy: str, one: float) -> None:
        """What a batch says an event cost; comparable only with the like."""
        before, said = self._said
        same = before == policy and SAME * said < one < said / SAME
        self.odd = 0 if same else self.odd + 1
        if self.odd >= _ODD or before != policy or self.looked:
            self._said = policy, one
