"""Files that a direct source's events come from: read, named with their checksums, and read again by a recovery.

    log="source"   a batch's segment names its files instead of holding its events: the files are the log

So they have to stay as they were until a snapshot stands behind their batch, and for as long as older versions are to
be read. One that is gone, or that is another one by now, is named.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.declare.model import EventDef
from penstock.errors import InputError, StateError
from penstock.execute.casting import column, left_out

_REPLACE = "replace the file by one that fits, and start the query again"


@dataclass(frozen=True, slots=True)
class SourceFile:
    path: str
    size: int
    crc: int  # of its bytes

    @classmethod
    def of(cls, path: str, content: bytes) -> SourceFile:
        return cls(os.path.abspath(path), len(content), zlib.crc32(content))

    def note(self) -> list[Any]:
        return [self.path, self.size, f"{self.crc:08x}"]


class SourceNote(NamedTuple):
    """What a log says of a batch's events in their place."""

    files: tuple[SourceFile, ...]
    refused: Any = None  # int64: which of their rows are no events


@dataclass(frozen=True, slots=True)
class SourceRows:
    """Events, as `run` takes them, and what is known of where they are from: the files, in order, if they are of files
    that a log may name."""

    table: pa.Table
    files: tuple[SourceFile, ...]
    refused: Any = None  # int64: which of the files' rows are not in the table, since they are no events
    unreadable: pa.Table | None = None  # reason, ts, id: what the source has and cannot be a row; None: nothing
    where: Callable[[int], str] | None = None  # the place in the source that a row is from, for people


def read(event: EventDef, files: Sequence[str], *, threads: bool = True) -> pa.Table:
    """The files' rows, in the order of the files."""
    return _rows(event, {file: file for file in files}, threads)


def read_named(event: EventDef, files: Sequence[str], *, threads: bool = True) -> SourceRows:
    """The files' rows, and the files as they were when these were read: the checksums are of the same bytes."""
    contents = {}
    for file in files:
        try:
            contents[file] = Path(file).read_bytes()
        except OSError as error:
            raise _unreadable(event, file, error) from error
    noted = tuple(SourceFile.of(file, content) for file, content in contents.items())
    return SourceRows(_rows(event, contents, threads), noted)


def _rows(event: EventDef, files: Mapping[str, str | bytes], threads: bool) -> pa.Table:
    """files: where to read each, or what is in it."""
    import pyarrow.parquet as pq  # not before somebody reads a file

    wanted = [f.name for f in event.fields]
    tables = []
    for file, found in files.items():
        try:
            source = pa.BufferReader(found) if isinstance(found, bytes) else found
            with pq.ParquetFile(source, memory_map=True) as parquet:
                schema = parquet.schema_arrow
                table = parquet.read([n for n in wanted if n in schema.names], use_threads=threads)
        except (OSError, pa.ArrowInvalid) as error:
            raise _unreadable(event, file, error) from error
        _check_file(event, file, schema)
        for f in event.fields:  # of one file: another may have it
            if f.name not in schema.names:
                table = table.append_column(f.name, left_out(f, table.num_rows))
        tables.append(table)
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InputError(
            f"event '{event.name}': {', '.join(files)} differ in their types: {error}; {_REPLACE}"
        ) from error


def _unreadable(event: EventDef, file: str, error: Exception) -> InputError:
    return InputError(f"event '{event.name}': {file} cannot be read: {error}; {_REPLACE}")


def _check_file(event: EventDef, file: str, schema: pa.Schema) -> None:
    missing = [f.name for f in event.fields if f.required and f.name not in schema.names]
    if missing:
        names = ", ".join(schema.names)
        raise InputError(f"event '{event.name}': {file} has no column '{missing[0]}'; it has {names}; {_REPLACE}")
    for f in (f for f in event.fields if f.name in schema.names):
        none = pa.chunked_array([], schema.field(f.name).type)
        column(none, f.type, where=f"event '{event.name}', column '{f.name}' of {file}")


def read_again(event: EventDef, noted: Sequence[list[Any]], version: int) -> pa.Table:
    """The rows of files that a segment names. version: that it made."""
    contents = {}
    for path, size, crc in noted:
        try:
            contents[path] = Path(path).read_bytes()
        except OSError as error:
            raise StateError(f"{_needed(path, event, version)} cannot be read: {error}; put it back there") from error
        found = SourceFile.of(path, contents[path])
        if [found.size, f"{found.crc:08x}"] != [size, crc]:
            raise StateError(
                f"{_needed(path, event, version)} is another one by now: it has {found.size} bytes with the checksum "
                f"{found.crc:08x}, and had {size} with {crc}; put back the one that was there"
            )
    return _rows(event, contents, threads=True)


def _needed(path: str, event: EventDef, version: int) -> str:
    return f"{path}, which holds events '{event.name}' of version {version}, logged with log=\"source\","
