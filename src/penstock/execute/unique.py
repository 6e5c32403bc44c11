"""The law of unique ids: an id runs once within its event's span (`ps.id(unique=…)`); who brings it again is a
duplicate.

    remembered   for each event's ids, those that have run: ts, version, and the clock as they ran; for as long as the
                 clock has not come to the span, or more, after that
    duplicate    an event whose ts is less than the span away from that of one that is remembered under its id; of
                 several, the one of the lowest ts is the first one

An event that aborts has run; one that is late has not, and is no duplicate. A duplicate moves the clock, and is
remembered no longer by it. Before there is a clock nothing is remembered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from penstock.declare.model import Program

Id = tuple[str, Any]  # an event's name, and its id


@dataclass(frozen=True, slots=True)
class Seen:
    ts: float
    clock: float
    place: tuple[Any, ...]  # in event order: no two events have one
    version: int | None = None  # in which it ran; None: it has not run yet


class Ids:
    def __init__(self, program: Program) -> None:
        self._spans = {event.name: event.span for event in program.unique if event.span is not None}
        self._seen: dict[Id, list[Seen]] = defaultdict(list)

    def duplicates(self, events: Iterable[Any], clock: float) -> dict[tuple[Any, ...], Seen]:
        """Of events in the order in which they run, those that are duplicates: their places, and the first ones."""
        return self._judged(events, clock)[0]

    def run(self, events: Iterable[Any], clock: float, version: int) -> dict[tuple[Any, ...], Seen]:
        """The same of events that run now."""
        found, new = self._judged(events, clock)
        for key, several in new.items():
            self._seen[key] += [replace(one, version=version) for one in several]
        return {
            place: replace(first, version=version) if first.version is None else first for place, first in found.items()
        }

    def go_on(self, before: Ids, clock: float) -> None:
        """With what the reference of an older schema remembers by then, if its ids ran once."""
        for (event, id_), several in before._seen.items():
            span = before._spans.get(event, 0)
            self._seen[event, id_] = [one for one in several if clock - one.clock < span]

    def set_back(self, clock: float, to: float) -> None:
        """The clock was set back: what is remembered by then is remembered for a span from there on."""
        for (event, id_), several in self._seen.items():
            kept = [one for one in several if clock - one.clock < self._spans[event]]
            self._seen[event, id_] = [replace(one, clock=min(one.clock, to)) for one in kept]

    def _judged(self, events: Iterable[Any], clock: float) -> tuple[dict[tuple[Any, ...], Seen], dict[Id, list[Seen]]]:
        """events: arrivals, as the reference has them. clock: before the first of them."""
        found, new = dict[tuple[Any, ...], Seen](), defaultdict[Id, list[Seen]](list)
        for one in events:
            clock = max(clock, one.ts)
            span = one.event.span
            if span is None or clock == float("-inf"):
                continue
            key = one.event.name, one.values[one.event.id]
            kept = [seen for seen in self._seen[key] + new[key] if clock - seen.clock < span]
            near = [seen for seen in kept if abs(one.ts - seen.ts) < span]
            if near:
                found[one.place] = min(near, key=lambda seen: seen.ts)
            else:
                new[key].append(Seen(one.ts, clock, one.place))
        return found, new
