"""Versions whose outcomes have not gone to their files yet, in order; and what a crash kept from going there. A topic
is to these as a directory is, and a transaction as a file.

    versions   7 (stream)  8 (call)  9 (idle)  10 (stream)  11 (call) …
    files      version-7   version-10: of 8, 9 and 10       …

Calls, and a clock that goes on by itself (idle.py), make versions between those of the stream. Their outcomes ride in
the stream's next file, unless so many come that they get one of their own: the log has to have, at the next start, all
that is not in a file. Files are named by the last version in them, so what is in them follows from their names.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from penstock.commit import RETAIN
from penstock.database import Database
from penstock.errors import NotRetainedError
from penstock.spark.checkpoint import first_not_done
from penstock.spark.databases import DatabaseSpec
from penstock.spark.outcome_sink import OutcomeSink
from penstock.spark.outcome_writer import OutcomeWriter

# Versions that wait for the stream's next file: a file costs some milliseconds, and readers open each.
MOST = 50

Version = tuple[int, pa.Table, dict[str, pa.Table]]  # its outcomes, and what it emitted
Rows = list[tuple[int, pa.Table]]  # of versions that have some


class Backlog:
    """What a database hands its versions on to."""

    def __init__(
        self,
        spec: DatabaseSpec,
        database: Database,
        outcomes: OutcomeSink | None,
        outputs: tuple[tuple[str, OutcomeSink], ...],
        writer: OutcomeWriter,
    ) -> None:
        self._state, self._database, self._writer = spec.path, database, writer
        self._outcomes, self._outputs = outcomes, outputs
        # Half of what is sure to be in the log, so that a stream's batch may come on top.
        self._most = max(1, min(MOST, int(spec.options.get("retain", RETAIN)) // 2))
        self._mutex = threading.Lock()
        self._versions: list[Version] = []

    def add(self, version: int, outcomes: pa.Table, emitted: dict[str, pa.Table]) -> None:
        with self._mutex:
            self._versions.append((version, outcomes, emitted))

    def make_room(self) -> None:
        if len(self._versions) < self._most:
            return
        self.flush()
        self._writer.wait()
        self._database.keep_from(first_not_done(self._state))

    def flush(self) -> None:
        """Begin to write all that there is; raises what went wrong with what was written last."""
        with self._mutex:
            files = list(self._files(self._versions))
            if files:
                self._writer.put(partial(_write, files))
            self._versions = []

    def catch_up(self) -> None:
        """Write what a crash kept from being written, for each directory from where its files end."""
        for name, files in self._sinks():
            _write([(files, several) for span in self._spans(files) if (several := self._stored(name, span))])

    def _sinks(self) -> Iterator[tuple[str | None, OutcomeSink]]:
        """None: outcomes; or an event that goes out."""
        if self._outcomes is not None:
            yield None, self._outcomes
        yield from self._outputs

    def _files(self, versions: list[Version]) -> Iterator[tuple[OutcomeSink, Rows]]:
        for name, files in self._sinks():
            tables = [(version, out if name is None else emitted.get(name)) for version, out, emitted in versions]
            several = [(version, table) for version, table in tables if table is not None and table.num_rows]
            if several:
                yield files, several

    def _stored(self, name: str | None, versions: list[int]) -> Rows:
        database = self._database
        tables = [(v, database.outcomes(v) if name is None else database.emitted(name, v)) for v in versions]
        return [(version, table) for version, table in tables if table.num_rows]

    def _spans(self, files: OutcomeSink) -> Iterator[list[int]]:
        """What the newest file holds, which may be a name without a file, and what lies behind it."""
        newest = self._database.version
        before, last = [0, 0, *(version for version in files.written() if version <= newest)][-2:]
        if last:
            yield self._since(before, last)
        if last < newest:
            yield self._since(last, newest)

    def _since(self, start: int, version: int) -> list[int]:
        """This version and those before it that cannot have been written with an earlier one: back to the stream's
        batch before, which waited for its own outcomes, and never to `start`. Oldest first."""
        database, out, batches = self._database, list[int](), 0
        for one in range(version, start, -1):
            try:
                between = database.is_between(one)
            except NotRetainedError:  # Long since written.
                break
            if not between and one != database.drained:
                batches += 1
                if batches > 1 or database.source is None:
                    break
            out.insert(0, one)
        return out


def _write(files: list[tuple[OutcomeSink, Rows]]) -> None:
    for sink, several in files:
        tables = [table for _, table in several]
        rows = tables[0] if len(tables) == 1 else pa.concat_tables(tables).unify_dictionaries().combine_chunks()
        sink.write(rows, pa.array(np.repeat([version for version, _ in several], [table.num_rows for table in tables])))
