"""A store that nothing outlives: tables and outcomes are gone with the process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from penstock.check.findings import Finding
from penstock.declare.model import TableDef
from penstock.engine import Engine
from penstock.errors import NotRetainedError, StateError
from penstock.execute.intake import EventBatch
from penstock.execute.outcomes import BatchOutcomes
from penstock.execute.request import BatchRequest
from penstock.execute.source_files import SourceNote
from penstock.observe.report import BatchReport
from penstock.state.tables import Tables
from penstock.store.replay import Recovered
from penstock.store.stream import StreamState

# Batches whose outcomes are kept, in case one is sent again; and versions of calls.
_KEPT = 100


class MemoryStore:
    can_go_back = False
    damage: tuple[Finding, ...] = ()
    retain = _KEPT

    def __init__(self, engine: Engine) -> None:
        self._engine, self._program = engine, engine.program
        self._outcomes: dict[int, pa.Table] = {}
        self._versions: dict[int, int] = {}  # by batch id
        self._emitted: dict[str, pa.Table] = {}  # by the last batch
        self._called: dict[int, pa.Table] = {}  # the outcomes of versions of calls: who called has only the first row
        self.last_id: int | None = None
        self.stream = StreamState()
        self.version = self.commits = 0

    def recover(self) -> tuple[Tables, Recovered]:
        return self._engine.tables, Recovered(0, 0, 0.0)

    def refuse_foreign(self, id: int, source: str, offsets: str | None) -> None:
        pass

    def outcomes(self, id: int) -> pa.Table | None:
        if id in self._outcomes or self.last_id is None or id > self.last_id:
            return self._outcomes.get(id)
        raise StateError(
            f"batch {id} is not retained any more: app '{self._program.name}' is in memory, has run batches up to "
            f"{self.last_id}, and keeps the outcomes of the last {_KEPT}; ids must increase; open it with a "
            "path to keep more"
        )

    def version_of(self, id: int) -> int:
        return self._versions[id]

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
        return outcomes, stream, request.id, "cause" in notes or request.until is not None

    def commit(self, prepared: Any) -> None:
        outcomes, self.stream, id, called = prepared
        self.version, self.commits = self.version + 1, self.commits + 1
        self._emitted = outcomes.emitted
        if called:
            self._called[self.version] = outcomes.table
            self._called.pop(self.version - _KEPT, None)
        if id is not None:
            self._outcomes[id], self._versions[id], self.last_id = outcomes.table, self.version, id
            while len(self._outcomes) > _KEPT:
                oldest = next(iter(self._outcomes))
                del self._outcomes[oldest], self._versions[oldest]

    def report(self, report: BatchReport) -> None:
        pass

    def forget(self, prepared: Any) -> None:
        pass

    def load(self, table: TableDef, rows: pa.Table, at: int) -> None:
        self.commits += 1

    def snapshot_if_due(self, tables: Tables) -> None:
        pass

    def outcomes_of(self, version: int) -> pa.Table:
        if version in self._called:
            return self._called[version]
        raise self._refusal("outcomes")

    def emitted_of(self, event: str, version: int) -> pa.Table | None:
        if version != self.version:
            raise self._refusal("outputs of older versions")
        return self._emitted.get(event)

    def is_between(self, version: int) -> bool:
        return version in self._called

    def keep_from(self, id: int) -> None:
        pass

    @property
    def oldest_version(self) -> int:
        return max(self.version - _KEPT, 0) + 1

    def answered(self) -> Iterator[tuple[int, pa.Table, list[tuple[str, Any, int, int | None]]]]:
        return iter(())

    def tables_at(self, version: int) -> Tables:
        raise self._refusal("older versions")

    def history(self, table: TableDef, key: pa.Table) -> pa.Table:
        raise self._refusal("history")

    def close(self, tables: Tables | None) -> None:
        pass

    def _refusal(self, what: str) -> NotRetainedError:
        return NotRetainedError(
            f"app '{self._program.name}': a database in memory keeps no {what}; open it with a path"
        )
