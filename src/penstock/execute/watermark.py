"""Event time across batches: what is held back, and what comes too late.

    highest    the highest ts that has arrived
    frontier   the highest ts that has run, in whatever batch
    held       events that have arrived, but may still be overtaken

With a delay d, events run once their ts is at or below highest - d; what arrives at or below the frontier gets the
outcome `late` and changes nothing. So the whole stream runs in event order as long as nothing comes more than d late.
A flush lets nothing wait, and what it brings may be late. Without either, a batch runs all that it brings and all that
is held, and nothing is late; the frontier moves with it all the same.

A high mark that a wild ts has set can be set back (store/reset.py). What is held beyond it then, which is nothing
otherwise, is given up by the next batch: it would only set the mark again.

Of what may run, the members of an atomic batch that is not whole yet are held as well (atomic_batches.py). A flush runs
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.declare.model import Program
from penstock.execute.atomic_batches import Marked, whole
from penstock.execute.intake import EventBatch
from penstock.execute.order import times_of
from penstock.state.arrow import times

ARRIVAL = "$arrival"  # no field of an event can have this name


class WatermarkBuffer(NamedTuple):
    """A tuple, since every batch makes one, and a small batch feels what a frozen dataclass takes."""

    highest: int | None = None
    frontier: int | None = None
    # event name -> its events in order of arrival, and in column $arrival their places among all that are held
    held: Mapping[str, pa.Table] = MappingProxyType({})

    @property
    def events(self) -> int:
        return sum(table.num_rows for table in self.held.values())

    def holds_until(self, program: Program, to: int) -> bool:
        """Whether an event is held whose time is not after this one, and that waits for nothing but that."""
        counted = {name for name, batch in program.batches.items() if batch != "ts"}
        events = ((program.event(name), table) for name, table in self.held.items() if name not in counted)
        return any(int(times(table.column(e.order)).min()) <= to for e, table in events if e is not None and e.order)

    def ran(self, ts: int) -> WatermarkBuffer:
        """After events up to this ts have run."""
        if self.frontier is not None and ts <= self.frontier:
            return self
        return WatermarkBuffer(ts if self.highest is None else max(ts, self.highest), ts, self.held)


@dataclass(frozen=True, slots=True)
class Released:
    """What of a batch, and of what was held, runs now."""

    events: list[EventBatch]
    late: list[Any]  # for each of `events`, which of its rows are late; None where none is
    buffer: WatermarkBuffer
    given_up: list[EventBatch] = field(default_factory=list)  # held beyond the high mark


def is_split(program: Program, buffer: WatermarkBuffer, delay: int | None, *, flush: bool) -> bool:
    """Whether a batch is not simply all that it brings."""
    return delay is not None or flush or bool(buffer.held) or bool(program.batches)


def release(
    program: Program,
    events: list[EventBatch],
    buffer: WatermarkBuffer,
    delay: int | None,
    *,
    flush: bool = False,
    until: int | None = None,
    marked: Marked = lambda ordered: ordered,
) -> Released:
    """Split what has arrived and what was held into what runs, what is late, and what waits on. delay: None, or what a
    watermark holds back. until: what the clock is set to by hand. marked: says which events are duplicates."""
    buffer, given_up = _without_beyond(program, buffer)
    new = [times_of(a) for a in events]
    tops = [int(ts.max()) for ts in new if ts.size] + ([] if buffer.highest is None else [buffer.highest])
    highest = max(tops, default=None)
    limit = highest if highest is None or flush or delay is None else highest - delay
    limit = limit if until is None else until
    judged = flush or delay is not None
    frontier, held, out, marks = buffer.frontier, [], [], []
    events = _with_held(program, events, buffer)
    moments = [times_of(one) for one in events]
    lates, runs = [], []
    for one, ts in zip(events, moments, strict=True):
        before = buffer.held[one.event.name].num_rows if one.event.name in buffer.held else 0
        late = np.zeros(ts.size, np.bool_)
        if judged and buffer.frontier is not None:
            late[before:] = ts[before:] <= buffer.frontier
        lates.append(late)
        runs.append(np.zeros_like(late) if limit is None else (ts <= limit) & ~late)
    if program.batches and not flush:
        # Behind a clock that is set by hand nothing comes at its time any more.
        runs = whole(program, events, runs, highest if until is None else until + 1, buffer.frontier, marked)
    for one, ts, late, run in zip(events, moments, lates, runs, strict=True):
        keep = ~run & ~late
        if keep.any():
            held.append(one.where(keep))
        now = run | late
        out.append(one.where(now))
        marks.append(late[now] if late.any() else None)
        done = ts[run]
        if done.size:
            frontier = int(done.max()) if frontier is None else max(frontier, int(done.max()))
    return Released(out, marks, WatermarkBuffer(highest, frontier, _numbered(held)), given_up)


def without_late(events: list[EventBatch], late: list[Any] | None) -> list[EventBatch]:
    """What a log of inputs has to run again."""
    if late is None:
        return events
    return [one if mark is None else one.where(~mark) for one, mark in zip(events, late, strict=True)]


def _without_beyond(program: Program, buffer: WatermarkBuffer) -> tuple[WatermarkBuffer, list[EventBatch]]:
    """The buffer without what lies beyond the high mark, and that."""
    kept, beyond = [], []
    for event in program.events:
        table = buffer.held.get(event.name)
        if table is not None:
            one = EventBatch(event, table.drop_columns(ARRIVAL), table.column(ARRIVAL).to_numpy())
            far = times_of(one) > buffer.highest
            kept.append(one.where(~far))
            beyond += [one.where(far)] if far.any() else []
    return (buffer._replace(held=_numbered([one for one in kept if one.table.num_rows])) if beyond else buffer), beyond


def _numbered(held: list[EventBatch]) -> dict[str, pa.Table]:
    """Held events with their places, counted from 0 over all types, so that ties between types keep their order."""
    every = np.concatenate([np.zeros(0, np.int64), *[one.arrival for one in held]])
    place = np.empty(every.size, np.int64)
    place[np.argsort(every, kind="stable")] = np.arange(every.size)
    parts = np.split(place, np.cumsum([one.table.num_rows for one in held]))
    return {
        one.event.name: one.table.append_column(ARRIVAL, pa.array(part)) for one, part in zip(held, parts, strict=False)
    }


def _with_held(program: Program, events: list[EventBatch], buffer: WatermarkBuffer) -> list[EventBatch]:
    """Held events come before all that is new: they arrived before it."""
    if not buffer.held:
        return events
    given = {a.event.name: a for a in events}
    out = []
    for event in program.events:
        tables, places = [], []
        if event.name in buffer.held:
            table = buffer.held[event.name]
            tables.append(table.drop_columns(ARRIVAL))
            places.append(table.column(ARRIVAL).to_numpy())
        if event.name in given:
            tables.append(_plain(given[event.name].table, tables[0].schema if tables else None))
            places.append(given[event.name].arrival + buffer.events)
        if tables:
            out.append(EventBatch(event, pa.concat_tables(tables).combine_chunks(), np.concatenate(places)))
    return out


def _plain(table: pa.Table, schema: pa.Schema | None) -> pa.Table:
    """The same types as what was held: a str may have come as a dictionary the one time only."""
    return table if schema is None else table.cast(schema)
