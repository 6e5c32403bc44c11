"""Batches of direct sources: which files they are, and the files read, if it can be, ahead of time.

Spark notes the offsets of a batch in its checkpoint before it hands the batch over, and offsets count files in
lists of our own (files.py). So the names are had from two small files, where a Spark job that fetches a few
names costs as much as 100,000 events:

    checkpoint/offsets/6    {"event": "Transfer", "files": 11}
    checkpoint/offsets/7    {"event": "Transfer", "files": 12}     batch 7 is file number 11 of sources/Transfer.list

A batch that is sent again has the same notes, and so the same files. Notes that are absent, or of another make, answer
nothing: then the job is run. Notes whose checksums do not hold are damage.

What Spark does between two batches takes as long as 100,000 events or more. Meanwhile the next batch, as far as it is
known, is read and run; when Spark asks for it, it only has to happen (`Database.run_ahead`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.declare.model import EventDef, Program
from penstock.errors import InputError
from penstock.execute.casting import column
from penstock.publish.behind import FEW_CORES, Behind, beside
from penstock.spark.checkpoint import read_note
from penstock.spark.files import Listed

_REPLACE = "replace the file by one that fits, and start the query again"

# With few cores, Spark between two batches is slowed down by as much as we gain if we take all of them. So files are
# read by one thread, and outcomes written first, unless these are many.
FEW_OUTCOMES_S = 0.015

Spans = dict[str, tuple[int, int]]  # event -> number of its first file, and of the one after its last


def spans(checkpoint: Path, batch_id: int, sources: tuple[Listed, ...]) -> Spans | None:
    """The files of a batch, by Spark's own notes; None where these do not say."""
    end = _noted(checkpoint / "offsets" / str(batch_id))
    start = _noted(checkpoint / "offsets" / str(batch_id - 1)) if batch_id else {}
    if end is None or start is None or end.keys() != {s.event for s in sources}:
        return None
    return {event: (start.get(event, 0), files) for event, files in end.items()}


def _noted(path: Path) -> dict[str, int] | None:
    """Files by event, of a file of offsets: a version, a line of metadata, then a line for each source."""
    try:
        version, _, *offsets = read_note(path).decode().splitlines()
        noted = [json.loads(line) for line in offsets if line != "-"]  # a source that has not begun
        return {str(n["event"]): int(n["files"]) for n in noted} if version == "v1" else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def following(sources: tuple[Listed, ...], done: Spans, *, all_listed: bool) -> Spans | None:
    """The batch after this one, as Spark will plan it; None where that is not certain, as new files may come first.
    all_listed: Spark takes no new ones, as with availableNow."""
    out = {}
    for source in sources:
        start, share, known = done[source.event][1], source.files_per_batch, len(source.names())
        if share is None or (known < start + share and not all_listed):
            return None
        out[source.event] = start, min(start + share, known)
    return out if any(start < end for start, end in out.values()) else None


class Ahead:
    """Reads the files of a batch and, once Spark is told that it is done, does what can be done of the next."""

    def __init__(self) -> None:
        self._pool = beside("penstock-ahead")
        self._coming: dict[tuple[str, ...], Future[pa.Table]] = {}
        self._running: Future[None] | None = None

    def settle(self) -> None:
        """Until what runs ahead has run; raises what went wrong, which nobody else would be told."""
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def take(self, program: Program, sources: tuple[Listed, ...], wanted: Spans) -> dict[str, pa.Table] | None:
        """The events of a batch; None where the lists lack a file that it names."""
        coming, self._coming = self._coming, {}
        files = _files(program, sources, wanted)
        if files is None:
            return None
        out = {}
        for event, names in files:
            ready = _had(coming.get(names))
            out[event.name] = read(event, names) if ready is None else ready
        return out

    def go_on(
        self,
        program: Program,
        sources: tuple[Listed, ...],
        wanted: Spans,
        run: Callable[[dict[str, pa.Table]], None],
        behind: Behind,
    ) -> None:
        """Read the files of a batch, and run it, while the caller goes on."""
        files = _files(program, sources, wanted) or []
        if FEW_CORES:
            self._pool.submit(behind.wait_at_most, FEW_OUTCOMES_S)
        self._coming = {names: self._pool.submit(read, event, names) for event, names in files}
        coming = {event.name: self._coming[names] for event, names in files}

        def run_if_read() -> None:
            if all(future.exception() is None for future in coming.values()):
                run({name: future.result() for name, future in coming.items()})

        self._running = self._pool.submit(run_if_read)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def _files(
    program: Program, sources: tuple[Listed, ...], wanted: Spans
) -> list[tuple[EventDef, tuple[str, ...]]] | None:
    """The files of each event that has any; None where the lists lack one."""
    out = []
    for source in sources:
        start, end = wanted[source.event]
        known = source.names()
        if len(known) < end:
            return None
        if end > start:
            event = next(e for e in program.events if e.name == source.event)
            out.append((event, source.paths(known[start:end])))
    return out


def _had(coming: Future[pa.Table] | None) -> pa.Table | None:
    """What was read ahead. A file that could not be read then may have been mended since."""
    return None if coming is None or coming.exception() is not None else coming.result()


def read(event: EventDef, files: Any) -> pa.Table:
    """The files' rows, in the order of the files."""
    wanted = [f.name for f in event.fields]
    tables = []
    for file in files:
        try:
            with pq.ParquetFile(file, memory_map=True) as parquet:
                schema = parquet.schema_arrow
                tables.append(parquet.read([n for n in wanted if n in schema.names], use_threads=not FEW_CORES))
        except (OSError, pa.ArrowInvalid) as error:
            raise InputError(f"event '{event.name}': {file} cannot be read: {error}; {_REPLACE}") from error
        _check_file(event, file, schema)
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InputError(
            f"event '{event.name}': {', '.join(files)} differ in their types: {error}; {_REPLACE}"
        ) from error


def _check_file(event: EventDef, file: str, schema: pa.Schema) -> None:
    missing = [f.name for f in event.fields if f.name not in schema.names]
    if missing:
        names = ", ".join(schema.names)
        raise InputError(f"event '{event.name}': {file} has no column '{missing[0]}'; it has {names}; {_REPLACE}")
    for f in event.fields:
        none = pa.chunked_array([], schema.field(f.name).type)
        column(none, f.type, where=f"event '{event.name}', column '{f.name}' of {file}")
