"""Events that are called, as the engine takes them: one after another, as they came.

A call runs now: at the clock, which is the highest ts that has run. Its event need not have a ts; one with an order
gets the clock's where it brings none. So a version that calls made has no order but that of arrival, and its clock goes
up with the events that bring a ts above it.
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import pyarrow as pa

from penstock.declare.model import EventDef, Program
from penstock.execute.clock import first_ts
from penstock.execute.intake import EventBatch
from penstock.execute.order import OrderedBatch, times_of
from penstock.state.arrow import one_below_another, one_chunk, times

_NONE = np.iinfo(np.int64).min


def own_ts(call: EventBatch) -> int | None:
    """The ts that a called event brings; None where it has none, or leaves it to the clock."""
    if call.event.order is None:
        return None
    column = call.column(call.event.order)
    return None if column.null_count else int(times(column)[0])


def merged(calls: list[EventBatch], clock: int | None) -> list[EventBatch]:
    """Calls of one event each, by type of event; each ordered one with a ts."""
    found: dict[str, list[tuple[int, pa.Table]]] = {}
    events: dict[str, EventDef] = {}
    for place, call in enumerate(calls):
        event, table = call.event, call.table
        if event.order is not None:
            ts = own_ts(call)
            if ts is None:
                ts = first_ts(event.type_of(event.order)) if clock is None else clock
                table = _with_ts(event, table, ts)
            clock = ts if clock is None else max(clock, ts)
        events[event.name] = event
        found.setdefault(event.name, []).append((place, table))
    return [
        EventBatch(
            events[name],
            several[0][1] if len(several) == 1 else one_below_another([t for _, t in several]),
            np.array([place for place, _ in several], np.int64),
        )
        for name, several in found.items()
    ]


def in_turn(program: Program, arrived: list[EventBatch], clock: int | None) -> OrderedBatch:
    """The events of a version that calls made, in order of arrival. clock: before the first of them."""
    sizes = [a.table.num_rows for a in arrived]
    starts = [0, *accumulate(sizes)]
    every = np.concatenate([np.zeros(0, np.int64), *(a.arrival for a in arrived)])
    place = np.argsort(every, kind="stable")
    kind = np.concatenate(
        [np.zeros(0, np.uint8), *(np.full(a.table.num_rows, program.kind(a.event.name), np.uint8) for a in arrived)]
    )
    pos = np.concatenate([np.zeros(0, np.int64), *(np.arange(size) for size in sizes)])
    given, has = np.zeros(every.size, np.int64), np.zeros(every.size, np.bool_)
    for start, a in zip(starts, arrived, strict=False):
        if a.event.order is not None:
            given[start : start + a.table.num_rows], has[start : start + a.table.num_rows] = times_of(a), True
    given, has = given[place], has[place]
    now = np.maximum.accumulate(np.concatenate([[_NONE if clock is None else clock], np.where(has, given, _NONE)]))[1:]
    timeless = 0 if clock is not None else int(np.argmax(has)) if has.any() else has.size
    ts = np.where(has, given, now)
    ts[:timeless] = 0
    return OrderedBatch(tuple(arrived), kind[place], pos[place], ts, place, clock, timeless)


def _with_ts(event: EventDef, table: pa.Table, ts: int) -> pa.Table:
    assert event.order is not None
    place = event.place(event.order)
    column = pa.array([ts], pa.int64()).cast(event.arrow().field(place).type)
    return table.set_column(place, event.arrow().field(place), column)


def one_row(call: EventBatch, name: str) -> object:
    """A field of a called event."""
    return one_chunk(call.column(name))[0].as_py()
