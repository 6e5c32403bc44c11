"""The reference, standing where an engine does: over its records, with its windows, timers and clock.

What it runs from there on is told step by step: the event, who caused it, and which records it read and wrote.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.declare.model import AT, NUMBER, EventDef, Program, TableDef, timers_of
from penstock.engine import Engine
from penstock.execute.loading import records
from penstock.execute.reference import Reference
from penstock.execute.rounds import Emitted, Rounds
from penstock.execute.uncompiled import Transaction
from penstock.execute.values import lower
from penstock.execute.windows import Rows as WindowRows
from penstock.inspect.accesses import Access, Recorder
from penstock.inspect.accesses import Rows as TableRows
from penstock.state.ages import NEVER
from penstock.state.timers import waiting
from penstock.state.window import TIME


@dataclass(frozen=True, slots=True)
class Step:
    """An event, or several that one transaction takes, as its body ran."""

    event: EventDef
    values: list[dict[str, Any]]
    parents: list[int]  # the steps that emitted them; their own for those that arrived
    accesses: list[tuple[Access, dict[str, Any] | None]]  # and each record as it left it
    scans: list[str]


class _Rounds(Rounds):
    def __init__(self, program: Program, tables: dict[str, TableRows], recorder: Recorder) -> None:
        super().__init__(program, tables)  # type: ignore[arg-type]
        self._records, self._recorder = tables, recorder
        self.steps: list[Step] = []

    def _member(self, several: list[Emitted], transaction: Transaction) -> dict[str, Any]:
        self._recorder.take()
        try:
            return super()._member(several, transaction)
        finally:
            accesses, scans = self._recorder.take()
            told = [(one, self._records[one.table].plain(one.key)) for one in accesses]
            values, parents = [one.values for one in several], [one.step for one in several]
            self.steps.append(Step(several[0].event, values, parents, told, scans))


class Standing(Reference):
    def __init__(self, engine: Engine, version: int, clock: int | None) -> None:
        """Over the engine's tables as they are now, after this version; the clock is the highest ts that has run."""
        super().__init__(engine.program)
        self.version, self._recorder = version, Recorder()
        tables = {t.name: TableRows(t, engine.tables, self._recorder) for t in engine.program.tables}
        self._tables = tables  # type: ignore[assignment]
        self._own = _Rounds(engine.program, tables, self._recorder)
        self._rounds = self._own
        if clock is not None:
            self._clock = self._highest = clock
        self._recorder.on = False
        self._take_ages(engine)
        self._take_windows(engine)
        self._take_timers(engine)
        self._recorder.on = True

    def taken(self) -> list[Step]:
        """The steps since it was last asked."""
        steps, self._own.steps = self._own.steps, []
        return steps

    def _take_ages(self, engine: Engine) -> None:
        for name, ages in engine.tables.ages().items():
            definition = engine.program.table(name)
            rows = engine.tables.arrow_of(name)
            for (key, _), at in zip(records(definition, rows), ages.column("at").to_pylist(), strict=True):
                if at != NEVER:
                    self._own._written[name][key] = self._value(at)

    def _take_windows(self, engine: Engine) -> None:
        for window in engine.tables.windows.values():
            definition = window.plan.definition
            ends, rows = window.whole(engine.tables.strings)
            as_table = TableDef(definition.name, definition.columns)
            kept = self._own._windows.kept[definition.name]
            plain = rows.select([c.name for c in definition.columns])
            times = rows.column(TIME).to_pylist() if TIME in rows.column_names else [0] * rows.num_rows
            by_key: dict[Any, list[tuple[int, dict[str, Any]]]] = {}
            for (key, row), at in zip(records(as_table, plain), times, strict=True):
                whole = dict(zip((c.name for c in definition.keys), key, strict=True)) | row
                by_key.setdefault(key, []).append((at, whole))
            owners = [()] * ends.num_rows  # of a window without a key there is one
            if definition.keys:
                found = ends.select([c.name for c in definition.keys])
                owners = [key for key, _ in records(TableDef(definition.name, definition.keys), found)]
            heads, actives = ends.column("$head").to_pylist(), ends.column("$active").to_pylist()
            for key, head, active in zip(owners, heads, actives, strict=True):
                kept[key] = WindowRows(tuple(by_key.get(key, ())), max(active - head, 0))

    def _take_timers(self, engine: Engine) -> None:
        found: list[tuple[int, EventDef, dict[str, Any]]] = []
        for event in engine.program.events:
            name = timers_of(event.name)
            if name not in engine.tables.by_name:
                continue
            rows = engine.tables.arrow_of(name).sort_by([(AT, "ascending"), (NUMBER, "ascending")])
            told = waiting(engine.program, event, rows)
            for number, one in zip(rows.column(NUMBER).to_pylist(), told.to_pylist(), strict=True):
                found.append((number, event, one))
        for _, event, one in sorted(found, key=lambda timer: timer[0]):
            values = {f.name: one[f.name] for f in event.fields}
            self._timers.set(event, values, one["at"], one.get("id"))


def plain_row(definition: TableDef, row: dict[str, Any] | None) -> dict[str, Any] | None:
    """A record's columns beside its key as plain values."""
    return None if row is None else {c.name: lower(row[c.name]) for c in definition.values}


def plain_key(key: tuple[Any, ...]) -> list[Any]:
    return [lower(part) for part in key]
