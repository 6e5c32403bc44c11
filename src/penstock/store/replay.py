"""State out of a journal: a snapshot, and then segment after segment.

Opening a directory, reading an older version and the history of a record are all this one walk.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from penstock.commit import Journal, Recovery, Segment
from penstock.declare.model import NUMBER, Program, TableDef, timers_of
from penstock.engine import Engine
from penstock.errors import StateError
from penstock.execute import bad_rows, intake
from penstock.execute.intake import EventBatch
from penstock.execute.request import BatchRequest
from penstock.execute.source_files import SourceNote, read_again
from penstock.execute.watermark import ARRIVAL, WatermarkBuffer, is_split, release, without_late
from penstock.plan.migration import Migration
from penstock.plan.schema import Schema
from penstock.state.ages import NEVER
from penstock.state.strings import Strings
from penstock.state.table import TableState
from penstock.state.tables import Tables
from penstock.store.foreign_timers import ForeignTimers
from penstock.store.schemas import Schemas
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
    RESET,
    RESTATED,
    SCHEMA,
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
    """An engine that follows a journal; its tables have the columns that they had where it has come to."""

    def __init__(self, engine: Engine, identity: Mapping[str, Any], where: str) -> None:
        """identity: of the directory, which is where."""
        self.engine, self.program = engine, engine.program
        self._identity, self._where = identity, where
        self.own = Schema.of(engine.plan)  # the app's
        self.schema = self.own
        self.tables = engine.tables
        self.stream = StreamState()
        self.foreign = ForeignTimers(self.program.timers)
        self.schemas: Schemas | None = None
        self.changes = 0
        self.executed: Callable[[Tables], None] = _nobody_asks  # told of each batch that ran again

    def run(self, recovery: Recovery) -> None:
        for _ in self.steps(recovery):
            pass

    def steps(self, recovery: Recovery) -> Iterator[Segment | None]:
        """Apply the snapshot (yielding None) and each segment (yielding it)."""
        self.schemas = Schemas(recovery.scan, self._identity)
        self._begin(self.schemas.at(recovery.base_version))
        if recovery.snapshot is not None:
            self.stream = StreamState.read(recovery.snapshot.header, recovery.snapshot.tables)
            found = self.foreign.sorted_out(recovery.snapshot.tables)
            for table in self._stored:
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
            if segment.header.get("cause") == RESET and before.frontier is not None:
                self._set_back_ids(before.frontier, self.stream.buffer.frontier)
        if SCHEMA in segment.header:
            self._change(Migration.read(segment.header[SCHEMA]), segment)
        elif segment.header["kind"] == "batch" and segment.header["log"] != "changes":
            self._execute(segment, before)
        else:
            rows = self.foreign.sorted_out(parts_of(LOAD, parts) | parts_of(WRITTEN, parts))
            gone = parts_of(DELETED, parts)
            self.foreign.deleted(gone)
            for table in self._stored:
                written = rows.get(table.name, table.arrow().empty_table())
                deleted = gone.get(table.name, _no_keys(table))
                is_timer = table.name.startswith(timers_of(""))
                self.changes += 0 if is_timer else written.num_rows + deleted.num_rows
                at = _ages(parts, table)
                self.tables.apply(table.name, written, deleted, version, at)
            self._take_windows(parts, version)
            self._take_ids(parts, version)
        self.tables.timers.given(self.stream.timers)

    # -- schemas ----------------------------------------------------------------------------

    @property
    def is_own(self) -> bool:
        """Whether the tables are those of the app."""
        return self.schema.tables == self.own.tables and self.schema.windows == self.own.windows

    def _begin(self, schema: Schema) -> None:
        """Empty tables of a schema. Those of an older one hold no timers: there, these are foreign."""
        self.schema = schema
        if self.is_own:
            self.tables = self.engine.tables = Tables(self.program, self.engine.plan.windows)
            self._stored, timers = self.program.stored, self.program.timers
        else:
            lifetimes = {table.name: table.ttl for table in self.program.tables}
            definitions = schema.definitions(self._where)
            windows = [w for w in self.engine.plan.windows if _is_same(schema, self.own, w.definition.name)]
            self._stored, timers = tuple(replace(t, ttl=lifetimes.get(t.name)) for t in definitions), ()
            # The ids that have run are those of the app's events, whatever its tables are.
            self.tables = Tables(Program(self.program.name, self._stored, self.program.events), windows)
        self.foreign, there = self.foreign.of(timers)
        self._set(there, 0)

    def _change(self, change: Migration, segment: Segment) -> None:
        """A version that changes the schema: what it has restated is in its parts, and all else stays."""
        version, stated = segment.header["version"], parts_of(RESTATED, segment.parts)
        timers = {name: rows for name, rows in stated.items() if name.startswith(timers_of(""))}
        for name in timers:
            self.foreign.forget(name)
            if name in self.tables.by_name:
                waiting = self.tables.arrow_of(name)
                self.tables.apply(name, waiting.slice(0, 0), waiting.select([NUMBER]), version, NEVER)
        if (change.was.tables, change.was.windows) == (change.now.tables, change.now.windows):
            self.schema = change.now
        else:
            timers |= self._carry(change, version, stated, segment.parts)
        self._set(self.foreign.sorted_out(timers), version)
        self._forget(change)

    def _forget(self, change: Migration) -> None:
        """What the schema before did not ask for is not known, whether or not an older log has it still."""
        for table in self._stored:
            if table.ttl is not None and table.name in change.was.tables and table.name not in change.was.ttl:
                self.tables[table.name].forget_ages()
        clock = self.stream.buffer.frontier
        for event, ids in self.tables.ids.items():
            span = change.was.unique.get(event, 0)
            if clock is not None and span != change.now.unique.get(event):
                ids.set_back(clock, clock, span)

    def _carry(
        self, change: Migration, version: int, stated: dict[str, pa.Table], parts: dict[str, pa.Table]
    ) -> dict[str, pa.Table]:
        """Tables of another schema, with what stays of those before it; the timers that these held."""
        before = self.tables
        kept, ages = before.arrow(), {part(AGED, name): at for name, at in before.ages().items()}
        self._begin(change.now)
        for table in self._stored:
            if table.name in stated:
                at = _ages(parts, table)
                self.tables.apply(table.name, stated[table.name], _no_keys(table), version, at)
            elif table.name in change.was.tables:
                self.tables.apply(table.name, kept[table.name], _no_keys(table), version, _ages(ages, table))
        for name, window in self.tables.windows.items():
            if name in before.windows and _is_same(change.was, change.now, window.name):
                window.take(*before.windows[name].whole(before.strings), self.tables.strings, version)
        self._take_ids({part(IDS, event): ids.whole(before.strings) for event, ids in before.ids.items()}, version)
        return {name: rows for name, rows in kept.items() if name.startswith(timers_of("")) and rows.num_rows}

    def _set(self, rows: dict[str, pa.Table], version: int) -> None:
        for name, table in rows.items():
            self.tables.apply(name, table, _no_keys(self.tables[name].definition), version, NEVER)

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

    def _set_back_ids(self, clock: int, to: int | None) -> None:
        for ids in self.tables.ids.values():
            ids.set_back(clock, clock if to is None else to)

    def _execute(self, segment: Segment, before: WatermarkBuffer) -> None:
        """before: what was held, and the clock."""
        if not self.is_own or segment.header["plan"] != self.engine.kernel.fingerprint:
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
        self.executed(self.tables)
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


def _nobody_asks(tables: Tables) -> None: ...


def _ages(parts: dict[str, pa.Table], table: TableDef) -> Any:
    """When a table's rows among these parts were written. What was written before the table had a ttl does not say."""
    known = parts.get(part(AGED, table.name))
    return NEVER if known is None else known.column("at").to_numpy()


def _is_same(a: Schema, b: Schema, window: str) -> bool:
    """Whether a window is in both, and shows the same."""
    return window in a.windows and a.windows[window] == b.windows.get(window)


def _no_keys(table: TableDef) -> pa.Table:
    return table.arrow().empty_table().select([c.name for c in table.keys])


def recover(journal: Journal, replay: Replay, upto: int | None = None) -> Recovered:
    begun = time.perf_counter()
    replay.run(journal.recover(upto, skip=(OUTCOMES,)))
    return Recovered(journal.version if upto is None else upto, replay.changes, time.perf_counter() - begun)


def history(journal: Journal, replay: Replay, table: TableDef, key: pa.Table) -> pa.Table:
    """Every retained change of one record: version, change (kept, loaded, written, migrated, deleted), and its columns,
    those of today: what has another name by now is found there."""
    rows: list[dict[str, Any]] = []
    last: dict[str, Any] | None = None
    recovery = journal.recover(oldest=True, skip=(OUTCOMES,))
    for segment in replay.steps(recovery):
        assert replay.schemas is not None
        version = recovery.base_version if segment is None else segment.header["version"]
        names = replay.schemas.names(table.name, version, replay.schemas.last)
        if not {c.name for c in table.keys} <= set(names.values()):
            last = None  # there was no such table, or another one that has gone since
            continue
        state, strings = replay.tables[table.name], replay.tables.strings  # others behind a change of the schema
        called = {new: old for old, new in names.items()}
        row = state.rows_of(state.keys_of(key.rename_columns([called[name] for name in key.column_names]), strings))
        found = state.arrow(row, strings).to_pylist()[0] if row[0] >= 0 else None
        there = None if found is None else {names[name]: value for name, value in found.items() if name in names}
        if segment is None:
            change = "kept"
        elif SCHEMA in segment.header:
            change = "migrated"
            if part(RESTATED, table.name) not in segment.parts:
                last = there
                continue
        else:
            change = "loaded" if segment.header["kind"] == "load" else "written"
            if there is not None and last is not None and state.written[row[0]] != version:
                continue
        if there is None and last is not None:
            rows.append({"version": version, "change": "deleted", **key.to_pylist()[0]})
        elif there is not None and (change != "loaded" or _has(state, segment, row, strings)):
            rows.append({"version": version, "change": change, **there})
        last = there
    columns = [pa.field("version", pa.int64()), pa.field("change", pa.string())]
    columns += [pa.field(c.name, c.type.arrow()) for c in table.columns]
    return pa.Table.from_pylist(rows, schema=pa.schema(columns))


def _has(state: TableState, segment: Segment | None, row: Any, strings: Strings) -> bool:
    """Whether a load has brought this record."""
    loaded = None if segment is None else parts_of(LOAD, segment.parts).get(state.definition.name)
    return loaded is not None and row[0] in state.rows_of(state.keys_of(loaded, strings))
