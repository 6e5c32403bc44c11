"""A second copy of a large table, some way behind it: what views and snapshots are made of while batches go on.

    queue    what has happened to the table, in order; who writes adds to it, and goes on
                 Piece        some of its rows as they are now: of these the copy is made, a few with each batch
                 Changes      rows that a batch wrote, and those that it deleted
                 Renumbering  strings have other numbers from here on
                 Cut          somebody wants the table as it is here
    chunks   the copy, up to the last cut that was taken from it: so many rows each, as the table's own lanes

The writer never waits for a copy: it holds the gate to add to the queue, and whoever asked for a cut goes through the
queue up to it, under the copy's own lock, without the gate. So a cut costs what has changed since the last one.

A chunk whose rows all live is given out as it is: Arrow's memory is the chunk's. It is copied before it is changed, if
anybody holds what was given out by then; if nobody does, it is changed in place.

A copy that is far behind is worth no more than a new one: it is forgotten, and the next cut begins anew. So nothing is
kept, and nothing is paid for, where nobody looks.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numba import types
from numba.extending import intrinsic

from penstock.state.hashing import ALIVE
from penstock.state.jit import kernel
from penstock.state.strings import Strings

# Rows of a chunk, as a power of two: few enough that copying some of them holds nobody up, enough that going through
# all chunks of a large table takes no time.
BITS = 16
# Chunks that are copied at a time, beside one in so many: a table of any size is copied within some 60 batches.
_AT_A_TIME, _SHARE = 4, 64
# A copy is forgotten once so large a part of the table has changed since it was last wanted.
_BEHIND = 0.5


@dataclass(frozen=True, slots=True)
class ArrowColumn:
    field: pa.Field
    lanes: tuple[int, ...]  # that it is made of
    make: Callable[[list[Any], Strings], pa.Array]


@dataclass(slots=True)
class Piece:
    number: int  # of the chunk
    lanes: list[Any]


@dataclass(frozen=True, slots=True)
class Changes:
    written: Any
    values: list[Any]  # of these rows, by lane; nobody changes them any more
    deleted: Any


@dataclass(slots=True)
class Renumbering:
    numbers: Any  # by the number before
    strings: Strings


@dataclass(slots=True, eq=False)
class Cut:
    """The table as it was when this was asked for."""

    mirror: Mirror
    keep: bool  # whether what is made of it is kept for the next one
    wanted: bool = True
    made: pa.Table | None = None

    def table(self) -> pa.Table:
        """Its records in the order of their rows, one chunk of Arrow for each of the copy; any thread may ask."""
        return self.mirror.made(self)


class Chunk:
    """Lanes of some rows; the last one says which of them live."""

    def __init__(self, lanes: list[Any]) -> None:
        self.lanes = lanes
        self.places = [lane.ctypes.data for lane in lanes]
        self.arrow: dict[int, pa.Array] = {}  # columns that were made of it, as it is now
        self._lent: list[tuple[int, Any]] = []  # lanes that were given out: weak references to what Arrow holds of them

    def own(self, changing: set[int], columns: list[ArrowColumn]) -> None:
        """From here on these lanes may be changed: those are copied that anybody holds."""
        if len(self.lanes) - 1 in changing:
            self.arrow = {}
        for number in [number for number in self.arrow if not changing.isdisjoint(columns[number].lanes)]:
            del self.arrow[number]
        held = {number for number, lent in self._lent if lent() is not None}
        for number in changing & held:
            lane = self.lanes[number].copy()
            self.lanes[number], self.places[number] = lane, lane.ctypes.data
        self._lent = [(number, lent) for number, lent in self._lent if number in held - changing]

    def records(self, columns: list[ArrowColumn], strings: Strings, *, keep: bool) -> list[pa.Array]:
        """Those that live. Numbers are lent, if they are the first rows that live, and all else is copied."""
        made = dict(self.arrow)
        if len(made) < len(columns):
            *lanes, alive = self.lanes
            rows = np.flatnonzero(alive)
            first = rows.size == 0 or rows[-1] == rows.size - 1
            for number, column in enumerate(columns):
                if number in made:
                    continue
                taken = [lanes[lane][: rows.size] if first else lanes[lane][rows] for lane in column.lanes]
                if first:
                    self._lent += [(lane, weakref.ref(one)) for lane, one in zip(column.lanes, taken, strict=True)]
                made[number] = column.make(taken, strings)
            del taken
            self._lent = [(number, lent) for number, lent in self._lent if lent() is not None]
        if keep:
            self.arrow = made
        return [made[number] for number in range(len(columns))]


@dataclass(frozen=True, slots=True)
class Copy:
    """One object, so that it is replaced in one step."""

    chunks: list[Chunk]
    strings: Strings


class Mirror:
    def __init__(self, strings: Strings, string_lanes: list[int], columns: list[ArrowColumn]) -> None:
        """string_lanes: which of the table's lanes hold numbers of strings."""
        self._string_lanes, self._columns = string_lanes, columns
        self._bits = BITS
        self._queue: deque[Piece | Changes | Renumbering | Cut] = deque()
        self._queued = 0  # chunks that are copied, though they may be in the queue
        self._changed = 0  # rows, since more of the table was copied
        self._behind = 0  # rows that have changed since the last cut
        self.whole = False
        self.left_behind = False  # nobody has wanted a cut for long
        self._lock = threading.Lock()
        self._copy = Copy([], strings)

    # -- by who holds the gate --------------------------------------------------------------

    def copy(self, lanes: list[Any], rows: int, *, whole: bool = False) -> bool:
        """Copy some more of the table, or the whole of it; whether all of it is copied now. lanes: the last are flags;
        rows: how many there are."""
        size = 1 << self._bits
        chunks = -(-rows // size)
        # Twice what has changed since the last time, so that batches which change much cannot keep it from an end.
        some = _AT_A_TIME + chunks // _SHARE + (2 * self._changed >> self._bits)
        end = chunks if whole else min(chunks, self._queued + some)
        self._changed = 0
        for number in range(self._queued, end):
            first, stop = number * size, min(rows, (number + 1) * size)
            copied = [_piece(lane, first, stop, size) for lane in lanes]
            copied[-1] &= ALIVE
            self._queue.append(Piece(number, copied))
            self._queued = number + 1
        self.whole = self._queued >= chunks
        return self.whole

    def follow(self, lanes: list[Any], rows: int, changes: Changes) -> None:
        """A batch has changed this, in lanes that are as they are now."""
        if self.whole:  # with rows that are new
            self.copy(lanes, rows, whole=True)
        changed = changes.written.size + changes.deleted.size
        if changed:
            self._queue.append(changes)
            self._behind += changed
            self._changed += changed
        self.left_behind = self._behind > max(1 << self._bits, rows * (_BEHIND if self.whole else 1))

    def renumber(self, numbers: Any, strings: Strings) -> None:
        self._queue.append(Renumbering(numbers, strings))

    def cut(self, *, keep: bool) -> Cut:
        """Of a copy that is whole."""
        cut = Cut(self, keep)
        self._queue.append(cut)
        self._behind = 0
        return cut

    # -- by who wants a cut, without the gate -----------------------------------------------

    def made(self, cut: Cut) -> pa.Table:
        with self._lock:
            while cut.made is None:
                # Whoever is stopped in here leaves it in the queue: taken twice it does the same.
                self._take(self._queue[0])
                self._queue.popleft()
            return cut.made

    def _take(self, item: Piece | Changes | Renumbering | Cut) -> None:
        match item:
            case Piece():
                if item.number == len(self._copy.chunks):
                    self._copy.chunks.append(Chunk(item.lanes))
            case Changes():
                self._change(item)
            case Renumbering():
                self._renumber(item)
            case Cut():
                item.made = self._table(keep=item.keep) if item.wanted else pa.table({})

    def _change(self, changes: Changes) -> None:
        chunks, bits = self._copy.chunks, self._bits
        end = len(chunks) << bits  # What lies behind it comes as a piece, with these changes in it.
        written, values, deleted = changes.written, changes.values, changes.deleted
        if written.size and written.max() >= end:
            there = written < end
            written, values = written[there], [lane[there] for lane in values]
        deleted = deleted[deleted < end]
        lanes = [*values[:-1], np.full(written.size, ALIVE, np.uint8)]
        places = np.array([chunk.places for chunk in chunks], np.int64).reshape(len(chunks), len(lanes)).T.copy()
        changing = np.zeros((len(lanes), len(chunks)), np.bool_)
        for lane, where, differs in zip(lanes, places, changing, strict=True):
            if lane.itemsize == 8:
                _differ_in_words(where, bits, written, lane.view(np.int64), differs)
            else:
                _differ_in_bytes(where, bits, written, lane.view(np.uint8), differs)
        dead = np.zeros(deleted.size, np.uint8)
        _differ_in_bytes(places[-1], bits, deleted, dead, changing[-1])
        for number in np.flatnonzero(changing.any(axis=0)).tolist():
            chunks[number].own(set(np.flatnonzero(changing[:, number]).tolist()), self._columns)
            places[:, number] = chunks[number].places
        for lane, where, differs in zip(lanes, places, changing, strict=True):
            if not differs.any():
                continue
            if lane.itemsize == 8:
                _put_words(where, bits, written, lane.view(np.int64), differs)
            else:
                _put_bytes(where, bits, written, lane.view(np.uint8), differs)
        _put_bytes(places[-1], bits, deleted, dead, changing[-1])

    def _renumber(self, item: Renumbering) -> None:
        if self._copy.strings is item.strings:
            return
        chunks = []
        for chunk in self._copy.chunks:
            lanes = list(chunk.lanes)
            for lane in self._string_lanes:
                lanes[lane] = item.numbers[lanes[lane]]
            fresh = Chunk(lanes)
            fresh.arrow, fresh._lent = chunk.arrow, chunk._lent
            chunks.append(fresh)
        self._copy = Copy(chunks, item.strings)

    def _table(self, *, keep: bool) -> pa.Table:
        schema = pa.schema([column.field for column in self._columns])
        batches = []
        for chunk in self._copy.chunks:
            arrays = chunk.records(self._columns, self._copy.strings, keep=keep)
            batches.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
        return pa.Table.from_batches(batches, schema)


def _piece(lane: Any, first: int, stop: int, size: int) -> Any:
    out = np.empty(size, lane.dtype)
    out[: stop - first] = lane[first:stop]
    out[stop - first :] = 0
    return out


def _memory(kind: Any) -> Any:
    """Intrinsics: a value from memory at an address, and to it. Whoever calls knows the address to be good."""

    @intrinsic
    def load(typingctx: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.load(builder.inttoptr(args[0], context.get_value_type(kind).as_pointer()))

        return kind(types.int64), codegen

    @intrinsic
    def store(typingctx: Any, address: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            builder.store(args[1], builder.inttoptr(args[0], context.get_value_type(kind).as_pointer()))
            return context.get_dummy_value()

        return types.void(types.int64, kind), codegen

    return load, store


_load_word, _store_word = _memory(types.int64)
_load_byte, _store_byte = _memory(types.uint8)


@kernel
def _differ_in_words(places: Any, bits: Any, rows: Any, values: Any, differs: Any) -> None:
    """Mark the chunks in which any of these rows has another value."""
    mask = (1 << bits) - 1
    for i in range(rows.size):
        chunk = rows[i] >> bits
        if _load_word(places[chunk] + 8 * (rows[i] & mask)) != values[i]:
            differs[chunk] = True


@kernel
def _differ_in_bytes(places: Any, bits: Any, rows: Any, values: Any, differs: Any) -> None:
    mask = (1 << bits) - 1
    for i in range(rows.size):
        chunk = rows[i] >> bits
        if _load_byte(places[chunk] + (rows[i] & mask)) != values[i]:
            differs[chunk] = True


@kernel
def _put_words(places: Any, bits: Any, rows: Any, values: Any, differs: Any) -> None:
    """Where a chunk is marked: no other may be written to."""
    mask = (1 << bits) - 1
    for i in range(rows.size):
        chunk = rows[i] >> bits
        if differs[chunk]:
            _store_word(places[chunk] + 8 * (rows[i] & mask), values[i])


@kernel
def _put_bytes(places: Any, bits: Any, rows: Any, values: Any, differs: Any) -> None:
    mask = (1 << bits) - 1
    for i in range(rows.size):
        chunk = rows[i] >> bits
        if differs[chunk]:
            _store_byte(places[chunk] + (rows[i] & mask), values[i])
