"""Atomic batches: which events of those that have arrived form one transaction, and which have to wait for others.

    @app.transaction(batch="ts")     all events of one time
    @app.transaction(batch=100)      100 events, in order

Both questions are answered from the events in order alone. First `waiting`, of all that a watermark lets through: what
is not whole yet waits, and is held with what the watermark holds (watermark.py). Then `grouped`, of what is left: it
lays the members of each batch side by side, so that a batch is so many rows up to its last one's, and runs there. What
a flush runs although it is short of members runs behind all else, as if the flush had come as a batch of its own.

Another event of the highest ts may still arrive. So a batch of that ts waits for a higher one, and what is behind its
first member in order waits with it: otherwise it would run before the batch or behind it by the chance of where the
input was cut.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.declare.model import Program
from penstock.execute.intake import EventBatch
from penstock.execute.order import LATE, Members, OrderedBatch


def waiting(program: Program, ordered: OrderedBatch, highest: int | None) -> Any:
    """Of each place in the order, whether its event waits. highest: the highest ts that has arrived."""
    out = np.zeros(ordered.count, np.bool_)
    behind = ordered.count
    for event, batch in program.batches.items():
        if batch == "ts":
            last = np.flatnonzero((ordered.kind == program.kind(event)) & (ordered.ts == highest))
            behind = min(behind, int(last[0])) if last.size else behind
    out[behind:] = True
    for event, batch in program.batches.items():
        if isinstance(batch, int):
            out[_rest(program, ordered, event, batch, ~out)] = True
    return out


def rows_of(arrived: list[EventBatch], ordered: OrderedBatch, wanted: Any) -> list[Any]:
    """What is wanted by place in the order, by row of each of `arrived`, which were put in that order."""
    place = np.arange(ordered.count) if ordered.place is None else ordered.place
    every = np.empty(ordered.count, np.bool_)
    every[place] = wanted
    return np.split(every, np.cumsum([one.table.num_rows for one in arrived])[:-1]) if arrived else []


def grouped(program: Program, ordered: OrderedBatch) -> OrderedBatch:
    """The same batch, with the members of atomic batches side by side; they are taken to be whole."""
    turn = _short_last(program, ordered)
    kind, pos, ts = ordered.kind[turn], ordered.pos[turn], ordered.ts[turn]
    members = Members(np.ones(kind.size, np.int64), np.zeros(kind.size, np.int64))
    tables = {one.event.name: one.table for one in ordered.arrived}
    for name in program.batches.keys() & tables.keys():
        number = program.kind(name)
        places, late = np.flatnonzero(kind == number), np.flatnonzero(kind == number | LATE)
        tables[name] = tables[name].take(pa.array(np.concatenate([pos[places], pos[late]]))).combine_chunks()
        pos[places], pos[late] = np.arange(places.size), np.arange(places.size, places.size + late.size)
        last = _last(ts[places], program.batches[name])
        members.count[places] = 0
        members.count[places[last]] = np.diff(last, prepend=-1)
        members.before[places[1:]] = places[:-1]
    arrived = tuple(replace(one, table=tables[one.event.name]) for one in ordered.arrived)
    return OrderedBatch(arrived, kind, pos, ts, _place(program, arrived, kind, pos), members)


def _short_last(program: Program, ordered: OrderedBatch) -> Any:
    """The places in order, with those of batches that are short of members behind all others."""
    short = np.zeros(ordered.count, np.bool_)
    for event, batch in program.batches.items():
        if isinstance(batch, int):
            short[_rest(program, ordered, event, batch)] = True
    return np.concatenate([np.flatnonzero(~short), np.flatnonzero(short)])


def _rest(program: Program, ordered: OrderedBatch, event: str, batch: int, among: Any = True) -> Any:
    """The places of those that are too few for a batch."""
    places = np.flatnonzero((ordered.kind == program.kind(event)) & among)
    return places[places.size - places.size % batch :]


def _last(ts: Any, batch: str | int) -> Any:
    """Which of the events of one type, in order, are the last of their batch; the last of all may be short of some."""
    if ts.size == 0:
        return np.zeros(0, np.int64)
    ends = ts[1:] != ts[:-1] if batch == "ts" else np.arange(1, ts.size) % batch == 0
    return np.append(np.flatnonzero(ends), ts.size - 1)


def _place(program: Program, arrived: tuple[EventBatch, ...], kind: Any, pos: Any) -> Any:
    """Each event's row among the rows of all tables, one after the other."""
    first = np.zeros(len(program.events), np.int64)
    start = 0
    for one in arrived:
        first[program.kind(one.event.name)] = start
        start += one.table.num_rows
    return first[kind & (LATE - 1)] + pos
