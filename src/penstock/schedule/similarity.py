"""Whether a batch has to be looked at, or repeats what the last one did that was.

Looking takes a tenth of a batch that is small or cheap. So some batches after one repeat its policy:

small or cheap   8 batches; 2 if its graph took longer than the serial loop would have
large            1 batch, if its policy was that of the one before

None does as soon as batches differ: in size or threads, in what an event costs, in how many events abort.
"""

from __future__ import annotations

from penstock.schedule.event_cost import SAME

# How many batches repeat the policy of one that was looked at: of a small or cheap one, of one whose graph did not pay,
# and of a large one. Chosen by hand: eight leave about a hundredth of the time for looking.
_REPEATS, _REPEATS_AFTER_LOSS, _REPEATS_LARGE = 8, 2, 1
# How much of each batch's abort ratio is taken over into the one that is remembered: about the last two count. Chosen
# by hand.
_FOLLOW = 0.5
# Batches differ in their abort ratio if it is off by this share of all events, and by so many standard deviations of
# the share in a sample of so many events. Chosen by hand.
_LEAST_CHANGE, _DEVIATIONS = 0.02, 3.0
# Batches are comparable if the larger has up to so many times the events of the smaller. Chosen by hand.
_COMPARABLE = 2.0


class Similarity:
    def __init__(self) -> None:
        self.abort_ratio = 0.0  # of recent batches
        self.looks = 0  # batches that were looked at
        self.events, self._threads = 0, 0  # of the last of them
        self._repeats = 0  # how many batches may yet run as it did

    def repeats(self, events: int, threads: int) -> bool:
        """Whether the next batch may run as the last one did. If so, it is counted."""
        similar = threads == self._threads and SAME * self.events < events < self.events / SAME
        if not (self._repeats and similar):
            return False
        self._repeats -= 1
        return True

    def look(self, events: int, threads: int) -> bool:
        """The next batch is looked at. Returns whether it is comparable with the last one that was."""
        comparable = threads == self._threads and self.events / _COMPARABLE <= events <= _COMPARABLE * self.events
        self.events, self._threads, self._repeats, self.looks = events, threads, 0, self.looks + 1
        return comparable

    def allow_repeats(self) -> None:
        self._repeats = _REPEATS

    def limit_repeats(self) -> None:
        """Its graph did not pay."""
        self._repeats = min(self._repeats, _REPEATS_AFTER_LOSS)

    def allow_repeat_of_large(self) -> None:
        self._repeats = _REPEATS_LARGE

    def reset(self) -> None:
        """The next batch is looked at."""
        self._repeats = 0

    def observe_aborts(self, aborted: float, events: int) -> None:
        """aborted: their share of a batch's events."""
        deviation = (self.abort_ratio * (1 - self.abort_ratio) / events) ** 0.5
        if abs(aborted - self.abort_ratio) >= max(_LEAST_CHANGE, _DEVIATIONS * deviation):
            self._repeats = 0
        self.abort_ratio += _FOLLOW * (aborted - self.abort_ratio)
