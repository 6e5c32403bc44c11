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

# Lanes of records as Arrow.
Records = Callable[[list[Any], Strings], pa.RecordBatch]


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
        self.arrow: pa.RecordBatch | None = None
        self._lent: list[tuple[int, Any]] = []  # lanes that were given out: weak references to what Arrow holds of them

    def own(self) -> None:
        """From here on the lanes may be changed: those are copied that anybody holds."""
        self.arrow = None
        for number in {number for number, lent in self._lent if lent() is not None}:
            lane = self.lanes[number].copy()
            self.lanes[number], self.places[number] = lane, lane.ctypes.data
        self._lent = []

    def records(self) -> list[Any]:
        """The lanes of the records that live; lent, where these are the first rows, and copied otherwise."""
        *lanes, alive = self.lanes
        rows = np.flatnonzero(alive)
        if rows.size and rows[-1] >= rows.size:
            return [lane[rows] for lane in lanes]
        out = [lane[: rows.size] for lane in lanes]
        still = [(number, lent) for number, lent in self._lent if lent() is not None]
        self._lent = [*still, *((number, weakref.ref(lane)) for number, lane in enumerate(out))]
        return out


@dataclass(frozen=True, slots=True)
class Copy:
    """One object, so that it is replaced in one step."""

    chunks: list[Chunk]
    strings: Strings


class Mirror:
    def __init__(self, strings: Strings, string_lanes: list[int], records: Records) -> None:
        """string_lanes: which of the table's lanes hold numbers of strings."""
        self._string_lanes, self._records = string_lanes, records
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
        touched = np.bincount(written >> bits, minlength=len(chunks)) + np.bincount(
            deleted >> bits, minlength=len(chunks)
        )
        places = np.zeros((len(values), len(chunks)), np.int64)
        for number in np.flatnonzero(touched).tolist():
            chunks[number].own()
            places[:, number] = chunks[number].places
        for lane, where in zip(values[:-1], places, strict=False):
            if lane.itemsize == 8:
                _put_words(where, bits, written, lane.view(np.int64))
            else:
                _put_bytes(where, bits, written, lane.view(np.uint8))
        _put_bytes(places[-1], bits, written, np.full(written.size, ALIVE, np.uint8))
        _put_bytes(places[-1], bits, deleted, np.zeros(deleted.size, np.uint8))

    def _renumber(self, item: Renumbering) -> None:
        if self._copy.strings is item.strings:
            return
        chunks = []
        for chunk in self._copy.chunks:
            lanes = list(chunk.lanes)
            for lane in self._string_lanes:
                lanes[lane] = item.numbers[lanes[lane]]
            chunks.append(Chunk(lanes))
        self._copy = Copy(chunks, item.strings)

    def _table(self, *, keep: bool) -> pa.Table:
        batches = []
        for chunk in self._copy.chunks:
            made = chunk.arrow or self._records(chunk.records(), self._copy.strings)
            if keep:
                chunk.arrow = made
            batches.append(made)
        return pa.Table.from_batches(batches)


def _piece(lane: Any, first: int, stop: int, size: int) -> Any:
    out = np.empty(size, lane.dtype)
    out[: stop - first] = lane[first:stop]
    out[stop - first :] = 0
    return out


def _store(kind: Any) -> Any:
    """An intrinsic: a value goes to memory at an address, which whoever calls knows to be good."""

    @intrinsic
    def store(typingctx: Any, address: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            to = context.get_value_type(kind).as_pointer()
            builder.store(args[1], builder.inttoptr(args[0], to))
            return context.get_dummy_value()

        return types.void(types.int64, kind), codegen

    return store


_store_word, _store_byte = _store(types.int64), _store(types.uint8)


@kernel
def _put_words(places: Any, bits: Any, rows: Any, values: Any) -> None:
    mask = (1 << bits) - 1
    for i in range(rows.size):
        _store_word(places[rows[i] >> bits] + 8 * (rows[i] & mask), values[i])


@kernel
def _put_bytes(places: Any, bits: Any, rows: Any, values: Any) -> None:
    mask = (1 << bits) - 1
    for i in range(rows.size):
        _store_byte(places[rows[i] >> bits] + (rows[i] & mask), values[i])
