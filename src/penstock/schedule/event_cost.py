"""What an event costs in the serial loop, in seconds of wall time: as the last batches showed, or the first events of
this one.

A serial batch shows it by its time. A graph batch shows it by what its threads spent in the events' own code, less the
extra cost of reaching versions instead of records. That extra is learned when a graph batch follows a serial one.

It is not measured by a thread's own clock: that takes longer to read than a small batch can spare. Of the last two
batches the quicker counts: whatever else runs on the machine can only make them slower.
"""

from __future__ import annotations

import math

# A serial batch of fewer events than this, that took no more seconds than this, is mostly the call of its kernel. Its
# time per event is then an upper bound. Both chosen by hand.
_FEW_EVENTS, _SHORT = 512, 0.5e-3
# How much of each new value of an access's extra cost is taken over: about the last three count. Chosen by hand.
_FOLLOW = 0.3
# Bounds of the extra cost of an access by a graph, in seconds. Chosen by hand; 60 to 130 ns were seen on 16 threads
# (docs/SCHEDULING.md).
_LEAST_EXTRA, _MOST_EXTRA = -50e-9, 150e-9
# Until the extra cost of an access was measured: seconds for each doubling of the threads beyond two, which wait for
# each other's caches. Chosen so that 16 threads come to 120 ns.
_EXTRA_PER_DOUBLING = 40e-9
# Further extra cost of an access, in seconds, times the share of events that abort. Chosen by hand.
_EXTRA_OF_ABORTS = 50e-9
# The share of an event's work that is saved where it aborts, if it runs as a whole. In fragments, the others run to
# their end. Fitted with the numbers of choose.py.
ABORT_SAVING = 0.8
# Two quantities are the same if the smaller is more than this share of the larger. Chosen by hand: on a quiet machine,
# times of one policy on like batches differ by less.
SAME = 0.85
# So many batches in a row have to measure something else before that is believed: one was perhaps only held up. Chosen
# by hand.
_MISMATCHES = 2


class EventCost:
    def __init__(self) -> None:
        self.seconds: float | None = None  # of one event, in the serial loop; None: nothing is known
        self.last: float | None = None  # the same, by the last batch alone
        self._events = 0  # of the last serial batch
        self._abort_ratio = 0.0  # of the last serial batch that was no upper bound only
        self._extra: float | None = None  # seconds that an access takes longer by a graph
        self._previous = "", 0.0  # policy of the last batch that was looked at, and seconds per event that it measured
        self.mismatches = _MISMATCHES  # batches in a row that measured something else
        self.looked_at = True  # whether the batch that runs now was looked at

    def observe_serial(self, took: float, events: int, abort_ratio: float = 0.0) -> None:
        """The serial loop ran so many events in so many seconds."""
        seconds = took / events
        if events < _FEW_EVENTS and took <= _SHORT:
            if self.seconds is None or 2 * events >= self._events:  # of much larger batches it says nothing
                self.seconds, self._events = min(seconds, self.seconds or seconds), events
            return
        self._events, self._abort_ratio = events, abort_ratio
        self._update(seconds)
        self._compare("serial", seconds)

    def observe_graph(
        self, policy: str, own: float, accesses: float, abort_ratio: float = 0.0, threads: int = 2
    ) -> None:
        """own: thread-seconds that an event's own code took on versions; accesses: records that it reached."""
        of_aborts, known = _EXTRA_OF_ABORTS * abort_ratio, self._extra
        if self._previous[0] == "serial" and self.last is not None and accesses:
            serial = self.last * (1 - ABORT_SAVING * abort_ratio) / (1 - ABORT_SAVING * self._abort_ratio)
            seen = min(max((own - serial) / accesses - of_aborts, _LEAST_EXTRA), _MOST_EXTRA)
            self._extra = seen if known is None else known + _FOLLOW * (seen - known)
        extra = _EXTRA_PER_DOUBLING * math.log2(threads / 2) if self._extra is None else self._extra
        self._update(max(own - accesses * (extra + of_aborts), own / 2))
        self._compare(policy, own)

    def observe_sample(self, seconds: float) -> None:
        """The first events of a batch, of which nothing else is known, took so long each."""
        self.seconds, self.last = seconds, None

    def reset(self) -> None:
        """Nothing is known of the events that come now."""
        self.seconds = self.last = None

    def _update(self, seconds: float) -> None:
        self.seconds, self.last = min(seconds, self.last or seconds), seconds

    def steady(self) -> bool:
        """Whether batches measure what the last one did that was looked at, so that the next need not be."""
        return self.mismatches < _MISMATCHES

    def _compare(self, policy: str, measured: float) -> None:
        """Compare a batch with the last one. Only batches under one policy measure the same thing."""
        before, seconds = self._previous
        same = before == policy and SAME * seconds < measured < seconds / SAME
        self.mismatches = 0 if same else self.mismatches + 1
        if self.mismatches >= _MISMATCHES or before != policy or self.looked_at:
            self._previous = policy, measured
