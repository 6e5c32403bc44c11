"""Files that a direct source's events come from: read, named with their checksums, and read again by a recovery.

    log="source"   a batch's segment names its files instead of holding its events: the files are the log

So they have to stay as they were until a snapshot stands behind their batch, and for as long as older versions are to
be read. One that is gone, or that is another one by now, is named.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.declare.model import EventDef
from penstock.errors import InputError, StateError
from penstock.execute.casting import column

_REPLACE = "replace the file by one that fits, and start the query again"
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class SourceFile:
    path: str
    size: int
    crc: int  # of its bytes

    @classmethod
    def of(cls, path: str) -> SourceFile:
        size = crc = 0
        with open(path, "rb") as file:
            while block := file.read(_BLOCK):
                size, crc = size + len(block), zlib.crc32(block, crc)
        return cls(os.path.abspath(path), size, crc)

    def note(self) -> list[Any]:
        return [self.path, self.size, f"{self.crc:08x}"]


@dataclass(frozen=True, slots=True)
class SourceRows:
    """Events, as `run` takes them, and the files that they are from, in order."""

    table: pa.Table
    files: tuple[SourceFile, ...]


def read(event: EventDef, files: Sequence[str], *, threads: bool = True) -> pa.Table:
    """The files' rows, in the order of the files."""
    import pyarrow.parquet as pq  # not before somebody reads a file

    wanted = [f.name for f in event.fields]
    tables = []
    for file in files:
        try:
            with pq.ParquetFile(file, memory_map=True) as parquet:
                schema = parquet.schema_arrow
                tables.append(parquet.read([n for n in wanted if n in schema.names], use_threads=threads))
        except (OSError, pa.ArrowInvalid) as error:
            raise InputError(f"event '{event.name}': {file} cannot be read: {error}; {_REPLACE}") from error
        _check_file(event, file, schema)
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InputError(
            f"event '{event.name}': {', '.join(files)} differ in their types: {error}; {_REPLACE}"
        ) from error


def read_named(event: EventDef, files: Sequence[str], *, threads: bool = True) -> SourceRows:
    """The same, with what the log says of the files. Their checksums are taken first: of a file that became another
    meanwhile, a recovery then says so, and does not run what the batch has not run."""
    try:
        named = tuple(SourceFile.of(file) for file in files)
    except OSError as error:
        raise InputError(f"event '{event.name}': {error.filename} cannot be read: {error}; {_REPLACE}") from error
    return SourceRows(read(event, files, threads=threads), named)


def _check_file(event: EventDef, file: str, schema: pa.Schema) -> None:
    missing = [f.name for f in event.fields if f.name not in schema.names]
    if missing:
        names = ", ".join(schema.names)
        raise InputError(f"event '{event.name}': {file} has no column '{missing[0]}'; it has {names}; {_REPLACE}")
    for f in event.fields:
        none = pa.chunked_array([], schema.field(f.name).type)
        column(none, f.type, where=f"event '{event.name}', column '{f.name}' of {file}")


def read_again(event: EventDef, noted: Sequence[list[Any]], version: int) -> pa.Table:
    """The rows of files that a segment names. version: that it made."""
    for path, size, crc in noted:
        try:
            found = SourceFile.of(path)
        except OSError as error:
            raise StateError(f"{_needed(path, event, version)} cannot be read: {error}; put it back there") from error
        if [found.size, f"{found.crc:08x}"] != [size, crc]:
            raise StateError(
                f"{_needed(path, event, version)} is another one by now: it has {found.size} bytes with the checksum "
                f"{found.crc:08x}, and had {size} with {crc}; put back the one that was there"
            )
    return read(event, [path for path, _, _ in noted])


def _needed(path: str, event: EventDef, version: int) -> str:
    return f"{path}, which holds events '{event.name}' of version {version}, logged with log=\"source\","
