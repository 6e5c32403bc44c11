"""Atomic batches: which events of those that have arrived form one transaction, and which have to wait for others.

    @app.transaction(batch="ts")     all events of one time
    @app.transaction(batch=100)      100 events, in order

Both questions are answered from the events in order alone. First `whole`, of all that a watermark lets through: what is
not whole yet waits, and is held with what the watermark holds (watermark.py). Then `grouped`, of what is left: it
lays the members of each batch side by side, so that a batch is so many rows up to its last one's, and runs there. What
a flush runs although it is short of members runs behind all else, as if the flush had come as a batch of its own.

Another event of the highest ts may still arrive. So a batch of that ts waits for a higher one, and what is behind its
first member in order waits with it: otherwise it would run before the batch or behind it by the chance of where the
input was cut.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.declare.model import Program
from penstock.execute.intake import EventBatch
from penstock.execute.order import PASSED, Members, OrderedBatch, order, times_of

Marked = Callable[[OrderedBatch], OrderedBatch]  # with its duplicates marked


def whole(
    program: Program,
    events: list[EventBatch],
    due: list[Any],
    highest: int | None,
    clock: int | None,
    marked: Marked,
) -> list[Any]:
    """Of the rows of each of `events`, which are due, those that need not wait. highest: the highest ts that has
    arrived; clock: the highest that has run. A duplicate is no member of a batch; it waits if the first one does."""
    if highest is None:
        return due
    if not any(event.name in program.batches for event in program.unique):
        return _whole(program, events, due, highest, [np.zeros_like(mask) for mask in due])
    rows = [np.flatnonzero(mask) for mask in due]
    ordered = marked(order(program, [one.where(mask) for one, mask in zip(events, due, strict=True)], clock=clock))
    if ordered.firsts is None:
        return _whole(program, events, due, highest, [np.zeros_like(mask) for mask in due])
    # Of all rows that are due, one table after the other: which are duplicates, and the row of the first one, or their
    # own where that has run.
    place = np.arange(ordered.count) if ordered.place is None else ordered.place
    duplicate, first = np.zeros(ordered.count, np.bool_), np.arange(ordered.count)
    duplicate[place] = ordered.firsts != 0
    here = ordered.firsts < 0
    first[place[here]] = place[-1 - ordered.firsts[here]]
    sizes = np.cumsum([one.size for one in rows])[:-1]
    passed = [np.zeros_like(mask) for mask in due]
    for mask, some, which in zip(passed, rows, np.split(duplicate, sizes), strict=True):
        mask[some[which]] = True
    out = _whole(program, events, due, highest, passed)
    runs = np.concatenate([mask[some] for mask, some in zip(out, rows, strict=True)])
    for mask, some, run in zip(out, rows, np.split(runs & runs[first], sizes), strict=True):
        mask[some] = run
    return out


def _whole(
    program: Program, events: list[EventBatch], due: list[Any], highest: int, duplicates: list[Any]
) -> list[Any]:
    times = [times_of(one) for one in events]
    members = [mask & ~some for mask, some in zip(due, duplicates, strict=True)]
    first = _first_to_wait(program, events, [ts[mask] for ts, mask in zip(times, members, strict=True)], highest)
    behind = [mask & (ts >= first) for ts, mask in zip(times, due, strict=True)]
    tail = [one.where(mask) for one, mask in zip(events, behind, strict=True)]
    before = {
        one.event.name: int(np.count_nonzero(some & ~mask))
        for one, some, mask in zip(events, members, behind, strict=True)
    }
    ordered = order(program, tail, [some[mask] for some, mask in zip(duplicates, behind, strict=True)])
    place = np.arange(ordered.count) if ordered.place is None else ordered.place
    waits = np.empty(ordered.count, np.bool_)
    waits[place] = _waiting(program, ordered, highest, before)
    out = []
    for mask, some, wait in zip(due, behind, _split(waits, tail), strict=True):
        out.append(mask.copy())
        out[-1][np.flatnonzero(some)[wait]] = False
    return out


def _first_to_wait(program: Program, events: list[EventBatch], times: list[Any], highest: int) -> int:
    """A ts before which nothing waits: only what comes behind has to be put in order."""
    first = highest
    for one, ts in zip(events, times, strict=True):
        batch = program.batches.get(one.event.name)
        if isinstance(batch, int) and ts.size:
            most = min(int(np.count_nonzero(ts == highest)) + batch - 1, ts.size)  # that may wait
            first = min(first, int(np.partition(ts, -most)[-most])) if most else first
    return first


def _waiting(program: Program, ordered: OrderedBatch, highest: int, before: dict[str, int]) -> Any:
    """Of each place in the order, whether its event waits. before: how many of each type run before all of these."""
    out = np.zeros(ordered.count, np.bool_)
    behind = ordered.count
    for event, batch in program.batches.items():
        if batch == "ts":
            last = np.flatnonzero((ordered.kind == program.kind(event)) & (ordered.ts == highest))
            behind = min(behind, int(last[0])) if last.size else behind
    out[behind:] = True
    for event, batch in program.batches.items():
        if isinstance(batch, int):
            places = np.flatnonzero((ordered.kind == program.kind(event)) & ~out)
            rest = (before.get(event, 0) + places.size) % batch
            out[places[places.size - rest :]] = True
    return out


def _split(every: Any, events: list[EventBatch]) -> list[Any]:
    """What is said of all rows, by table."""
    return np.split(every, np.cumsum([one.table.num_rows for one in events])[:-1]) if events else []


def grouped(program: Program, ordered: OrderedBatch) -> OrderedBatch:
    """The same batch, with the members of atomic batches side by side; they are taken to be whole."""
    turn = _firsts_first(program, ordered, _short_last(program, ordered))
    kind, pos, ts = ordered.kind[turn], ordered.pos[turn], ordered.ts[turn]
    members = Members(np.ones(kind.size, np.int64), np.zeros(kind.size, np.int64))
    tables = {one.event.name: one.table for one in ordered.arrived}
    for name in program.batches.keys() & tables.keys():
        number = program.kind(name)
        places, late = np.flatnonzero(kind == number), np.flatnonzero(kind == number | PASSED)
        rows, lie = np.concatenate([pos[places], pos[late]]), np.arange(places.size + late.size)
        if not np.array_equal(rows, lie):
            tables[name] = tables[name].take(pa.array(rows)).combine_chunks()
            pos[places], pos[late] = lie[: places.size], lie[places.size :]
        last = _last(ts[places], program.batches[name])
        members.count[places] = 0
        members.count[places[last]] = np.diff(last, prepend=-1)
        members.before[places[1:]] = places[:-1]
    arrived = tuple(replace(one, table=tables[one.event.name]) for one in ordered.arrived)
    place = _place(program, arrived, kind, pos)
    firsts = None if ordered.firsts is None else ordered.firsts[turn]
    return replace(ordered, arrived=arrived, kind=kind, pos=pos, ts=ts, place=place, members=members, firsts=firsts)


def _short_last(program: Program, ordered: OrderedBatch) -> Any:
    """The places in order, with those of batches that are short of members behind all others."""
    short = np.zeros(ordered.count, np.bool_)
    for event, batch in program.batches.items():
        if isinstance(batch, int):
            places = np.flatnonzero(ordered.kind == program.kind(event))
            short[places[places.size - places.size % batch :]] = True
    return np.concatenate([np.flatnonzero(~short), np.flatnonzero(short)])


def _firsts_first(program: Program, ordered: OrderedBatch, turn: Any) -> Any:
    """These places, with each duplicate that is before the last member of its first one's batch moved behind it."""
    if ordered.firsts is None:
        return turn
    kind, ts, firsts = ordered.kind[turn], ordered.ts[turn], ordered.firsts[turn]
    runs_at, now_at = np.arange(turn.size), np.empty(turn.size, np.int64)
    now_at[turn] = np.arange(turn.size)
    for name, batch in program.batches.items():
        places = np.flatnonzero(kind == program.kind(name))
        last = _last(ts[places], batch)
        runs_at[places] = places[last[np.searchsorted(last, np.arange(places.size))]]
    behind, here = np.arange(turn.size), np.flatnonzero(firsts < 0)
    behind[here] = np.maximum(here, runs_at[now_at[-1 - firsts[here]]])
    return turn[np.lexsort((firsts != 0, behind))]


def _last(ts: Any, batch: str | int) -> Any:
    """Which of the events of one type, in order, are the last of their batch; the last of all may be short of some."""
    if ts.size == 0:
        return np.zeros(0, np.int64)
    if isinstance(batch, int):
        size = min(batch, ts.size)
        return np.append(np.arange(size - 1, ts.size - 1, size), ts.size - 1)
    return np.append(np.flatnonzero(ts[1:] != ts[:-1]), ts.size - 1)


def _place(program: Program, arrived: tuple[EventBatch, ...], kind: Any, pos: Any) -> Any:
    """Each event's row among the rows of all tables, one after the other."""
    first = np.zeros(len(program.events), np.int64)
    start = 0
    for one in arrived:
        first[program.kind(one.event.name)] = start
        start += one.table.num_rows
    return first[kind & (PASSED - 1)] + pos
