"""What an event costs, by the clock on the wall: as the last batches told, or the first events of this one.

Not by a thread's own clock: that takes longer to read than a small batch can spare. Of two batches the quicker counts,
since whatever else runs on the machine can only make them slower.
"""

from __future__ import annotations

# A batch tells what an event costs, and not only what it costs at most, if calling the kernel is but a little of it.
_TELLING, _TELLS = 512, 0.5e-3
# If a sample is about what is known, it counts for this much; else for all.
_ABOUT, _COUNTS = 2.0, 0.3
# Batches say the same of themselves to within this ratio.
SAME = 0.85
# While they do, so many are not looked at. If they are not sampled either, one that differs was perhaps only held up.
_TRUST, _ODD = 8, 2


class Price:
    def __init__(self) -> None:
        self.one: float | None = None  # seconds of one event
        self._before: float | None = None  # the same, as the last batch that ran serially told it
        self._by = 0  # events of the batch that told it
        self._said = "", 0.0  # the policy of the last batch that was looked at, and what that said of an event
        self.odd = _ODD  # batches in a row that said something else
        self.since = 0  # batches since one was looked at

    def ran(self, took: float, events: int) -> None:
        """The serial loop ran so many events."""
        one = took / events
        if events < _TELLING and took <= _TELLS:
            if self.one is None or 2 * events >= self._by:  # of larger ones it says nothing
                self.one, self._by = min(one, self.one or one), events
            return
        self.one, self._before, self._by = min(one, self._before or one), one, events
        self.said("serial", one)

    def ran_by_graph(self, policy: str, one: float, *, sampled: bool) -> None:
        """One: on versions, which takes longer than in the serial loop. sampled: whether such batches are."""
        before, said = self._said
        self.said(policy, one)
        if not sampled:
            self.one = one  # there is nothing better
        elif before == policy and self.odd and self.since and self.one is not None:
            self.one *= one / said  # events have become dearer, or cheaper, by as much; a sample knew it already

    def sampled(self, one: float) -> None:
        known = self.one or one
        about = known / _ABOUT < one < known * _ABOUT
        self.one = known + (_COUNTS if about else 1.0) * (one - known)
        self.since = 0

    def steady(self) -> bool:
        """Whether batches are as the last that was looked at, so that this one need not be."""
        return not self.odd and self.since <= _TRUST

    def settled(self) -> bool:
        """The same of batches that are never sampled."""
        return self.odd < _ODD and self.since <= _TRUST

    def said(self, policy: str, one: float) -> None:
        """What a batch says an event cost; comparable only with the like."""
        before, said = self._said
        same = before == policy and SAME * said < one < said / SAME
        self.odd = 0 if same else self.odd + 1
        if self.odd >= _ODD or before != policy or self.since == 0:
            self._said = policy, one
