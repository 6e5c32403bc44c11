"""Whether a batch has to be looked at, or runs as the last one did that was: looking takes a tenth of one that is small
or cheap.

small or cheap   some that follow run as it does; fewer, if its graph did not pay
large            the next one does, if the choice was that of the one before

None, as soon as batches differ: in size or threads, in what an event costs, in how many events abort.
"""

from __future__ import annotations

from penstock.schedule.price import SAME

_SOME, _FEWER, _NEXT = 8, 2, 1
# How fast the ratio of aborts that is remembered follows the one that is seen. Batches differ if that is off by this
# share of all events, and by so many times what may be chance.
_FOLLOW, _MOVED, _CHANCE = 0.5, 0.02, 3.0
# What is known of batches is kept if the next is up to so many times as large.
_KIN = 2.0


class Alike:
    def __init__(self) -> None:
        self.abort_ratio = 0.0  # of recent batches
        self.looked = 0  # batches that were looked at
        self.events, self._threads = 0, 0  # of the last of them
        self._left = 0  # how many may yet run as it did

    def as_the_last(self, events: int, threads: int) -> bool:
        """Whether the next batch may run so."""
        alike = threads == self._threads and SAME * self.events < events < self.events / SAME
        if not (self._left and alike):
            return False
        self._left -= 1
        return True

    def look(self, events: int, threads: int) -> bool:
        """The next batch is looked at. Whether those before it were of its kind."""
        kin = threads == self._threads and self.events / _KIN <= events <= _KIN * self.events
        self.events, self._threads, self._left, self.looked = events, threads, 0, self.looked + 1
        return kin

    def some_follow(self) -> None:
        self._left = _SOME

    def fewer_follow(self) -> None:
        self._left = min(self._left, _FEWER)

    def next_follows(self) -> None:
        self._left = _NEXT

    def none_follows(self) -> None:
        self._left = 0

    def ran(self, aborted: float, events: int) -> None:
        """A batch is through, of whose events this share aborted."""
        chance = (self.abort_ratio * (1 - self.abort_ratio) / events) ** 0.5
        if abs(aborted - self.abort_ratio) >= max(_MOVED, _CHANCE * chance):
            self._left = 0
        self.abort_ratio += _FOLLOW * (aborted - self.abort_ratio)
