"""Rows as messages: (key, value) of each."""

from __future__ import annotations

import datetime
import decimal
import json
import math
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

# Of an Arrow message, in bytes: a broker takes a megabyte by default.
_LARGEST = 500_000


def json_messages(rows: pa.Table, key: str | None) -> Iterator[tuple[bytes | None, bytes]]:
    """An object a row, as ps.kafka reads it."""
    keyed = key is not None and key in rows.column_names
    floats = [f.name for f in rows.schema if pa.types.is_floating(f.type)]
    for row in rows.to_pylist():
        for name in floats:
            if row[name] is not None and not math.isfinite(row[name]):
                row[name] = str(row[name])  # JSON has no such number
        value = json.dumps(row, default=_text, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        yield _key(row[key]) if keyed else None, value.encode()


def _text(value: Any) -> Any:
    if isinstance(value, datetime.datetime | datetime.date):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(microseconds=1)
    assert isinstance(value, decimal.Decimal), type(value)
    return str(value)


def _key(value: Any) -> bytes | None:
    return None if value is None else str(value).encode()


def arrow_messages(rows: pa.Table, key: str | None) -> Iterator[tuple[bytes | None, bytes]]:
    """IPC streams of as many rows as fit into a message. They have no keys: a message is of many rows."""
    several = max(1, math.ceil(rows.nbytes / _LARGEST))
    size = math.ceil(rows.num_rows / several)
    for at in range(0, rows.num_rows, size):
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, rows.schema) as stream:
            stream.write_table(rows.slice(at, size).combine_chunks())
        yield None, out.getvalue().to_pybytes()
