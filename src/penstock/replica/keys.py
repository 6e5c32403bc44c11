"""Keys as users give them, as columns of Arrow: a scalar, a tuple for a composite key, or an array of them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from penstock.declare.model import TableDef
from penstock.errors import InputError
from penstock.execute.casting import column, values

# Kinds of keys that need no look at each: their type in Python, and in Arrow.
_QUICK = {"int": (int, pa.int64()), "str": (str, pa.string())}


def keys(table: TableDef, given: Sequence[Any]) -> pa.Table:
    """Several keys, as a table of the key columns."""
    if len(table.keys) == 1 and table.keys[0].type.kind in _QUICK:
        python, arrow = _QUICK[table.keys[0].type.kind]
        if set(map(type, given)) == {python}:
            with suppress(OverflowError, UnicodeEncodeError):  # which is said below
                return pa.table([pa.array(given, arrow)], names=[table.keys[0].name])
    several = [parts_of(table, key) for key in given]
    arrays = []
    for place, c in enumerate(table.keys):
        data = [parts[place] for parts in several]
        if None in data:
            raise InputError(f"table '{table.name}', key '{c.name}': is null, which no key is; give it a value")
        arrays.append(values(data, c.type, where=lambda i, c=c: f"table '{table.name}', key '{c.name}' of key {i}"))  # type: ignore[misc]
    return pa.table(arrays, names=[c.name for c in table.keys])


def parts_of(table: TableDef, key: Any) -> tuple[Any, ...]:
    parts = key if isinstance(key, tuple) else (key,)
    if len(parts) != len(table.keys):
        names = ", ".join(c.name for c in table.keys)
        raise InputError(f"table '{table.name}' has the key ({names}); got {len(parts)} part(s)")
    return parts


def key_columns(table: TableDef, given: Any) -> pa.Table:
    """An Arrow array of keys, or a table that has the key columns."""
    if isinstance(given, pa.Array | pa.ChunkedArray) and len(table.keys) == 1:
        given = pa.table({table.keys[0].name: given})
    names = [c.name for c in table.keys]
    if not isinstance(given, pa.Table) or not set(names) <= set(given.column_names):
        raise InputError(
            f"table '{table.name}' has the key ({', '.join(names)}); give an Arrow table with these columns"
            + (", or an Arrow array" if len(names) == 1 else "")
        )
    arrays = []
    for c in table.keys:
        where = f"table '{table.name}', key '{c.name}'"
        found = column(_chunked(given.column(c.name)), c.type, where=where)
        if found.null_count:
            raise InputError(f"{where}: is null, which no key is; give it a value")
        arrays.append(found)
    return pa.table(arrays, names=names)


def _chunked(data: Any) -> pa.ChunkedArray:
    return data if isinstance(data, pa.ChunkedArray) else pa.chunked_array([data])
