"""A number that stands for the fields of an event: of two calls with one id it tells whether they are the same call.

It is kept in the log, so it is the same in every process. A field that is null counts for nothing: neither does one
that the event has got since. 64 bits find a mistake; they are no proof against someone who wants two events to agree.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.state.arrow import one_chunk, validity
from penstock.state.hashing import mix
from penstock.state.jit import kernel
from penstock.state.strings import hash_of

_SPREAD = 0x9E3779B97F4A7C15


def field_hashes(table: pa.Table, given: dict[str, Any] | None = None) -> Any:
    """One for each row. given: of a column, which of its values the event had; the rest count as null."""
    out = np.zeros(table.num_rows, np.uint64)
    if not table.num_rows:
        return out
    for name, column in zip(table.column_names, table.columns, strict=True):
        array = one_chunk(column)
        valid = validity(array)
        if given is not None and name in given:
            valid = given[name] if not valid.size else valid & given[name]
        _add(out, _words(array), valid, np.uint64(zlib.crc32(name.encode())))
    return out


@kernel
def _add(out: Any, words: Any, valid: Any, name: Any) -> None:
    for i in range(out.size):
        if not valid.size or valid[i]:
            out[i] += mix(mix(words[i]) * np.uint64(_SPREAD) + name)


@kernel
def _texts(starts: Any, data: Any, out: Any) -> None:
    for i in range(out.size):
        out[i] = hash_of(data, starts[i], starts[i + 1])


@kernel
def _lists(starts: Any, items: Any, valid: Any, out: Any) -> None:
    for i in range(out.size):
        h = np.uint64(starts[i + 1] - starts[i])
        for k in range(starts[i], starts[i + 1]):
            word = items[k] if not valid.size or valid[k] else np.uint64(_SPREAD)
            h = mix(h * np.uint64(_SPREAD) + word + np.uint64(1))
        out[i] = h


def _words(array: pa.Array) -> Any:
    """Each value as 64 bits; what lies under a null means nothing."""
    n, type_ = len(array), array.type
    if pa.types.is_dictionary(type_):
        if array.null_count:
            return _words(array.cast(type_.value_type))
        return _words(array.dictionary)[array.indices.to_numpy()]
    buffers, out = array.buffers(), np.zeros(n, np.uint64)
    if pa.types.is_null(type_) or not n:
        return out
    if pa.types.is_string(type_):
        data = np.zeros(0, np.uint8) if buffers[2] is None else np.frombuffer(buffers[2], np.uint8)
        _texts(np.frombuffer(buffers[1], np.int32, n + 1, array.offset * 4).astype(np.int64), data, out)
    elif pa.types.is_list(type_):
        starts = np.frombuffer(buffers[1], np.int32, n + 1, array.offset * 4).astype(np.int64)
        _lists(starts, _words(array.values), validity(array.values), out)
    elif pa.types.is_boolean(type_):
        bits = np.unpackbits(np.frombuffer(buffers[1], np.uint8), count=array.offset + n, bitorder="little")
        out[:] = bits[array.offset :]
    elif pa.types.is_decimal(type_):  # of 18 digits at most: the low word says all
        out[:] = np.frombuffer(buffers[1], np.uint64, 2 * n, array.offset * 16)[::2]
    elif type_.bit_width == 32:
        out[:] = np.frombuffer(buffers[1], np.int32, n, array.offset * 4).astype(np.uint64)
    else:
        out[:] = np.frombuffer(buffers[1], np.uint64, n, array.offset * 8)
    return out
