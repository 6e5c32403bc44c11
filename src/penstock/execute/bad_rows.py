"""Which rows of an Arrow table cannot be events, and why: looked for only where a batch was refused as a whole.

    rows        0  1  2  3  4  5  6  7         refused: look at both halves
                [        ]  [        ]         the left one passes
                            [  ]  [  ]         …
    found                         6            a row that is refused where it is alone

What judges a part is what judges a batch (intake.py, casting.py), so no type is spelled out here. A table whose schema
does not fit, or whose buffers are not what they say, has no bad rows: it is refused as before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as at

from penstock.declare.model import EventDef, Field
from penstock.declare.types import Type
from penstock.errors import InputError
from penstock.execute.casting import column, one_array

# Characters of a value that a reason shows.
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class BadRows:
    """Of a table: the rows that cannot be events, by their places, and what can be read of every row."""

    reasons: dict[int, str]
    ts: pa.Array  # null where it cannot be read
    id: pa.Array | None


def find(event: EventDef, table: pa.Table) -> BadRows:
    """table: its schema fits the event."""
    reasons: dict[int, str] = {}
    read: dict[str, pa.Array] = {}
    for f in event.fields:
        if f.name not in table.column_names:
            continue  # intake fills it
        array = _plain(one_array(table.column(f.name), where=f"event '{event.name}', column '{f.name}'"))
        _refuse_broken(event, f.name, array)
        wrong = wrong_rows(array, f.type)
        for row in wrong:
            reasons.setdefault(row, refusal(f, array, row))
        if f.name in (event.order, event.id):
            read[f.name] = _readable(array, wrong, f.type)
            for row in np.flatnonzero(read[f.name].is_null().to_numpy(zero_copy_only=False)).tolist():
                reasons.setdefault(row, no_value(f))
    assert event.order is not None
    return BadRows(reasons, read[event.order], read[event.id] if event.id else None)


def wrong_rows(array: pa.Array, type_: Type) -> list[int]:
    """The rows that a column of this type is refused for. A null is none of them."""
    try:
        values = array.dictionary_encode()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # as of lists
        return _wrong(array, type_)
    wrong = pa.array(_wrong(values.dictionary, type_), pa.int32())  # one bad value may be in many rows
    rows: list[int] = np.flatnonzero(pc.is_in(values.indices, wrong).to_numpy(zero_copy_only=False)).tolist()
    return rows


def _wrong(array: pa.Array, type_: Type) -> list[int]:
    found: list[int] = []

    def look(start: int, stop: int) -> None:
        if start == stop or _is_taken(array.slice(start, stop - start), type_):
            return
        if stop - start == 1:
            found.append(start)
            return
        middle = (start + stop) // 2
        look(start, middle)
        look(middle, stop)

    look(0, len(array))
    return found


def without(table: pa.Table, rows: Any) -> pa.Table:
    """The other rows."""
    keep = np.ones(table.num_rows, np.bool_)
    keep[rows] = False
    mask = pa.array(keep)
    # A dictionary would still hold what only these rows say.
    return pa.table(
        {name: _plain(one_array(table.column(name), where=name)).filter(mask) for name in table.column_names}
    )


def refusal(field: Field, array: pa.Array, row: int) -> str:
    """Why a row is none, of which this is a value that is not of its type."""
    return f"{field.name}: {shown(array, row, field.type)} is no {(field.type.item or field.type).enum or field.type}"


def no_value(field: Field) -> str:
    """Why a row is none that has no ts, or no id."""
    return f"{field.name}: null"


def shown(array: pa.Array, row: int, type_: Type) -> str:
    """A value that is not of its type, for people."""
    one = array.slice(row, 1)
    if type_.item is not None and _is_list(one.type):
        items = one.flatten()
        wrong = wrong_rows(items, type_.item)
        return f"a list with {shown(items, wrong[0], type_.item)}" if wrong else "a list"
    text = _text(one)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def _text(one: pa.Array) -> str:
    try:
        if at.is_temporal(one.type):
            return str(one.cast(pa.string())[0])  # Arrow writes times that Python does not have
        value = one[0].as_py()
    except UnicodeDecodeError:
        value = one.cast(pa.large_binary())[0].as_py()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        value = one.cast(pa.int64())[0].as_py()
    return repr(value) if isinstance(value, str | bytes) else str(value)


def _is_taken(array: pa.Array, type_: Type) -> bool:
    try:
        column(pa.chunked_array([array]), type_, where="")
    except InputError:
        return False
    return True


def _readable(array: pa.Array, wrong: list[int], type_: Type) -> pa.Array:
    """As of its type, null where it is not."""
    keep = np.ones(len(array), np.bool_)
    keep[wrong] = False
    sound = column(pa.chunked_array([array.filter(pa.array(keep))]), type_, where="")
    return sound.take(pa.array(np.cumsum(keep) - 1, mask=~keep)) if wrong else sound


def _plain(array: pa.Array) -> pa.Array:
    """Without a dictionary, in which one bad word would be every row's."""
    return array.dictionary.take(array.indices) if at.is_dictionary(array.type) else array


def _refuse_broken(event: EventDef, name: str, array: pa.Array) -> None:
    """Where the array itself is broken no row of it can be told from another."""
    try:
        array.validate()
        broken = (_is_list(array.type) or at.is_string(array.type) or at.is_large_string(array.type)) and bool(
            (pc.min(_lengths(array)).as_py() or 0) < 0
        )
    except pa.ArrowInvalid:
        broken = True
    if broken:
        raise InputError(
            f"event '{event.name}', column '{name}': its Arrow array is broken: its buffers are not what it says; "
            "write it anew"
        )


def _lengths(array: pa.Array) -> pa.Array:
    return pc.list_value_length(array) if _is_list(array.type) else pc.binary_length(array)


def _is_list(type_: pa.DataType) -> bool:
    return at.is_list(type_) or at.is_large_list(type_) or at.is_fixed_size_list(type_)
