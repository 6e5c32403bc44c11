"""Event time across batches: what is held back, and what comes too late.

    highest    the highest ts that has arrived
    frontier   the highest ts that has run: at or below it an event is late
    held       events that have arrived, but may still be overtaken

With a delay d, events run once their ts is at or below highest - d. So the whole stream runs in event
order as long as nothing comes more than d late; what does gets the outcome `late` and changes nothing.
Without a delay a batch runs as it comes, and nothing is late.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.declare.model import Program
from penstock.execute.intake import Arrived
from penstock.state.arrow import times


@dataclass(frozen=True, slots=True)
class Waiting:
    highest: int | None = None
    frontier: int | None = None
    held: dict[str, pa.Table] = field(default_factory=dict)  # event name -> its events, in order of arrival

    @property
    def count(self) -> int:
        return sum(table.num_rows for table in self.held.values())


@dataclass(frozen=True, slots=True)
class Released:
    """What of a batch, and of what was held, runs now."""

    arrived: list[Arrived]
    late: list[Any]  # for each of `arrived`, which of its rows are late; None where none is
    waiting: Waiting


def release(program: Program, arrived: list[Arrived], waiting: Waiting, delay: int, *, flush: bool = False) -> Released:
    """Split what has arrived and what was held into what runs, what is late, and what waits on."""
    new = [times(a.table.column(a.event.order)) for a in arrived]
    tops = [int(ts.max()) for ts in new if ts.size] + ([] if waiting.highest is None else [waiting.highest])
    highest = max(tops, default=None)
    limit = None if highest is None else (highest if flush else highest - delay)
    frontier, held, out, marks = waiting.frontier, {}, [], []
    arrived = _with_held(program, arrived, waiting)
    for one in arrived:
        ts = times(one.table.column(one.event.order))
        before = waiting.held[one.event.name].num_rows if one.event.name in waiting.held else 0
        late = np.zeros(ts.size, np.bool_)
        if waiting.frontier is not None:
            late[before:] = ts[before:] <= waiting.frontier
        runs = np.zeros(ts.size, np.bool_) if limit is None else ts <= limit
        keep = ~runs & ~late
        if keep.any():
            held[one.event.name] = one.table.filter(pa.array(keep))
        now = runs | late
        out.append(_rows(one, now))
        marks.append(late[now] if late.any() else None)
        ran = ts[runs & ~late]
        if ran.size:
            frontier = int(ran.max()) if frontier is None else max(frontier, int(ran.max()))
    return Released(out, marks, Waiting(highest, frontier, held))


def _with_held(program: Program, arrived: list[Arrived], waiting: Waiting) -> list[Arrived]:
    """Held events come before all that is new: they arrived before it."""
    if not waiting.held:
        return arrived
    given = {a.event.name: a for a in arrived}
    out, place = [], 0
    for event in program.events:
        tables, places = [], []
        if event.name in waiting.held:
            table = waiting.held[event.name]
            tables.append(table)
            places.append(np.arange(place, place + table.num_rows))
            place += table.num_rows
        if event.name in given:
            tables.append(_plain(given[event.name].table, tables[0].schema if tables else None))
            places.append(given[event.name].arrival + waiting.count)
        if tables:
            out.append(Arrived(event, pa.concat_tables(tables).combine_chunks(), np.concatenate(places)))
    return out


def _plain(table: pa.Table, schema: pa.Schema | None) -> pa.Table:
    """The same types as what was held: a str may have come as a dictionary the one time only."""
    return table if schema is None else table.cast(schema)


def _rows(one: Arrived, wanted: Any) -> Arrived:
    if wanted.all():
        return one
    return Arrived(one.event, one.table.filter(pa.array(wanted)).combine_chunks(), one.arrival[wanted])
