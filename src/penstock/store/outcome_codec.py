"""Outcomes and outputs as a segment keeps them, in half the bytes: the segment knows its version, and one byte says
which of a few texts it is. A duplicate has the version of the first one: then versions are kept. Readers without an
engine need this too, so it imports none."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.declare.model import TEXT


def to_log(outcomes: pa.Table, *, versions: bool = False) -> pa.Table:
    """versions: whether rows have other versions than that of the segment, as those of duplicates do."""
    kept = outcomes if versions else outcomes.drop_columns("version")
    for i, field in enumerate(kept.schema):
        if field.type == TEXT:
            kept = kept.set_column(i, field.name, _narrow(kept.column(i)))
    return kept


def from_log(kept: pa.Table, version: int, *, behind: str = "reason") -> pa.Table:
    """behind: the column that the version follows. An output says which: its fields may have any name."""
    for i, field in enumerate(kept.schema):
        if pa.types.is_dictionary(field.type):
            kept = kept.set_column(i, field.name, kept.column(i).cast(TEXT))
    if "version" in kept.column_names:
        return kept
    versions = pa.array(np.full(kept.num_rows, version, np.int64))
    return kept.add_column(kept.column_names.index(behind) + 1, "version", versions)


def _narrow(column: pa.ChunkedArray) -> pa.ChunkedArray:
    texts = max((len(chunk.dictionary) for chunk in column.chunks), default=0)
    index = pa.int8() if texts < 1 << 7 else pa.int16() if texts < 1 << 15 else pa.int32()
    return column.cast(pa.dictionary(index, TEXT.value_type))
