"""The law of timers: events that were emitted with at=, and wait for their time.

    set   when the group that emits it has committed; an `at` that is not after the clock is the next tick
    run   before anything runs at a clock of at or later, by (at, emission): each a round of its own, whose ts is at,
          and whose id is that of the round that set it

So what runs never sees a timer that should have run, and time moves with every timer. Timers that timers set on the way
to one event, to run before it as well, are at most MOST_EMITS: one that sets itself again and again ends there.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.declare.model import EventDef


@dataclass(frozen=True, order=True)
class Timer:
    at: Any  # a value of ts
    number: int  # which emission it was
    event: EventDef = field(compare=False)
    values: dict[str, Any] = field(compare=False)
    id: Any = field(compare=False)  # of the event at the root of the round that set it


class Timers:
    """Those that have not run."""

    def __init__(self) -> None:
        self._heap: list[Timer] = []
        self._set = 0

    def set(self, event: EventDef, values: dict[str, Any], at: Any, id: Any) -> None:
        heapq.heappush(self._heap, Timer(at, self._set, event, values, id))
        self._set += 1

    def take(self, until: Any) -> Timer | None:
        """The next one that runs at this time or before."""
        return heapq.heappop(self._heap) if self._heap and self._heap[0].at <= until else None

    def changed(self, change: Callable[[Timer], tuple[EventDef, dict[str, Any]]]) -> Timers:
        """The same, of other events and with other fields."""
        other = Timers()
        other._set = self._set
        for one in sorted(self._heap):
            event, values = change(one)
            other._heap.append(replace(one, event=event, values=values))
        return other

    def of(self, event: EventDef) -> list[Timer]:
        """An event's, in the order in which they will run."""
        return sorted(one for one in self._heap if one.event == event)
