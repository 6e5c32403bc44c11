"""One table's records, looked up by key: one as Python values, many as Arrow. Looking changes nothing.

    a key   ──►  a word: the number itself, or that of a string in the pool  ──►  the index  ──►  its row, or -1

Its owner holds a lock: whoever changes the tables may put other arrays in the place of these.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.declare.limits import EPOCH
from penstock.declare.model import Column, TableDef
from penstock.declare.types import Type
from penstock.replica import keys
from penstock.state.arrow import from_arrow, one_chunk, to_arrow
from penstock.state.hashing import ONE, TWO, first
from penstock.state.jit import brief, kernel
from penstock.state.prefetch import BLOCK, prefetch
from penstock.state.strings import LOWER, Strings, buffers, hash_of, place_of
from penstock.state.table import ROWS, USED
from penstock.state.tables import Tables

# What 18 digits need, whatever the caller's own context rounds to.
_EXACT = decimal.Context(prec=40)
_FIRST_DAY = EPOCH.toordinal()
# That a table has more at least than it is filled with.
_ROOM = 1 << 12


class Records:
    def __init__(self, tables: Tables, definition: TableDef) -> None:
        self.definition = definition
        self._tables, self._table = tables, tables[definition.name]
        only = definition.keys[0].type.kind if len(definition.keys) == 1 else ""
        self._key_is_int, self._key_is_str = only == "int", only == "str"
        self._taken: tuple[Any, Any] = None, None  # those that `_columns` is of
        self._columns: list[tuple[str, Any, Any, Callable[[Any], Any] | None]] = []

    def __len__(self) -> int:
        return len(self._table)

    @property
    def strings(self) -> Strings:
        return self._tables.strings

    # -- rows -------------------------------------------------------------------------------

    def row_of(self, key: Any) -> int:
        """Of a key as a user gives it; -1 where there is no such record."""
        slots = self._table.slots
        if type(key) is int and self._key_is_int and -(1 << 63) <= key < 1 << 63:
            return _row_of_word(slots, key)
        if type(key) is str and self._key_is_str and (text := _bytes(key)) is not None:
            strings = self.strings
            return _row_of_text(slots, strings.slots, strings.starts, strings.data, text)
        return int(self.rows_at(self.words_of(key))[0])

    def words_of(self, key: Any) -> Any:
        """Of one key, as `rows_at` takes them."""
        return self.words(keys.keys(self.definition, [key]))

    def rows_at(self, words: Any) -> Any:
        """Of each key; -1 where there is no such record."""
        return self._table.rows_of(words)

    def words(self, several: pa.Table) -> Any:
        """Of keys as Arrow: a row a key column. Of a string that is not in the pool: -1, which no record has."""
        words = [self._words(several.column(c.name), c.type) for c in self.definition.keys]
        return np.ascontiguousarray(np.stack(words)) if len(words) > 1 else np.atleast_2d(words[0])

    def _words(self, column: pa.ChunkedArray, type_: Type) -> Any:
        if type_.kind != "str":
            return from_arrow(column, type_, self.strings)
        array = one_chunk(column)
        if pa.types.is_dictionary(array.type):
            array = array.cast(pa.string())
        strings, out = self.strings, np.empty(len(array), np.int64)
        if len(array):
            _numbers_of(strings.slots, strings.starts, strings.data, *buffers(array), out)
        return out

    def keys(self) -> Any:
        """The words of all keys, where no record was ever dropped."""
        return self._table.stored[:, : self.used]

    def lanes(self, rows: Any) -> list[Any]:
        """What lies in these rows besides the key, as `put_lanes` takes it."""
        return [lane[rows] for lane in self._table.columns]

    # -- records ----------------------------------------------------------------------------

    def record(self, row: int) -> dict[str, Any]:
        table = self._table
        if self._taken[0] is not table.stored or self._taken[1] is not table.columns:
            self._take_lanes()
        found: dict[str, Any] = {}
        for name, lane, none, plain in self._columns:
            if none is not None and none.item(row):
                found[name] = None
            else:
                found[name] = lane.item(row) if plain is None else plain(lane.item(row))
        return found

    def records(self, rows: Any) -> list[dict[str, Any]]:
        """Of these rows, in their order."""
        if self._taken[0] is not self._table.stored or self._taken[1] is not self._table.columns:
            self._take_lanes()
        names, columns = [], []
        for name, lane, none, plain in self._columns:
            values = lane[rows].tolist()
            if plain is not None:
                values = [plain(value) for value in values]
            if none is not None:
                values = [None if gone else value for value, gone in zip(values, none[rows].tolist(), strict=True)]
            names.append(name)
            columns.append(values)
        return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]

    def arrow(self, rows: Any) -> pa.Table:
        """Of these rows, in their order."""
        arrays = []
        for column, lane, none in self._places():
            given = None if none is None else ~none[rows]
            arrays.append(to_arrow(lane[rows], column.type, self.strings, given))
        return pa.table(arrays, schema=self.definition.arrow())

    @property
    def used(self) -> int:
        """Rows up to the last that is used."""
        return int(self._table.meta[ROWS])

    def live(self, start: int, stop: int) -> pa.Table:
        """The records in these rows."""
        return self.arrow(self._table.live_rows(start, stop))

    def arrow_of_all(self) -> pa.Table:
        return self.live(0, self.used)

    # -- changes ----------------------------------------------------------------------------

    def put(self, rows: pa.Table) -> None:
        """Insert or overwrite whole records."""
        self._table.put(rows, self.strings, 0)

    def fill(self, rows: pa.Table) -> None:
        """The first ones, with room for some more: to make it later holds up who reads."""
        strings, texts = self.strings, self._texts(rows)
        self._table.reserve(_with_room(rows.num_rows))
        strings.reserve(_with_room(len(texts) * rows.num_rows), _with_room(sum(text.nbytes for text in texts)))
        self.put(rows)

    def split(self, rows: pa.Table) -> tuple[Any, list[Any]]:
        """Records as `put_lanes` takes them. This needs no lock where they fit: strings are written behind those that
        others read."""
        return self._table.lanes_of(rows, self.strings)

    def put_lanes(self, keys: Any, lanes: list[Any]) -> None:
        if keys.size:
            self._table.put_lanes(keys, lanes, 0)

    def drop_at(self, keys: Any) -> None:
        self._table.drop_rows(self.rows_at(keys))

    def fits(self, rows: pa.Table) -> bool:
        """Whether there is room for these, but for their strings, without other arrays in the place of some."""
        return int(self._table.meta[USED]) + rows.num_rows <= self._table.capacity

    def texts(self, rows: pa.Table) -> tuple[int, int]:
        """How many strings these may bring, and of how many bytes."""
        texts = self._texts(rows)
        return len(texts) * rows.num_rows + 1, sum(text.nbytes for text in texts)

    def make_room(self, rows: pa.Table) -> None:
        """For these, and for as many as there are."""
        strings, texts = self.strings, self._texts(rows)
        self._table.reserve(max(rows.num_rows, len(self)))
        size = max(sum(text.nbytes for text in texts), strings.size)
        strings.reserve(max(len(texts) * rows.num_rows, strings.count) + 1, size)

    def _texts(self, rows: pa.Table) -> list[Any]:
        names = {c.name for c in self.definition.columns if c.type.kind == "str"}
        return [rows.column(name) for name in rows.column_names if name in names]

    def _places(self) -> Iterator[tuple[Column, Any, Any]]:
        """Each column, its lane, and that of whether it is None."""
        values = self.definition.values
        flags = iter(self._table.columns[len(values) :])
        for column, lane in zip(self.definition.keys, self._table.stored, strict=True):
            yield column, lane, None
        for column, lane in zip(values, self._table.columns, strict=False):
            yield column, lane, next(flags) if column.nullable else None

    def _take_lanes(self) -> None:
        in_order = {c.name: place for place, c in enumerate(self.definition.columns)}
        found = sorted(self._places(), key=lambda one: in_order[one[0].name])
        self._columns = [(c.name, lane, none, self._plain(c.type)) for c, lane, none in found]
        self._taken = self._table.stored, self._table.columns

    def _plain(self, type_: Type) -> Callable[[Any], Any] | None:
        """From what lies in a lane to a Python value; None where that is the value."""
        if type_.kind == "str":
            return self._text
        return _PLAIN[type_.kind](type_) if type_.kind in _PLAIN else None

    def _text(self, number: int) -> str:
        strings = self.strings
        start, stop = strings.starts[number : number + 2].tolist()
        return strings.data[start:stop].tobytes().decode()


def _with_room(count: int) -> int:
    return count + count // 4 + _ROOM


def _bytes(text: str) -> Any:
    try:
        return np.frombuffer(text.encode(), np.uint8)
    except UnicodeEncodeError:
        return None  # no text: refused by whoever looks closer


def _decimal(type_: Type) -> Callable[[int], decimal.Decimal]:
    of, scaled, places = decimal.Decimal, _EXACT.scaleb, -type_.scale
    return (lambda value: scaled(of(value), places)) if places else of


_PLAIN: dict[str, Callable[[Type], Callable[[int], Any]]] = {
    "decimal": _decimal,
    "datetime": lambda _: lambda value: EPOCH + datetime.timedelta(microseconds=value),
    "date": lambda _: lambda value: datetime.date.fromordinal(_FIRST_DAY + value),
    "timedelta": lambda _: lambda value: datetime.timedelta(microseconds=value),
}


@brief
def _row_of_word(slots: Any, word: Any) -> Any:
    mask = np.uint64(slots.size - 1)
    h = first(word, slots)
    while slots[h + ONE] != -1 and slots[h] != word:
        h = (h + TWO) & mask
    row = slots[h + ONE]
    return row if row >= 0 else np.int64(-1)


@kernel
def _number_of(slots: Any, starts: Any, data: Any, source: Any, start: Any, stop: Any) -> Any:
    """A string's number in the pool, -1 where it is not there."""
    return place_of(slots, starts, data, hash_of(source, start, stop), source, start, stop - start)[1]


@brief
def _row_of_text(slots: Any, pool: Any, starts: Any, data: Any, text: Any) -> Any:
    number = _number_of(pool, starts, data, text, np.int64(0), np.int64(text.size))
    return number if number < 0 else _row_of_word(slots, number)


@kernel
def _numbers_of(slots: Any, starts: Any, data: Any, offsets: Any, source: Any, out: Any) -> None:
    """Of many strings. What the next steps of a block will need is fetched while others are at work."""
    mask = np.uint64(slots.size - 1)
    hashes = np.empty(BLOCK, np.uint64)
    for block in range(0, out.size, BLOCK):
        end = min(block + BLOCK, out.size)
        for i in range(block, end):
            hashes[i - block] = hash_of(source, np.int64(offsets[i]), np.int64(offsets[i + 1]))
            prefetch(slots, hashes[i - block] & mask)
        for i in range(block, end):
            slot = np.uint64(slots[hashes[i - block] & mask])
            if slot != 0:
                prefetch(starts, (slot & LOWER) - ONE)
        for i in range(block, end):
            slot = np.uint64(slots[hashes[i - block] & mask])
            if slot != 0:
                prefetch(data, np.uint64(starts[np.int64(slot & LOWER) - 1]))
        for i in range(block, end):
            start, n = np.int64(offsets[i]), np.int64(offsets[i + 1]) - np.int64(offsets[i])
            out[i] = place_of(slots, starts, data, hashes[i - block], source, start, n)[1]
