"""Arrow columns to lanes and back. Int and float columns without nulls cross without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.declare.types import Type
from penstock.state.jit import kernel
from penstock.state.strings import Strings

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
    n, offset = len(array), array.offset
    if type_.kind == "str":
        return strings.intern(array)
    if n == 0:
        return np.zeros(0, np.float64 if type_.kind == "float" else np.bool_ if type_.kind == "bool" else np.int64)
    data = array.buffers()[1]
    if type_.kind == "decimal":
        # decimal128 is two words, low one first; 18 digits fit in the low one, sign and all.
        return np.frombuffer(data, np.int64, 2 * n, offset * 16)[::2].copy()
    if type_.kind == "bool":
        bits = np.unpackbits(np.frombuffer(data, np.uint8), count=offset + n, bitorder="little")
        return bits[offset:].astype(np.bool_)
    if type_.kind == "date":
        return np.frombuffer(data, np.int32, n, offset * 4).astype(np.int64)
    return np.frombuffer(data, np.float64 if type_.kind == "float" else np.int64, n, offset * 8)


def times(column: pa.ChunkedArray | pa.Array) -> Any:
    """A column of places in time (int64 or timestamps in microseconds) as int64, without a copy."""
    array = one_chunk(column)
    if len(array) == 0:
        return np.zeros(0, np.int64)
    return np.frombuffer(array.buffers()[1], np.int64, len(array), array.offset * 8)


def validity(array: pa.Array) -> Any:
    """Which values are not null, as bools; empty where none is null."""
    if array.null_count == 0:
        return _NONE_NULL
    bits = np.unpackbits(
        np.frombuffer(array.buffers()[0], np.uint8), count=array.offset + len(array), bitorder="little"
    )
    return bits[array.offset :].astype(np.bool_)


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
    if type_.kind == "decimal":
        data = _widen(lane)
    elif type_.kind == "bool":
        data = np.packbits(lane, bitorder="little")
    elif type_.kind == "date":
        data = lane.astype(np.int32)
    else:
        data = np.ascontiguousarray(lane)
    return pa.Array.from_buffers(type_.arrow(), lane.size, [bits, pa.py_buffer(data)])
