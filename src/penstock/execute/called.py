"""Events that are called, as the engine takes them: one after another, as they came.

A call runs now: at the clock, which is the highest ts that has run. Its event need not have a ts; one with an order
gets the clock's where it brings none. So a version that calls made has no order but that of arrival, and its clock goes
up with the events that bring a ts above it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.declare.model import EventDef, Program
from penstock.errors import InputError
from penstock.execute.clock import first_ts
from penstock.execute.intake import EventBatch
from penstock.execute.order import OrderedBatch, times_of
from penstock.state.arrow import one_below_another, times

_NONE = np.iinfo(np.int64).min


def has_ts(call: EventBatch) -> bool:
    """Whether the called events bring a ts, all of them; otherwise none does: they have none, or leave it to the
    clock."""
    return call.event.order is not None and not call.column(call.event.order).null_count


def alike(calls: EventBatch) -> list[EventBatch]:
    """The same, where some of them bring a ts and some do not: as several, in their order."""
    event = calls.event
    nulls = 0 if event.order is None else calls.column(event.order).null_count
    if nulls in (0, calls.table.num_rows):
        return [calls]
    brings = np.asarray(calls.column(event.order or "").is_valid())
    ends = [*(np.flatnonzero(np.diff(brings)) + 1).tolist(), brings.size]
    starts = [0, *ends[:-1]]
    return [
        EventBatch(event, calls.table.slice(start, end - start).combine_chunks(), np.arange(end - start))
        for start, end in zip(starts, ends, strict=True)
    ]


def merged(calls: list[EventBatch], clock: int | None) -> list[EventBatch]:
    """Calls by type of event; each ordered one with a ts."""
    found: dict[str, list[tuple[Any, pa.Table]]] = {}
    events: dict[str, EventDef] = {}
    start = 0
    for call in calls:
        event, table, count = call.event, call.table, call.table.num_rows
        if event.order is not None:
            if has_ts(call):
                ts = int(times(call.column(event.order)).max())
            else:
                ts = first_ts(event.type_of(event.order)) if clock is None else clock
                table = _with_ts(event, table, ts)
            clock = ts if clock is None else max(clock, ts)
        events[event.name] = event
        found.setdefault(event.name, []).append((np.arange(start, start + count), table))
        start += count
    return [
        EventBatch(
            events[name],
            several[0][1] if len(several) == 1 else one_below_another([t for _, t in several]),
            np.concatenate([places for places, _ in several]),
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


def events_called(program: Program, only: Iterable[Any]) -> list[str]:
    """The names of events that a user has opened to calls."""
    names = [str(getattr(getattr(one, "definition", None), "name", one)) for one in only]
    for name in names:
        event = program.event(name)
        if event is None or program.transaction_of(event) is None:
            taken = ", ".join(t.event.name for t in program.transactions) or "none"
            raise InputError(
                f"app '{program.name}': no transaction takes an event {name!r}, so it cannot be called; those that "
                f"can: {taken}"
            )
    return names


def _with_ts(event: EventDef, table: pa.Table, ts: int) -> pa.Table:
    assert event.order is not None
    place = event.place(event.order)
    column = pa.array(np.full(table.num_rows, ts, np.int64)).cast(event.arrow().field(place).type)
    return table.set_column(place, event.arrow().field(place), column)
