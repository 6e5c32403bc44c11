"""A window's rows, and for each key a record of where they lie.

    the table          its columns are hidden ones: head, active, tail, base, size, logged (plan/windows.py), sums
    pool               one array a column of the rows, and one of their times: rings of them (rings.py)
    pool_used          how much of it rings have taken

The table is like any other, so that kernels find, make, write and undo its records as such. What they write to a ring
they can undo as well; what a ring that grew leaves behind is given back when the pool is full.

On disk are each key's head, active and tail, and its rows. Where they lie, and their sums, is found anew.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.declare.types import INT
from penstock.plan.ir import WindowPlan
from penstock.plan.windows import ACTIVE, BASE, HEAD, LOGGED, SIZE, TAIL
from penstock.state import rings
from penstock.state.arrow import from_arrow, to_arrow
from penstock.state.hashing import add_rows
from penstock.state.lanes import dtype
from penstock.state.strings import Strings
from penstock.state.table import DIRTY, TableState

FIRST_RING = 4  # rows that a ring has room for at first
_FIRST_POOL = 1024
# Columns of what is on disk; no user's column has such a name.
NUMBER, TIME = "$number", "$time"
_ENDS = {HEAD: "$head", ACTIVE: "$active", TAIL: "$tail"}


class WindowState(TableState):
    def __init__(self, plan: WindowPlan) -> None:
        super().__init__(plan.table)
        self.plan, window = plan, plan.definition
        self.rows: list[Any] = [np.zeros(_FIRST_POOL, dtype(c.type)) for c in window.values]
        self.times = np.zeros(_FIRST_POOL if window.rows is None else 0, np.int64)
        self.pool = np.array([0, _FIRST_POOL])  # used, and room

    @property
    def name(self) -> str:
        return self.plan.definition.name

    def part(self, name: str) -> Any:
        """An array as kernels name it: row0, rowbits0, times, pool, or one of the table's."""
        if name.startswith("rowbits"):
            return self.rows[int(name[7:])].view(np.int64)
        if name.startswith("row"):
            return self.rows[int(name[3:])]
        return super().part(name)

    def reserve_rows(self, extra: int = 0) -> None:
        """Make room in the pool: rings are packed, and it is left two thirds empty. A ring that grows is twice what it
        was, so it fits. extra: more room, for a transaction that makes rings grow many times over: what it had made of
        them before it was stopped is undone, so that the rings do not tell."""
        rows = self.live_rows()
        base, size = self.columns[BASE][rows], self.columns[SIZE][rows]
        used = int(size.sum())
        to = np.cumsum(size) - size
        room = max(_FIRST_POOL, 3 * used + extra)
        nothing = np.zeros_like(size)
        made = []
        for lane in (*self.rows, self.times):
            out = np.zeros(room if lane.size else 0, lane.dtype)
            if lane.size:
                rings.move_all(lane, base, size, out, to, size, nothing, size)
            made.append(out)
        self.rows, self.times = made[:-1], made[-1]
        self.columns[BASE][rows] = to
        self.pool[:] = used, room
        self.made += 1

    def end_batch(self) -> None:
        written = self.dirty[: self.meta[DIRTY]]
        self.columns[LOGGED][written] = self.columns[TAIL][written]
        super().end_batch()

    def string_lanes(self) -> list[Any]:
        """The numbers of strings in its rows, and in what was there before them."""
        columns = zip(self.plan.definition.values, self.rows, strict=True)
        return [lane[: self.pool[0]] for column, lane in columns if column.type.kind == "str"]

    # -- out as Arrow -----------------------------------------------------------------------

    def changes(self, strings: Strings) -> tuple[pa.Table, pa.Table]:
        """What the running batch did: where rows now begin and end, and those that it added and that are still kept."""
        written, _ = self.dirty_rows()
        head, logged = self.columns[HEAD][written], self.columns[LOGGED][written]
        return self._ends(written, strings), self._rows(written, np.maximum(head, logged), strings)

    def whole(self, strings: Strings) -> tuple[pa.Table, pa.Table]:
        """All of it: where rows begin and end, and the rows."""
        live = self.live_rows()
        return self._ends(live, strings), self._rows(live, self.columns[HEAD][live], strings)

    def _ends(self, rows: Any, strings: Strings) -> pa.Table:
        columns = self._keys(rows, strings)
        columns |= {name: to_arrow(self.columns[k][rows], INT, strings) for k, name in _ENDS.items()}
        return pa.table(columns)

    def _rows(self, owners: Any, first: Any, strings: Strings) -> pa.Table:
        """The rows of these records, each from this number on."""
        counts = self.columns[TAIL][owners] - first
        owner = np.repeat(owners, counts)
        number = np.arange(owner.size) + np.repeat(first - (np.cumsum(counts) - counts), counts)
        at = self.columns[BASE][owner] + (number & (self.columns[SIZE][owner] - 1))
        columns = self._keys(owner, strings) | {NUMBER: to_arrow(number, INT, strings)}
        if self.times.size:
            columns[TIME] = to_arrow(self.times[at], INT, strings)
        for column, lane in zip(self.plan.definition.values, self.rows, strict=True):
            columns[column.name] = to_arrow(lane[at], column.type, strings)
        return pa.table(columns)

    def _keys(self, rows: Any, strings: Strings) -> dict[str, pa.Array]:
        keys = zip(self.definition.keys, self.stored, strict=True)
        return {column.name: to_arrow(lane[rows], column.type, strings) for column, lane in keys}

    # -- and back in ------------------------------------------------------------------------

    def take(self, ends: pa.Table, rows: pa.Table, strings: Strings, batch: int) -> None:
        """What a log or a snapshot holds: `changes` of a batch, or the `whole`."""
        keys = self.keys_of(ends, strings)
        self.reserve(ends.num_rows)
        fresh = self.rows_of(keys) < 0
        owners = add_rows(self.slots, self.stored, self.flags, self.free, self.meta, keys)
        for column in self.columns:
            column[owners[fresh]] = 0
        before = self.columns[TAIL][owners]
        for k, name in _ENDS.items():
            self.columns[k][owners] = from_arrow(ends.column(name), INT, strings)
        self.columns[LOGGED][owners] = self.columns[TAIL][owners]
        self.written[owners] = batch
        self._make_room(owners, before)
        self._put(rows, strings)
        self._sum(owners)

    def _make_room(self, owners: Any, before: Any) -> None:
        """Rings for what these hold now; the rows up to `before` are in the old ones."""
        head, tail = self.columns[HEAD][owners], self.columns[TAIL][owners]
        short = tail - head > self.columns[SIZE][owners]
        owners, head, tail, before = owners[short], head[short], tail[short], before[short]
        size = rings.rooms(tail - head, FIRST_RING)
        used = int(size.sum())
        if int(self.pool[0]) + used > int(self.pool[1]):
            self.reserve_rows(used)
        base, old = self.columns[BASE][owners], self.columns[SIZE][owners]
        to = int(self.pool[0]) + np.cumsum(size) - size
        for lane in (*self.rows, self.times):
            if lane.size:
                rings.move_all(lane, base, old, lane, to, size, head, before)
        self.columns[BASE][owners], self.columns[SIZE][owners] = to, size
        self.pool[0] += used

    def _put(self, rows: pa.Table, strings: Strings) -> None:
        if rows.num_rows == 0:
            return
        owner = self.rows_of(self.keys_of(rows, strings))
        number = from_arrow(rows.column(NUMBER), INT, strings)
        at = self.columns[BASE][owner] + (number & (self.columns[SIZE][owner] - 1))
        if self.times.size:
            self.times[at] = from_arrow(rows.column(TIME), INT, strings)
        for column, lane in zip(self.plan.definition.values, self.rows, strict=True):
            lane[at] = from_arrow(rows.column(column.name), column.type, strings)

    def _sum(self, owners: Any) -> None:
        base, size, head, active = (self.columns[k][owners] for k in (BASE, SIZE, HEAD, ACTIVE))
        for n, k in enumerate(self.plan.summed):
            high, low = np.zeros(owners.size, np.int64), np.zeros(owners.size, np.int64)
            rings.totals(self.rows[k], base, size, head, active, high, low)
            self.columns[LOGGED + 1 + 2 * n][owners], self.columns[LOGGED + 2 + 2 * n][owners] = high, low
