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
from penstock.state.ages import NEVER
from penstock.state.arrow import from_arrow, one_chunk, to_arrow
from penstock.state.hashing import ONE, TWO, first
from penstock.state.jit import brief, kernel
from penstock.state.strings import hash_of, place_of
from penstock.state.table import ROWS
from penstock.state.tables import Tables

# What 18 digits need, whatever the caller's own context rounds to.
_EXACT = decimal.Context(prec=40)
_FIRST_DAY = EPOCH.toordinal()


class Records:
    def __init__(self, tables: Tables, definition: TableDef) -> None:
        self.definition = definition
        self._tables, self._table = tables, tables[definition.name]
        only = definition.keys[0].type.kind if len(definition.keys) == 1 else ""
        self._key_is_int, self._key_is_str = only == "int", only == "str"
        self._no_rows = definition.arrow().empty_table()
        self._no_keys = self._no_rows.select([c.name for c in definition.keys])
        self._lanes: tuple[Any, Any] = None, None  # those that `_columns` is of
        self._columns: list[tuple[str, Any, Any, Callable[[Any], Any] | None]] = []

    def __len__(self) -> int:
        return len(self._table)

    # -- rows -------------------------------------------------------------------------------

    def row_of(self, key: Any) -> int:
        """Of a key as a user gives it; -1 where there is no such record."""
        kind = type(key)
        if kind is str and self._key_is_str:
            strings = self._tables.strings
            try:
                text = np.frombuffer(key.encode(), np.uint8)
            except UnicodeEncodeError:
                pass
            else:
                return _row_of_text(self._table.slots, strings.slots, strings.starts, strings.data, text)
        elif kind is int and self._key_is_int and -(1 << 63) <= key < 1 << 63:
            return _row_of_word(self._table.slots, key)
        return int(self.rows_of(keys.keys(self.definition, [key]))[0])

    def rows_of(self, several: pa.Table) -> Any:
        """Of each key, as Arrow; -1 where there is no such record."""
        words = [self._words(several.column(c.name), c.type) for c in self.definition.keys]
        lanes = np.ascontiguousarray(np.stack(words)) if len(words) > 1 else np.atleast_2d(words[0])
        rows = self._table.rows_of(lanes)
        for word, c in zip(words, self.definition.keys, strict=True):
            if c.type.kind == "str" and len(words) > 1:
                rows[word < 0] = -1
        return rows

    def _words(self, column: pa.ChunkedArray, type_: Type) -> Any:
        if type_.kind != "str":
            return from_arrow(column, type_, self._tables.strings)
        array = one_chunk(column)
        if pa.types.is_dictionary(array.type):
            array = array.cast(pa.string())
        strings, out = self._tables.strings, np.empty(len(array), np.int64)
        if len(array):
            _, offsets, data = array.buffers()
            numbers = np.frombuffer(offsets, np.int32, len(array) + 1, array.offset * 4)
            source = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
            _numbers_of(strings.slots, strings.starts, strings.data, numbers, source, out)
        return out

    # -- records ----------------------------------------------------------------------------

    def record(self, row: int) -> dict[str, Any]:
        table = self._table
        if self._lanes[0] is not table.stored or self._lanes[1] is not table.columns:
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
        if self._lanes[0] is not self._table.stored or self._lanes[1] is not self._table.columns:
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
            arrays.append(to_arrow(lane[rows], column.type, self._tables.strings, given))
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
        self._tables.apply(self.definition.name, rows, self._no_keys, 0, NEVER)

    def drop(self, keys: pa.Table) -> None:
        self._tables.apply(self.definition.name, self._no_rows, keys, 0, NEVER)

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
        self._lanes = self._table.stored, self._table.columns

    def _plain(self, type_: Type) -> Callable[[Any], Any] | None:
        """From what lies in a lane to a Python value; None where that is the value."""
        if type_.kind == "str":
            return self._text
        return _PLAIN[type_.kind](type_) if type_.kind in _PLAIN else None

    def _text(self, number: int) -> str:
        strings = self._tables.strings
        start, stop = strings.starts[number : number + 2].tolist()
        return strings.data[start:stop].tobytes().decode()


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
    for i in range(out.size):
        out[i] = _number_of(slots, starts, data, source, np.int64(offsets[i]), np.int64(offsets[i + 1]))
