"""One table's records: columns that grow, an index from key to row, and which rows a batch touched.

    stored   int64[keys, capacity]   the key columns
    columns  one array a value column, of the column's lane
    written  int64[capacity]         the batch that last wrote each record
    at       int64[capacity]         where records have a ttl: the clock of that write, NEVER if that is not known
    flags    uint8[capacity]         ALIVE, LISTED (among this batch's tombstones)
    dirty, tombstones, free              rows written, died in this batch; rows to use again
    meta     int64[8]                rows used, free, dirty, tombstones, slots used

A row is a place, not an identity: it is used again after its record is deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.declare.model import Column, TableDef
from penstock.declare.types import INT, Type
from penstock.state import hashing, mirror
from penstock.state.ages import NEVER, Ages, bury
from penstock.state.arrow import from_arrow, one_chunk, to_arrow, validity
from penstock.state.hashing import grown, most, slots_for
from penstock.state.index import ColumnIndex
from penstock.state.lanes import dtype
from penstock.state.mirror import ArrowColumn, Changes, Mirror
from penstock.state.strings import Strings, longer

ROWS, FREE, DIRTY, TOMBSTONES, USED = range(5)
_FIRST_CAPACITY = 1024
_AT = "at"


class TableState:
    def __init__(self, definition: TableDef, capacity: int = _FIRST_CAPACITY) -> None:
        self.definition = definition
        self.capacity = capacity
        self.stored = np.zeros((len(definition.keys), capacity), np.int64)
        self.columns: list[Any] = [np.zeros(capacity, dtype(c.type)) for c in definition.lanes]
        self.written = np.zeros(capacity, np.int64)
        self.flags = np.zeros(capacity, np.uint8)
        self.dirty = np.zeros(capacity + 1, np.int64)  # a kernel writes one past the last before it knows
        self.tombstones = np.zeros(capacity, np.int64)
        self.free = np.zeros(capacity, np.int64)
        self.meta = np.zeros(8, np.int64)
        self.slots = _empty_slots(capacity)
        self.at = np.full(capacity if definition.ttl is not None else 0, NEVER, np.int64)
        self._ages: Ages | None = None  # None: they have to be looked at anew
        self.indexes = {c.name: ColumnIndex() for c in definition.values if c.index}
        self.made = 0  # how often other arrays were put in the place of these
        self._changed: Changes | None = None  # by the running batch
        self.mirror: Mirror | None = None  # of a large one that is looked at, or saved

    def __len__(self) -> int:
        """Records, between batches."""
        return int(self.meta[ROWS] - self.meta[FREE])

    def reserve(self, extra: int) -> None:
        """Make room for this many more records, in all arrays or in none."""
        need = int(self.meta[USED]) + extra
        if need > self.capacity:
            capacity, rows = grown(need, self.capacity), int(self.meta[ROWS])
            stored = np.zeros((len(self.stored), capacity), np.int64)
            stored[:, :rows] = self.stored[:, :rows]
            columns = [longer(c, capacity, rows) for c in self.columns]
            others = {name: longer(getattr(self, name), capacity, rows) for name in ("written", "flags")}
            for name, place in (("tombstones", TOMBSTONES), ("free", FREE)):
                others[name] = longer(getattr(self, name), capacity, int(self.meta[place]))
            others["dirty"] = longer(self.dirty, capacity + 1, int(self.meta[DIRTY]))
            if self.definition.ttl is not None:
                others["at"] = longer(self.at, capacity, rows)
            self.stored, self.columns = stored, columns
            for name, array in others.items():
                setattr(self, name, array)
            self.capacity = capacity
            self.made += 1
        if self.capacity > most(self.slots.size // 2):
            self.reindex()

    def part(self, name: str) -> Any:
        """An array as kernels name it: key0, column0, bits0 (a float column's bits), slots, index_slots owner, …"""
        if name.startswith("key"):
            return self.stored[int(name[3:])]
        if name.startswith("column"):
            return self.columns[int(name[6:])]
        if name.startswith("bits"):
            return self.columns[int(name[4:])].view(np.int64)
        if name.startswith("index_"):
            part, column = name.removeprefix("index_").split(" ")
            return getattr(self.indexes[column], part)
        return getattr(self, name)

    def reindex(self) -> None:
        slots = _empty_slots(self.capacity)
        hashing.rebuild(slots, self.stored, self.flags, int(self.meta[ROWS]))
        self.slots = slots
        self.made += 1

    def build_index(self, name: str) -> None:
        """Make a column's index anew, in the middle of a batch too."""
        place = next(k for k, c in enumerate(self.definition.values) if c.name == name)
        self.indexes[name].build(self.columns[place], self.flags, int(self.meta[ROWS]))
        self.made += 1

    def forget_indexes(self) -> None:
        for index in self.indexes.values():
            index.forget()

    def sweep(self) -> None:
        if self.meta[TOMBSTONES]:
            hashing.sweep(self.slots, self.stored, self.flags, self.tombstones, self.free, self.meta)

    def expire(self, clock: int, batch: int) -> None:
        """The records that this batch leaves behind their time die in it."""
        lifetime = self.definition.lifetime
        if lifetime is None:
            return
        if self._ages is None:
            rows = self.live_rows()
            self._ages = Ages(self.at[rows], rows)
        else:
            rows, _ = self.dirty_rows()
            self._ages.add(self.at[rows], rows)
        at, rows = self._ages.take(clock - lifetime)
        died = bury(at, rows, self.at, self.flags, self.written, self.dirty, self.tombstones, self.meta, batch)
        if died.size:
            hashing.mend_index(self.slots, self.stored, self.flags, died)

    def end_batch(self) -> None:
        if self.mirror is not None:
            self._follow(self.changed())
        self._changed = None
        self.sweep()
        self.meta[DIRTY] = 0
        for index in self.indexes.values():
            index.end_batch()

    # -- in and out as Arrow ----------------------------------------------------------------

    def rows_of(self, keys: Any) -> Any:
        return hashing.rows_of(self.slots, self.stored, keys)

    def keys_of(self, table: pa.Table | pa.RecordBatch, strings: Strings) -> Any:
        columns = [from_arrow(table.column(c.name), c.type, strings) for c in self.definition.keys]
        return np.ascontiguousarray(np.stack(columns)) if len(columns) > 1 else np.atleast_2d(columns[0])

    def put(self, table: pa.Table, strings: Strings, batch: int, at: Any = NEVER) -> None:
        """Insert or overwrite whole records. at: the clock when they were written, of all or of each."""
        if table.num_rows == 0:
            return
        if self.meta[USED] == 0:  # as many records as rows, and as many strings as there are in a key
            self.reserve(table.num_rows)
            texts = [table.column(c.name) for c in self.definition.keys if c.type.kind == "str"]
            if texts:
                strings.reserve(table.num_rows, sum(column.nbytes for column in texts))
        # A chunk at a time: a snapshot need not be in memory once more.
        first = 0
        for some in table.to_batches():
            ages = at if np.ndim(at) == 0 else at[first : first + some.num_rows]
            self.put_lanes(*self.lanes_of(some, strings), batch, ages)
            first += some.num_rows

    def lanes_of(self, table: pa.Table | pa.RecordBatch, strings: Strings) -> tuple[Any, list[Any]]:
        """Records as `put_lanes` takes them: their keys, and what `columns` holds of each. Nothing of the table changes
        but the pool of strings."""
        keys, lanes, flags = self.keys_of(table, strings), [], []
        for column in self.definition.values:
            lane = from_arrow(table.column(column.name), column.type, strings)
            if column.nullable:
                there = validity(one_chunk(table.column(column.name)))
                none = ~there if there.size else np.zeros(table.num_rows, np.bool_)
                # What is None lies as zero (plan/nullable.py).
                zero = strings.number("") if column.type.kind == "str" else 0
                lane = np.where(none, zero, lane) if none.any() else lane
                flags.append(none)
            lanes.append(lane)
        return keys, [*lanes, *flags]

    def put_lanes(self, keys: Any, lanes: list[Any], batch: int, at: Any = NEVER) -> None:
        self.forget_indexes()
        if int(self.meta[USED]) + keys.shape[1] > self.capacity:
            self.reserve(int(np.count_nonzero(self.rows_of(keys) < 0)))
        rows = hashing.add_rows(self.slots, self.stored, self.flags, self.free, self.meta, keys)
        # New rows behind the last one are written to as a whole.
        where = slice(int(rows[0]), int(rows[-1]) + 1) if _in_a_row(rows) else rows
        for array, lane in zip(self.columns, lanes, strict=True):
            array[where] = lane
        self.written[where] = batch
        if self.definition.ttl is not None:
            self.at[where], self._ages = at, None
        if self.mirror is not None:
            self._follow(Changes(rows, [lane[rows] for lane in self._lanes()], rows[:0]))

    def drop(self, table: pa.Table, strings: Strings) -> None:
        """Delete records by key. One that is not there was made and deleted in the same batch."""
        if table.num_rows:
            self.drop_rows(self.rows_of(self.keys_of(table, strings)))

    def drop_rows(self, rows: Any) -> None:
        """-1: there is none."""
        rows = rows[rows >= 0]
        if rows.size == 0:
            return
        self.mirror = None
        self.flags[rows] = hashing.LISTED
        self.tombstones[: rows.size] = rows
        self.meta[TOMBSTONES] = rows.size
        self.sweep()

    def live_rows(self, start: int = 0, stop: int | None = None) -> Any:
        """All of them, or those from one row up to another."""
        end = int(self.meta[ROWS]) if stop is None else min(stop, int(self.meta[ROWS]))
        found = np.flatnonzero(self.flags[start:end] & hashing.ALIVE)
        return found + start if start else found

    def dirty_rows(self) -> tuple[Any, Any]:
        """Rows that this batch wrote and that live, and those that it deleted."""
        rows = self.dirty[: self.meta[DIRTY]].copy()
        alive = (self.flags[rows] & hashing.ALIVE).astype(bool)
        return rows[alive], rows[~alive]

    def changed(self) -> Changes:
        """What the running batch has changed, once it has run: asked for by the log and by the copy."""
        if self._changed is None:
            written, deleted = self.dirty_rows()
            if written.size == self.meta[ROWS]:
                written = np.arange(written.size)
            self._changed = Changes(written, [self._taken(lane, written) for lane in self._lanes()], deleted)
        return self._changed

    def arrow_of_written(self, strings: Strings) -> pa.Table:
        """Of `changed`."""
        lanes = self.changed().values[: len(self.stored) + len(self.columns)]
        return pa.Table.from_batches([records(self.definition.columns, lanes, strings)])

    def arrow(self, rows: Any, strings: Strings, *, keys_only: bool = False) -> pa.Table:
        """These rows as an Arrow table; a copy, so that later batches cannot reach it."""
        lanes = self.stored if keys_only else [*self.stored, *self.columns]
        wanted = self.definition.keys if keys_only else self.definition.columns
        return pa.Table.from_batches([records(wanted, [self._taken(lane, rows) for lane in lanes], strings)])

    def ages(self, rows: Any) -> pa.Table:
        """When the records were written that `arrow` gives of these rows, in the same order."""
        return pa.table({_AT: pa.array(self._taken(self.at, rows))})

    def forget_ages(self) -> None:
        """Nothing says when the records that are there were written."""
        self.at[:], self._ages = NEVER, None

    # -- its copy ---------------------------------------------------------------------------

    def is_large(self) -> bool:
        """Whether making it Arrow would hold up who writes."""
        return int(self.meta[ROWS]) > 1 << mirror.BITS

    def mirrored(self, strings: Strings, *, whole: bool = False) -> bool:
        """Whether all of it is copied; if not, some more of it is, by now."""
        if self.mirror is None:
            kinds = [c.type.kind for c in (*self.definition.keys, *self.definition.lanes)]
            string_lanes = [number for number, kind in enumerate(kinds) if kind == "str"]
            self.mirror = Mirror(strings, string_lanes, _arrow_columns(self.definition))
        return self.mirror.whole or self.mirror.copy(self._lanes(), int(self.meta[ROWS]), whole=whole)

    def _follow(self, changes: Changes) -> None:
        assert self.mirror is not None
        self.mirror.follow(self._lanes(), int(self.meta[ROWS]), changes)
        if self.mirror.left_behind:
            self.mirror = None

    def _lanes(self) -> list[Any]:
        at = [] if self.definition.ttl is None else [self.at]
        return [*self.stored, *self.columns, *at, self.flags]

    def _taken(self, lane: Any, rows: Any) -> Any:
        """A copy of a lane's values; of all rows in their own order, whatever that of `rows` is."""
        return lane[: rows.size].copy() if rows.size == self.meta[ROWS] else lane[rows]


def _in_a_row(rows: Any) -> bool:
    return rows.size > 0 and rows[-1] - rows[0] == rows.size - 1 and bool((np.diff(rows) == 1).all())


def records(columns: Sequence[Column], lanes: Sequence[Any], strings: Strings) -> pa.RecordBatch:
    """Lanes as they lie in a table, the flags of nullable columns last, as Arrow; those of numbers are not copied."""
    flags = iter(lanes[len(columns) :])
    arrays = []
    for column, lane in zip(columns, lanes, strict=False):
        given = ~next(flags) if column.nullable else None
        arrays.append(to_arrow(lane, column.type, strings, given))
    return pa.record_batch(arrays, schema=pa.schema([c.arrow for c in columns]))


def _arrow_columns(definition: TableDef) -> list[ArrowColumn]:
    """What is made of a copy's lanes: its columns; where records have a ttl, when they were written is the last one."""
    out, flag = [], len(definition.columns)
    for place, column in enumerate(definition.columns):
        lanes = (place, flag) if column.nullable else (place,)
        flag += column.nullable
        out.append(ArrowColumn(column.arrow, lanes, partial(_column, column.type)))
    if definition.ttl is not None:
        out.append(ArrowColumn(pa.field(_AT, pa.int64()), (flag,), partial(_column, INT)))
    return out


def _column(type_: Type, lanes: list[Any], strings: Strings) -> pa.Array:
    return to_arrow(lanes[0], type_, strings, ~lanes[1] if len(lanes) > 1 else None)


def without_ages(definition: TableDef, found: pa.Table) -> tuple[pa.Table, pa.Table | None]:
    """What is made of a copy: the records, and when they were written."""
    if definition.ttl is None:
        return found, None
    return found.select(range(found.num_columns - 1)), found.select([found.num_columns - 1])


def _empty_slots(capacity: int) -> Any:
    size = slots_for(capacity)
    slots = np.zeros(2 * size, np.int64)
    slots[1::2] = -1
    return slots
