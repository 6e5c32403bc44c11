"""A store that is a state directory and its journal. What a segment holds is in segment.py; how it gets to the disk is
commit/'s business."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa

from penstock import observe
from penstock.check.findings import Finding
from penstock.check.scrub import SCRUB, Scrub, check_hours
from penstock.commit import RETAIN, SNAPSHOT_EVERY, Disk, Journal, Segment
from penstock.declare.model import TableDef
from penstock.engine import Engine
from penstock.errors import StateError
from penstock.execute.intake import EventBatch
from penstock.execute.outcomes import BatchOutcomes
from penstock.execute.request import BatchRequest
from penstock.execute.source_files import SourceNote
from penstock.observe.report import BatchReport
from penstock.plan.migration import Words
from penstock.plan.schema import Schema
from penstock.state.tables import Tables, TablesCut
from penstock.store import migrate, replay
from penstock.store.outcome_codec import from_log, to_log
from penstock.store.replay import Recovered, Replay
from penstock.store.reports import Reports
from penstock.store.segment import ADVANCE, BETWEEN, CALLS, EMITTED, LOAD, OUTCOMES, SCHEMA, part
from penstock.store.stream import StreamState

CHANGES, INPUT, SOURCE = LOGS = ("changes", "input", "source")


class DurableStore:
    def __init__(
        self,
        engine: Engine,
        path: str | os.PathLike[str],
        *,
        log: str = "changes",
        retain: int = RETAIN,
        snapshot_every: int = SNAPSHOT_EVERY,
        background: bool = True,
        scrub: float | None = SCRUB,
        disk: Disk | None = None,
        words: Words | None = None,
    ) -> None:
        """words: what is said beside the declarations, where the directory is of an older schema."""
        check_hours(scrub)
        if log not in LOGS:
            raise StateError(f'log={log!r} is not a way to log; write log="changes", log="input" or log="source"')
        program, kernel = engine.program, engine.kernel
        if log != CHANGES and not kernel.whole:
            raise StateError(
                f"app '{program.name}' cannot log its input: it has a udf whose code cannot be compared with that of a "
                'later process, which would have to run the input again; open it with log="changes"'
            )
        self._engine, self._log, self.retain = engine, log, retain
        self.stream = StreamState()
        self._schema, self._words = Schema.of(engine.plan), words or Words()
        self._journal = Journal.open(
            path,
            {"app": program.name, **self._schema.content},
            log=log,
            retain=retain,
            snapshot_every=snapshot_every,
            background=background,
            disk=disk,
        )
        # A disk of somebody's own is no place for files that are written beside it.
        self._reports = Reports(self._journal.path) if disk is None else None
        # Nothing that refers to this store, so that one which nobody keeps gives up its lock at once.
        self._scrub = Scrub(disk or Disk(), self._journal.path, scrub, partial(_tell, str(self._journal.path)))

    def recover(self) -> tuple[Tables, Recovered]:
        """Where the directory is of an older schema, it is of the app's from now on: that is a version of its own."""
        follower = self._replay()
        recovered = replay.recover(self._journal, follower)
        change = migrate.changed(follower, self._words, str(self._journal.path))
        if change is not None:
            self._journal.commit(*change.segment(self._plan()))
            follower.apply(change.committed(self._journal.version))
            recovered = dataclasses.replace(recovered, version=self._journal.version)
            for step in change.migration.steps:
                logging.getLogger("penstock").info("state directory %s: %s", self._journal.path, step)
        self.stream = follower.stream
        if change is not None and self._log != CHANGES:  # What ran before is not run again by what runs now.
            self._snapshot(follower.tables, wait=True)
        return follower.tables, recovered

    @property
    def version(self) -> int:
        """The last one that is durable."""
        return self._journal.version

    @property
    def commits(self) -> int:
        return self._journal.seq

    def outcomes(self, id: int) -> pa.Table | None:
        segment = self._journal.outcomes(id, [OUTCOMES])
        return None if segment is None else _outcomes(segment)

    @property
    def last_id(self) -> int | None:
        return self._journal.last_id

    def refuse_foreign(self, id: int, source: str, offsets: str | None) -> None:
        """A stream's batches follow one another, and only the last may be sent again, as it was; a checkpoint and a
        directory that do not fit are refused."""
        known, last = self.stream.source, self._journal.last_id
        if known is not None and known != source:
            raise StateError(
                f"state directory {self._journal.path} was written by query {known}, but this checkpoint is of query "
                f"{source}; use the checkpoint that belongs to it, or another state directory"
            )
        if known is None and last is not None:
            raise StateError(
                f"state directory {self._journal.path} has batches up to {last} that no query sent, so that the "
                f"batches of query {source} cannot be told from them; use another state directory for it"
            )
        if last is not None and (id < last or (id == last and offsets != self.stream.offsets)):
            raise StateError(
                f"the checkpoint of query {source} plans batch {id} anew, but state directory {self._journal.path} has "
                f"run batches up to {last}: the checkpoint has lost its newest offsets, or is an older copy; restore "
                "the one that belongs to the directory, or use another state directory"
            )
        expected = 0 if last is None else last + 1
        if id > expected:
            raise StateError(
                f"the checkpoint of query {source} is at batch {id}, but state directory {self._journal.path} waits "
                f"for batch {expected}: they do not belong together; restore the one that is missing"
            )

    @property
    def can_go_back(self) -> bool:
        """Whether memory may be read back from the disk at any time. A log of inputs would have to run them again."""
        return self._log == CHANGES

    def prepare(
        self,
        tables: Tables,
        events: list[EventBatch],
        outcomes: BatchOutcomes,
        stream: StreamState,
        request: BatchRequest,
        notes: dict[str, Any],
        files: dict[str, SourceNote] | None,
        calls: pa.Table | None = None,
    ) -> Any:
        """A batch that has run, on disk; it is committed, or forgotten, before anything else is written."""
        header = {"kind": "batch", "id": request.id, **notes, **self._plan(), **stream.header(self.stream)}
        if self._log == CHANGES:
            parts = replay.changes_parts(tables)
        elif self._log == SOURCE and files is not None:
            parts, header = replay.refused_parts(files), header | replay.files_note(files, request)
        else:
            parts = replay.input_parts(events)
        if request.until is not None:
            header |= {"cause": ADVANCE, "until": request.until}
        parts |= {part(EMITTED, name): to_log(table) for name, table in outcomes.emitted.items() if table.num_rows}
        parts |= {**stream.parts(self.stream), OUTCOMES: to_log(outcomes.table, versions=outcomes.duplicate > 0)}
        parts |= {} if calls is None else {CALLS: calls}
        return self._journal.prepare(header, parts), stream

    def commit(self, prepared: Any) -> None:
        self._journal.finish(prepared[0])
        self.stream = prepared[1]

    def report(self, report: BatchReport) -> None:
        if self._reports is not None:
            self._reports.add(report, self._journal.hash)

    def forget(self, prepared: Any) -> None:
        self._journal.forget(prepared[0])

    def load(self, table: TableDef, rows: pa.Table, at: int) -> None:
        parts = {part(LOAD, table.name): rows}
        if table.ttl is not None:
            parts |= replay.ages_parts({table.name: pa.table({"at": pa.repeat(at, rows.num_rows)})})
        self._journal.commit({"kind": "load", "id": None}, parts)

    @property
    def damage(self) -> tuple[Finding, ...]:
        """What the scrub has found so far."""
        return self._scrub.damage

    def snapshot_if_due(self, tables: Tables) -> None:
        self._scrub.begin_if_due()
        if self._journal.due:
            self._snapshot(tables)

    def version_of(self, id: int) -> int:
        return self._journal.version_of(id)

    def outcomes_of(self, version: int) -> pa.Table:
        return _outcomes(self._journal.batch(version, [OUTCOMES]))

    def emitted_of(self, event: str, version: int) -> pa.Table | None:
        segment = self._journal.batch(version, [part(EMITTED, event)])
        found = segment.parts.get(part(EMITTED, event))
        return None if found is None else from_log(found, version, behind="step")

    def is_between(self, version: int) -> bool:
        return self._journal.batch(version, ()).header.get("cause") in BETWEEN

    def keep_from(self, id: int) -> None:
        self._journal.keep_from(id)

    @property
    def oldest_version(self) -> int:
        return self._journal.oldest_version

    def answered(self) -> Iterator[tuple[int, pa.Table, list[tuple[str, Any, int, int | None]]]]:
        newest = self._journal.version
        for version in range(max(self._journal.oldest_version, newest - self.retain + 1), newest + 1):
            segment = self._journal.batch(version, (CALLS,))
            calls: list[Any] = [(event, id, row, None) for event, id, row in segment.header.get(CALLS, ())]
            if CALLS in segment.parts:
                calls = list(zip(*(column.to_pylist() for column in segment.parts[CALLS].columns), strict=True))
            if calls:
                yield version, self.outcomes_of(version), calls

    def tables_at(self, version: int) -> Tables:
        follower = self._replay()
        replay.recover(self._journal, follower, version)
        return follower.tables

    def history(self, table: TableDef, key: pa.Table) -> pa.Table:
        return replay.history(self._journal, self._replay(), table, key)

    def close(self, tables: Tables | None) -> None:
        """tables: as they are, or None where they cannot be trusted."""
        try:
            self._scrub.stop()
            # So that transactions which have changed since can open a log of inputs.
            if self._log != CHANGES and tables is not None and self._journal.batches_since_snapshot:
                self._snapshot(tables, wait=True)
        finally:
            self._journal.close()

    def _snapshot(self, tables: Tables, *, wait: bool = False) -> None:
        """Unless it is to wait, it may begin some batches later, once large tables are copied."""
        cut = tables.cut_of_all(whole=wait)
        if cut is None:
            return
        header = {**self._plan(), **self.stream.header(), SCHEMA: self._schema.content}
        more = replay.window_parts(tables) | replay.id_parts(tables) | self.stream.parts()
        self._journal.snapshot(header, partial(_parts, cut, more), wait=wait)

    def _plan(self) -> dict[str, Any]:
        # A log of inputs is worth only what its transactions are.
        return {"plan": self._engine.kernel.fingerprint}

    def _replay(self) -> Replay:
        # The database's own engine may be running in another thread.
        return Replay(self._engine.replica(), self._journal.identity, str(self._journal.path))


def _parts(cut: TablesCut, more: dict[str, pa.Table]) -> dict[str, pa.Table]:
    tables, ages = cut.read()
    return tables | replay.ages_parts(ages) | more


def _outcomes(segment: Segment) -> pa.Table:
    return from_log(segment.parts[OUTCOMES], segment.header["version"])


def _tell(path: str, found: tuple[Finding, ...]) -> None:
    """In the scrub's thread."""
    for finding in found:
        damage = observe.Damage(path, finding.file, finding.problem, finding.remedy)
        logging.getLogger("penstock").warning("%s", damage)
        observe.publish(damage)
