"""Event time across batches: what is held back, and what comes too late.

    highest    the highest ts that has arrived
    frontier   the highest ts that has run, in whatever batch
    held       events that have arrived, but may still be overtaken

With a delay d, events run once their ts is at or below highest - d; what arrives at or below the frontier gets the
outcome `late` and changes nothing. So the whole stream runs in event order as long as nothing comes more than d late.
A flush lets nothing wait, and what it brings may be late. Without either, a batch runs all that it brings and all that
is held, and nothing is late; the frontier moves with it all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.declare.model import Program
from penstock.execute.intake import Arrived
from penstock.state.arrow import times

ARRIVAL = "$arrival"  # no field of an event can have this name


class Waiting(NamedTuple):
    """A tuple, since every batch makes one, and a small batch feels what a frozen dataclass takes."""

    highest: int | None = None
    frontier: int | None = None
    # event name -> its events in order of arrival, and in column $arrival their places among all that are held
    held: Mapping[str, pa.Table] = MappingProxyType({})

    @property
    def events(self) -> int:
        return sum(table.num_rows for table in self.held.values())

    def ran(self, ts: int) -> Waiting:
        """After events up to this ts have run."""
        if self.frontier is not None and ts <= self.frontier:
            return self
        return Waiting(ts if self.highest is None else max(ts, self.highest), ts, self.held)


@dataclass(frozen=True, slots=True)
class Released:
    """What of a batch, and of what was held, runs now."""

    arrived: list[Arrived]
    late: list[Any]  # for each of `arrived`, which of its rows are late; None where none is
    waiting: Waiting


def release(
    program: Program, arrived: list[Arrived], waiting: Waiting, delay: int | None, *, flush: bool = False
) -> Released:
    """Split what has arrived and what was held into what runs, what is late, and what waits on. delay: None, or what a
    watermark holds back."""
    new = [times(a.column(a.event.order)) for a in arrived]
    tops = [int(ts.max()) for ts in new if ts.size] + ([] if waiting.highest is None else [waiting.highest])
    highest = max(tops, default=None)
    limit = highest if highest is None or flush or delay is None else highest - delay
    judged = flush or delay is not None
    frontier, held, out, marks = waiting.frontier, [], [], []
    arrived = _with_held(program, arrived, waiting)
    for one in arrived:
        ts = times(one.column(one.event.order))
        before = waiting.held[one.event.name].num_rows if one.event.name in waiting.held else 0
        late = np.zeros(ts.size, np.bool_)
        if judged and waiting.frontier is not None:
            late[before:] = ts[before:] <= waiting.frontier
        runs = np.zeros(ts.size, np.bool_) if limit is None else ts <= limit
        keep = ~runs & ~late
        if keep.any():
            held.append(_rows(one, keep))
        now = runs | late
        out.append(_rows(one, now))
        marks.append(late[now] if late.any() else None)
        done = ts[runs & ~late]
        if done.size:
            frontier = int(done.max()) if frontier is None else max(frontier, int(done.max()))
    return Released(out, marks, Waiting(highest, frontier, _numbered(held)))


def ran(arrived: list[Arrived], late: list[Any] | None) -> list[Arrived]:
    """Without those that are late: what a log of inputs has to run again."""
    if late is None:
        return arrived
    return [one if mark is None else _rows(one, ~mark) for one, mark in zip(arrived, late, strict=True)]


def _numbered(held: list[Arrived]) -> dict[str, pa.Table]:
    """Held events with their places, counted from 0 over all types, so that ties between types keep their order."""
    every = np.concatenate([np.zeros(0, np.int64), *[one.arrival for one in held]])
    place = np.empty(every.size, np.int64)
    place[np.argsort(every, kind="stable")] = np.arange(every.size)
    parts = np.split(place, np.cumsum([one.table.num_rows for one in held]))
    return {
        one.event.name: one.table.append_column(ARRIVAL, pa.array(part)) for one, part in zip(held, parts, strict=False)
    }


def _with_held(program: Program, arrived: list[Arrived], waiting: Waiting) -> list[Arrived]:
    """Held events come before all that is new: they arrived before it."""
    if not waiting.held:
        return arrived
    given = {a.event.name: a for a in arrived}
    out = []
    for event in program.events:
        tables, places = [], []
        if event.name in waiting.held:
            table = waiting.held[event.name]
            tables.append(table.drop_columns(ARRIVAL))
            places.append(table.column(ARRIVAL).to_numpy())
        if event.name in given:
            tables.append(_plain(given[event.name].table, tables[0].schema if tables else None))
            places.append(given[event.name].arrival + waiting.events)
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
