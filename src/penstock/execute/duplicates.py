"""Which events of an ordered batch bring an id that has run already: no policy sees them.

    order ──> marked ──> run ──> remember
              kind |= PASSED; firsts: the version of the first one; -1 - its place, where it is in the same batch

Judging comes before running, since whoever has a place in the order gets an outcome, and nothing that a body does can
change that. So a duplicate within a batch is judged by the order alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from penstock.declare.model import EventDef, Program
from penstock.execute.intake import EventBatch
from penstock.execute.order import PASSED, OrderedBatch, clocks
from penstock.state.arrow import from_arrow, one_chunk
from penstock.state.tables import Tables


@dataclass(frozen=True, slots=True)
class NewIds:
    """Ids of an event that run in this batch, in order."""

    event: str
    ids: Any  # as a lane has them
    ts: Any
    clock: Any


def marked(program: Program, batch: OrderedBatch, tables: Tables) -> OrderedBatch:
    """The batch with its duplicates marked, and what is to be remembered of it once it has run."""
    kind, firsts = batch.kind, np.zeros(batch.count, np.int64)
    clock: Any = None
    new = []
    for event in program.unique:
        arrived = next((one for one in batch.arrived if one.event.name == event.name), None)
        if arrived is None:
            continue
        clock = clocks(batch) if clock is None else clock
        places = np.flatnonzero(kind == program.kind(event.name))
        places = places[np.searchsorted(places, batch.timeless) :]
        state = tables.ids[event.name]
        ids, ts, now = _ids(event, arrived, tables)[batch.pos[places]], batch.ts[places], clock[places]
        found = state.judge(ids, ts, now)
        runs = found == 0
        if not runs.all():
            here = found < 0
            found[here] = -1 - places[-1 - found[here]]
            firsts[places] = found
            ids, ts, now = ids[runs], ts[runs], now[runs]
        if ids.size:
            new.append(NewIds(event.name, ids, ts, now))
    if firsts.any():
        return replace(batch, kind=np.where(firsts, kind | PASSED, kind), firsts=firsts, new_ids=tuple(new))
    return replace(batch, new_ids=tuple(new))


def remember(batch: OrderedBatch, tables: Tables, version: int) -> None:
    """The batch has run, as this version."""
    until = batch.clock_after
    for new in batch.new_ids:
        assert until is not None
        tables.ids[new.event].remember(new.ids, new.ts, new.clock, version, until)


def versions(firsts: Any, version: int) -> Any:
    """The versions of the first ones of a batch that is this version; 0 where an event is no duplicate."""
    return np.where(firsts < 0, version, firsts)


def _ids(event: EventDef, arrived: EventBatch, tables: Tables) -> Any:
    """The id of each row."""
    assert event.id is not None
    return from_arrow(one_chunk(arrived.column(event.id)), event.type_of(event.id), tables.strings)
