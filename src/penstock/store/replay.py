"""State out of a journal: a snapshot, and then segment after segment.

Opening a directory, reading an older version and the history of a record are all this one walk.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.commit import Journal, Recovery, Segment
from penstock.declare.model import TableDef
from penstock.engine import Engine
from penstock.errors import StateError
from penstock.execute import bad_rows, intake
from penstock.execute.intake import EventBatch
from penstock.execute.request import BatchRequest
from penstock.execute.source_files import SourceNote, read_again
from penstock.execute.watermark import ARRIVAL, WatermarkBuffer, is_split, release, without_late
from penstock.state.ages import NEVER
from penstock.state.strings import Strings
from penstock.state.table import TableState
from penstock.state.tables import Tables
from penstock.store.foreign_timers import ForeignTimers
from penstock.store.segment import (
    AGED,
    CALL,
    DELETED,
    ENDS,
    EVENT,
    IDS,
    LOAD,
    OUTCOMES,
    REFUSED,
    WINDOW,
    WRITTEN,
    part,
    parts_of,
)
from penstock.store.stream import StreamState


@dataclass(frozen=True, slots=True)
class Recovered:
    """What opening a directory took."""

    version: int
    changes: int
    seconds: float


def changes_parts(tables: Tables) -> dict[str, pa.Table]:
    parts = {}
    for name, (written, deleted) in tables.changes().items():
        parts[part(WRITTEN, name)] = written
        if deleted.num_rows:
            parts[part(DELETED, name)] = deleted
    for window in tables.windows.values():
        ends, rows = window.changes(tables.strings)
        if ends.num_rows:
            parts |= {part(ENDS, window.name): ends, part(WINDOW, window.name): rows}
    for event, ids in tables.ids.items():
        new = ids.changes(tables.strings)
        if new.num_rows:
            parts[part(IDS, event)] = new
    return parts | ages_parts(tables.changed_ages())


def ages_parts(ages: dict[str, pa.Table]) -> dict[str, pa.Table]:
    return {part(AGED, name): table for name, table in ages.items() if table.num_rows}


def window_parts(tables: Tables) -> dict[str, pa.Table]:
    """All windows, for a snapshot."""
    parts = {}
    for window in tables.windows.values():
        parts[part(ENDS, window.name)], parts[part(WINDOW, window.name)] = window.whole(tables.strings)
    return parts


def id_parts(tables: Tables) -> dict[str, pa.Table]:
    """All ids, for a snapshot."""
    return {part(IDS, event): ids.whole(tables.strings) for event, ids in tables.ids.items()}


def input_parts(events: list[EventBatch]) -> dict[str, pa.Table]:
    return {part(EVENT, e.event.name): e.table.append_column(ARRIVAL, pa.array(e.arrival)) for e in events}


def files_note(files: dict[str, SourceNote], request: BatchRequest) -> dict[str, Any]:
    """What a segment says of a batch instead of its events."""
    noted = {name: [one.note() for one in note.files] for name, note in files.items()}
    return {"files": noted, "watermark": request.watermark, "flush": request.flush}


def refused_parts(files: dict[str, SourceNote]) -> dict[str, pa.Table]:
    """Which rows of the files are no events: what may come in is asked once, and not when they are read again."""
    found = {name: note.refused for name, note in files.items() if note.refused is not None}
    return {part(REFUSED, name): pa.table({"row": rows}) for name, rows in found.items()}


class Replay:
    """An engine that follows a journal."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.program = engine, engine.program
        self.tables = engine.tables
        self.stream = StreamState()
        self.foreign = ForeignTimers(engine.program)
        self.changes = 0

    def run(self, recovery: Recovery) -> None:
        for _ in self.steps(recovery):
            pass

    def steps(self, recovery: Recovery) -> Iterator[Segment | None]:
        """Apply the snapshot (yielding None) and each segment (yielding it)."""
        if recovery.snapshot is not None:
            self.stream = StreamState.read(recovery.snapshot.header, recovery.snapshot.tables)
            found = self.foreign.sorted_out(recovery.snapshot.tables)
            for table in self.program.stored:
                rows = found.get(table.name, table.arrow().empty_table())  # timers: there may have been none then
                # Which batch last wrote a record is not kept in snapshots: it was this version or earlier.
                at = _ages(recovery.snapshot.tables, table)
                self.tables.apply(table.name, rows, _no_keys(table), recovery.snapshot.header["version"], at)
            self._take_windows(recovery.snapshot.tables, recovery.snapshot.header["version"])
            self._take_ids(recovery.snapshot.tables, recovery.snapshot.header["version"])
            self.tables.timers.given(self.stream.timers)
        yield None
        with closing(recovery.segments) as segments:
            for segment in segments:
                self.apply(segment)
                yield segment

    def apply(self, segment: Segment) -> None:
        version, parts, before = segment.header["version"], segment.parts, self.stream.buffer
        if segment.header["kind"] == "batch":
            self.stream = StreamState.read(segment.header, parts, self.stream)
        if segment.header["kind"] == "batch" and segment.header["log"] != "changes":
            self._execute(segment, before)
        else:
            rows = self.foreign.sorted_out(parts_of(LOAD, parts) | parts_of(WRITTEN, parts))
            gone = parts_of(DELETED, parts)
            self.foreign.deleted(gone)
            for table in self.program.stored:
                written = rows.get(table.name, table.arrow().empty_table())
                deleted = gone.get(table.name, _no_keys(table))
                self.changes += written.num_rows + deleted.num_rows if table in self.program.tables else 0
                at = _ages(parts, table)
                self.tables.apply(table.name, written, deleted, version, at)
            self._take_windows(parts, version)
            self._take_ids(parts, version)
        self.tables.timers.given(self.stream.timers)

    def _take_windows(self, parts: dict[str, pa.Table], version: int) -> None:
        for window in self.tables.windows.values():
            ends = parts.get(part(ENDS, window.name))
            if ends is not None:
                window.take(ends, parts[part(WINDOW, window.name)], self.tables.strings, version)

    def _take_ids(self, parts: dict[str, pa.Table], version: int) -> None:
        for event, ids in self.tables.ids.items():
            found = parts.get(part(IDS, event))
            if found is not None:
                ids.take(found, self.tables.strings, version)
                ids.end_batch()

    def _execute(self, segment: Segment, before: WatermarkBuffer) -> None:
        """before: what was held, and the clock."""
        if segment.header["plan"] != self.engine.kernel.fingerprint:
            why, keep = "its transactions, or Penstock itself, have changed", ""
            if not self.engine.kernel.whole:
                why = "its transactions may have changed, for a udf compiles from what no process after it can compare"
                keep = '; keep such an app with log="changes"'
            raise StateError(
                f"app '{self.program.name}': batch {segment.header['version']} was logged as input, and since then "
                f"{why}; open it with the code that wrote it and close it, which makes a snapshot{keep}"
            )
        if segment.header.get("cause") == CALL:
            ordered = self.engine.in_turn(self._logged(segment, called=True), before.frontier)
        else:
            files = segment.header.get("files")
            events = self._logged(segment) if files is None else self._read(segment, before)
            ordered = self.engine.order(events, clock=before.frontier, until=segment.header.get("until"))
        self.engine.replay(self.engine.encode(ordered), segment.header["version"])
        self.changes += self.tables.dirty_count()
        self.engine.end_batch()

    def _logged(self, segment: Segment, *, called: bool = False) -> list[EventBatch]:
        """The events that a segment holds."""
        tables = parts_of(EVENT, segment.parts)
        return [
            EventBatch(e.event, e.table, tables[e.event.name].column(ARRIVAL).to_numpy())
            for e in intake.events(self.program, tables, sound=True, called=called)
        ]

    def _read(self, segment: Segment, before: WatermarkBuffer) -> list[EventBatch]:
        """The events that a segment names the files of, and what was released with them."""
        header, found, refused = segment.header, {}, parts_of(REFUSED, segment.parts)
        for name, noted in header["files"].items():
            event = self.program.event(name)
            if event is None:
                raise StateError(
                    f"app '{self.program.name}' has no event '{name}' any more, of which batch {header['version']} was "
                    "logged by its files; open it with the code that wrote it and close it, which makes a snapshot"
                )
            rows = read_again(event, noted, header["version"])
            if name in refused:
                rows = bad_rows.without(rows, refused[name].column("row").to_numpy())
            found[name] = rows
        events, late = intake.events(self.program, found), None
        if is_split(self.program, before, header["watermark"], flush=header["flush"]):
            delay, flush = header["watermark"], header["flush"]
            released = release(self.program, events, before, delay, flush=flush, marked=self.engine.marked)
            events, late = released.events, released.late
        return without_late(events, late)


def _ages(parts: dict[str, pa.Table], table: TableDef) -> Any:
    """When a table's rows among these parts were written. What was written before the table had a ttl does not say."""
    known = parts.get(part(AGED, table.name))
    return NEVER if known is None else known.column("at").to_numpy()


def _no_keys(table: TableDef) -> pa.Table:
    return table.arrow().empty_table().select([c.name for c in table.keys])


def recover(journal: Journal, replay: Replay, upto: int | None = None) -> Recovered:
    begun = time.perf_counter()
    replay.run(journal.recover(upto, skip=(OUTCOMES,)))
    return Recovered(journal.version if upto is None else upto, replay.changes, time.perf_counter() - begun)


def history(journal: Journal, replay: Replay, table: TableDef, key: pa.Table) -> pa.Table:
    """Every retained change of one record: version, change (kept, loaded, written, deleted), and its columns."""
    state = replay.tables[table.name]
    rows: list[dict[str, Any]] = []
    last: dict[str, Any] | None = None
    recovery = journal.recover(oldest=True, skip=(OUTCOMES,))
    for segment in replay.steps(recovery):
        strings = replay.tables.strings  # another one after it was made anew
        row = state.rows_of(state.keys_of(key, strings))
        there = state.arrow(row, strings).to_pylist()[0] if row[0] >= 0 else None
        if segment is None:
            change, version = "kept", recovery.base_version
        else:
            change = "loaded" if segment.header["kind"] == "load" else "written"
            version = segment.header["version"]
            if there is not None and last is not None and state.written[row[0]] != version:
                continue
        if there is None and last is not None:
            rows.append({"version": version, "change": "deleted", **key.to_pylist()[0]})
        elif there is not None and (segment is None or change == "written" or _has(state, segment, row, strings)):
            rows.append({"version": version, "change": change, **there})
        last = there
    columns = [pa.field("version", pa.int64()), pa.field("change", pa.string())]
    columns += [pa.field(c.name, c.type.arrow()) for c in table.columns]
    return pa.Table.from_pylist(rows, schema=pa.schema(columns))


def _has(state: TableState, segment: Segment, row: Any, strings: Strings) -> bool:
    """Whether a load has brought this record."""
    loaded = parts_of(LOAD, segment.parts).get(state.definition.name)
    return loaded is not None and row[0] in state.rows_of(state.keys_of(loaded, strings))
