"""What a database asks of whatever keeps its batches: a state directory (durable.py) or nothing at all (memory.py)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import pyarrow as pa

from penstock.check.findings import Finding
from penstock.declare.model import TableDef
from penstock.execute.intake import EventBatch
from penstock.execute.outcomes import BatchOutcomes
from penstock.execute.request import BatchRequest
from penstock.execute.source_files import SourceNote
from penstock.observe.report import BatchReport
from penstock.state.tables import Tables
from penstock.store.replay import Recovered
from penstock.store.stream import StreamState


class Store(Protocol):
    stream: StreamState
    retain: int  # how many versions are sure to be readable

    @property
    def version(self) -> int:
        """The last one that has happened."""

    @property
    def commits(self) -> int:
        """How many batches and loads have happened."""

    @property
    def last_id(self) -> int | None:
        """The newest batch id, or None before the first."""

    @property
    def can_go_back(self) -> bool:
        """Whether `recover` may be called at any time, and gives the last version quickly."""

    @property
    def damage(self) -> tuple[Finding, ...]:
        """What a scrub has found so far."""

    def recover(self) -> tuple[Tables, Recovered]:
        """The tables as of the last version."""

    def refuse_foreign(self, id: int, source: str, offsets: str | None) -> None:
        """Raises where a stream's batch cannot be the next one here, nor the last one again."""

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
        """A batch that has run, written down; it is committed, or forgotten, before anything else is written. notes:
        "cause": of a version that calls made. files: that all its events were read from, by event; None where they were
        not. calls: those that it answers (call_answers.py)."""

    def commit(self, prepared: Any) -> None:
        """Now it has happened."""

    def report(self, report: BatchReport) -> None:
        """What the batch that has just happened was, for those who look on."""

    def forget(self, prepared: Any) -> None:
        """It never happened."""

    def load(self, table: TableDef, rows: pa.Table, at: int) -> None:
        """at: the clock, as which they were written; NEVER before there is one."""

    def snapshot_if_due(self, tables: Tables) -> None: ...

    def outcomes(self, id: int) -> pa.Table | None:
        """Of the batch with this id; None where it has not happened."""

    def version_of(self, id: int) -> int:
        """What the batch with this id made; it is one whose outcomes are to be had."""

    def outcomes_of(self, version: int) -> pa.Table: ...

    def emitted_of(self, event: str, version: int) -> pa.Table | None:
        """What a version emitted of an output; None where that is nothing."""

    def is_between(self, version: int) -> bool:
        """Whether calls made this version, or the clock set by hand."""

    def keep_from(self, id: int) -> None:
        """Neither the batch with this id, nor what comes after it, is pruned."""

    @property
    def oldest_version(self) -> int:
        """The oldest one that is retained; the next one, where there is none."""

    def answered(self) -> Iterator[tuple[int, pa.Table, list[tuple[str, Any, int, int | None]]]]:
        """The retained versions that answered calls, oldest first: version, outcomes, and of each call its event, id,
        row of the outcomes, and what stands for its fields."""

    def tables_at(self, version: int) -> Tables:
        """All tables as of an older version."""

    def history(self, table: TableDef, key: pa.Table) -> pa.Table: ...

    def close(self, tables: Tables | None) -> None:
        """tables: as they are, or None where they cannot be trusted."""
