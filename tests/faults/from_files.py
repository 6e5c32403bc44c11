"""A batch as a direct source hands it over: rows, and the file that they were read from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.execute.source_files import SourceFile, SourceRows


def from_file(path: Path, events: list[Any]) -> dict[str, SourceRows]:
    """Events of one type; the file is written where it is not there yet, as a batch comes again after a kill."""
    definition = events[0].definition
    if not path.exists():
        pq.write_table(pa.Table.from_pylist([e.values for e in events], schema=definition.arrow()), path)
    return {definition.name: SourceRows(pq.read_table(path), (SourceFile.of(str(path), path.read_bytes()),))}
