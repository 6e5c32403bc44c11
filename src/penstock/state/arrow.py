"""Arrow columns to lanes and back. Int and float columns without nulls cross without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.declare.types import Type
from penstock.state.jit import kernel
from penstock.state.lanes import dtype
from penstock.state.strings import Strings

# Wide enough for any int64 beside 18 digits after the point.
_WIDE_DIGITS = 38
_NONE_NULL = np.zeros(0, np.bool_)
_NONE_NULL.setflags(write=False)


def one_chunk(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    combined = column.combine_chunks()
    return combined.chunk(0) if isinstance(combined, pa.ChunkedArray) else combined


def from_arrow(column: pa.ChunkedArray | pa.Array, type_: Type, strings: Strings) -> Any:
    """A column as a lane; what lies under a null means nothing."""
    array = one_chunk(column)
    if type_.kind == "str":
        return strings.intern(array)
    if len(array) == 0:
        return np.zeros(0, dtype(type_))
    match type_.traits.width:
        case 1:
            return _bits(array, 1)
        case 32:
            return np.frombuffer(array.buffers()[1], np.int32, len(array), array.offset * 4).astype(np.int64)
        case 128:
            # decimal128 is two words, low one first; 18 digits fit in the low one, sign and all.
            return np.frombuffer(array.buffers()[1], np.int64, 2 * len(array), array.offset * 16)[::2].copy()
    return np.frombuffer(array.buffers()[1], dtype(type_), len(array), array.offset * 8)


def _bits(array: pa.Array, buffer: int) -> Any:
    """A buffer of bits as bools."""
    whole = np.frombuffer(array.buffers()[buffer], np.uint8)
    return np.unpackbits(whole, count=array.offset + len(array), bitorder="little")[array.offset :].astype(np.bool_)


def times(column: pa.ChunkedArray | pa.Array) -> Any:
    """A column of places in time (int64 or timestamps in microseconds) as int64, without a copy."""
    array = one_chunk(column)
    if len(array) == 0:
        return np.zeros(0, np.int64)
    return np.frombuffer(array.buffers()[1], np.int64, len(array), array.offset * 8)


def validity(array: pa.Array) -> Any:
    """Which values are not null, as bools; empty where none is null."""
    return _bits(array, 0) if array.null_count else _NONE_NULL


@kernel
def _widen(values: Any) -> Any:
    out = np.empty(2 * values.size, np.int64)
    for i in range(values.size):
        out[2 * i] = values[i]
        out[2 * i + 1] = values[i] >> 63
    return out


def to_arrow(lane: Any, type_: Type, strings: Strings, valid: Any = None) -> pa.Array:
    """A lane as an Arrow array, null where valid is given and false."""
    if type_.kind == "str":
        return strings.arrow(lane, valid)
    bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    match type_.traits.width:
        case 1:
            data = np.packbits(lane, bitorder="little")
        case 32:
            data = lane.astype(np.int32)
        case 128:
            data = _widen(lane)
        case _:
            data = np.ascontiguousarray(lane)
    return pa.Array.from_buffers(type_.arrow(), lane.size, [bits, pa.py_buffer(data)])


def one_below_another(tables: list[pa.Table]) -> pa.Table:
    """Tables of one schema as one, in one chunk; `pa.concat_tables` forgets rows without columns."""
    batches = [batch for table in tables for batch in table.to_batches()]
    return pa.Table.from_batches(batches, schema=tables[0].schema).combine_chunks()


def widened(column: pa.ChunkedArray | pa.Array, type_: pa.DataType) -> pa.ChunkedArray | pa.Array:
    """The column as one of another type; ArrowInvalid where a value does not fit. Arrow itself refuses any int as a
    decimal of fewer than 19 digits before the point, whatever its values are."""
    if pa.types.is_decimal(type_) and pa.types.is_integer(column.type):
        column = column.cast(pa.decimal128(_WIDE_DIGITS, type_.scale))
    return column.cast(type_)
