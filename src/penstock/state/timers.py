"""The timers that wait, as kernels meet them: a heap by (at, number) over the rows of the tables of timers.

    at, number   when one runs, and which emission it was
    kind, row    which event of the program, and which row of that event's table of timers
    meta         int64[2]: how many wait, the next emission's number

The tables are the state, which logs and snapshots hold; the heap is made from them where they were read back, and then
kept by the kernels. Numbers are never used again, in a directory's whole life: so every replay gives the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.declare.model import AT, ID, NAMED, NUMBER, EventDef, Program, timers_of
from penstock.state.strings import longer
from penstock.state.table import TableState

WAITING, NEXT = range(2)
_ROOM = 64


class TimerHeap:
    def __init__(self, program: Program, tables: dict[str, TableState]) -> None:
        names = program.flow.timed if program.flow is not None else ()
        self._tables = [(program.kind(name), tables[timers_of(name)]) for name in names]
        self._lanes = {part: np.zeros(_ROOM, np.int64) for part in ("at", "number", "kind", "row")}
        self.meta = np.zeros(2, np.int64)
        self.stale = False  # whether the tables were written to by others than kernels

    def arguments(self) -> dict[str, Any]:
        if self.stale:
            self._make()
        return {"timers": self.meta, **{f"heap_{part}": lane for part, lane in self._lanes.items()}}

    def given(self, numbers: int | None) -> None:
        """So many numbers were given before."""
        self.meta[NEXT] = numbers or 0

    @property
    def numbers(self) -> int | None:
        """How many numbers were given; None where an app sets no timers."""
        return int(self.meta[NEXT]) if self._tables else None

    @property
    def first(self) -> int | None:
        """When the next one runs."""
        if self.stale:
            self._make()
        return int(self._lanes["at"][0]) if self.meta[WAITING] else None

    def grow(self) -> None:
        self._lanes = {part: longer(lane, 2 * lane.size) for part, lane in self._lanes.items()}

    def _make(self) -> None:
        """What is sorted is a heap."""
        self.stale = False
        if not self._tables:
            return
        found = []
        for kind, table in self._tables:
            rows = table.live_rows()
            at = table.columns[[c.name for c in table.definition.lanes].index(AT)]
            found.append(np.stack([at[rows], table.stored[0][rows], np.full(rows.size, kind), rows]))
        every = np.concatenate(found, axis=1)
        every = every[:, np.lexsort((every[1], every[0]))]
        room = max(_ROOM, 2 * every.shape[1])
        self._lanes = {
            part: longer(lane, room) for part, lane in zip(("at", "number", "kind", "row"), every, strict=True)
        }
        self.meta[WAITING] = every.shape[1]


def waiting(program: Program, event: EventDef, rows: pa.Table) -> pa.Table:
    """An event's timers for users, in the order in which they will run. rows: its table of timers."""
    rows = rows.sort_by([(AT, "ascending"), (NUMBER, "ascending")])
    columns = [rows.column(AT)]
    if program.id_type() is not None:
        columns.append(pc.if_else(rows.column(NAMED), rows.column(ID), pa.scalar(None, rows.column(ID).type)))
    columns += [rows.column(f.name) for f in event.fields]
    return pa.Table.from_arrays(columns, schema=program.pending(event))
