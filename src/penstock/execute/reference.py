"""The reference: the user's own functions, one event after another, over plain dicts.

    state       {"Account": {("a",): {"balance": Dec}, ...}, ...}
    one round   an event and what it causes: body(event) -> convert what it returns -> checks; on an abort, put back
                what it touched (rounds.py)
    windows     lists of rows beside the tables (windows.py)
    one batch   what is due of it and of what was held back, sorted by (ts, has an id, id, arrival), each as above

This is what every other way of running a batch must equal, so it is written to be read and not to
be fast. It shares only the Arrow border (intake) and the outcomes' columns with the engine. What a
body touches while it runs is in uncompiled.py.

An abort is `Aborted` or ZeroDivisionError. Any other exception is a bug in the body: its own
transaction is undone and it goes to the caller of `run`.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.declare import objects
from penstock.declare.model import EventDef, Program, TableDef
from penstock.declare.types import DATETIME
from penstock.errors import InputError
from penstock.execute import intake
from penstock.execute.request import BatchRequest
from penstock.execute.rounds import Rounds
from penstock.execute.uncompiled import EPOCH, MICROSECOND, Key, Row
from penstock.execute.values import convert, lift, lower
from penstock.state.sql import read


@dataclass(frozen=True, slots=True)
class Arrival:
    """An event that has arrived."""

    event: EventDef
    values: dict[str, Any]
    place: tuple[Any, ...]  # ts, has an id, id, arrival: what events are ordered by

    @property
    def ts(self) -> int:
        return int(self.place[0])


_NEVER = float("-inf")  # before every ts


class Reference:
    """The same methods as an open database, in memory."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.version = 0
        self._tables: dict[str, dict[Key, Row]] = {t.name: {} for t in program.tables}
        self._rounds = Rounds(program, self._tables)
        self._emitted: list[tuple[str, dict[str, Any]]] = []  # by the last batch: an output and its row
        self._outcomes: dict[Any, pa.Table] = {}  # by batch id
        self._arrived = 0  # events so far
        self._highest: float = _NEVER  # ts that has arrived
        self._clock: float = _NEVER  # the highest ts that has run
        self._held: list[Arrival] = []

    def load(self, table: Any, rows: Any) -> None:
        """Insert rows, all or none; no transaction, no check, no version."""
        definition = self._definition(table)
        loaded: dict[Key, Row] = {}
        for plain in intake.rows(definition, rows).to_pylist():
            row = {c.name: convert(lift(plain[c.name]), c.type) for c in definition.columns}
            key = tuple(row.pop(c.name) for c in definition.keys)
            if key in self._tables[definition.name]:
                shown = ", ".join(repr(lower(k)) for k in key)
                raise InputError(f"table '{definition.name}': key {shown} is there already; load new keys only")
            loaded[key] = row
        self._tables[definition.name].update(loaded)

    def run(
        self, batch: Any, policy: Any = None, id: Any = None, *, watermark: int | None = None, flush: bool = False
    ) -> pa.Table:
        """Run one batch; its outcomes. A batch id that ran before changes nothing and gives its outcomes again."""
        BatchRequest(id=id, watermark=watermark, flush=flush).checked()
        if id is not None and id in self._outcomes:
            return self._outcomes[id]
        new = self._arrive(intake.events(self.program, batch))
        self.version += 1
        self._emitted = []
        late, due = self._due(new, watermark, flush)
        rows = [self._outcome(one) | {"step": 0, "status": "late"} for one in late]
        for one in due:
            rows += self._execute(one)
        out = _table(rows, self.program.outcomes())
        if id is not None:
            self._outcomes[id] = out
        return out

    def emitted(self, event: Any) -> pa.Table:
        """What the last batch emitted of an output."""
        output = intake.output(self.program, event)
        return _table([row for name, row in self._emitted if name == output.name], self.program.output(output))

    @property
    def held(self) -> int:
        """Events that a watermark holds back."""
        return len(self._held)

    def table(self, table: Any) -> pa.Table:
        """All records of a table."""
        definition = self._definition(table)
        names = [c.name for c in definition.keys]
        rows = [{**dict(zip(names, key, strict=True)), **row} for key, row in self._tables[definition.name].items()]
        arrays = [pa.array([lower(row[c.name]) for row in rows], c.type.arrow()) for c in definition.columns]
        return pa.Table.from_arrays(arrays, schema=definition.arrow())

    def sql(self, query: str) -> pa.Table:
        """A DuckDB query over the tables."""
        return read({t.name: self.table(t) for t in self.program.tables}, query)

    def close(self) -> None:
        """Nothing to give back; the engine has this method."""

    def __enter__(self) -> Reference:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _arrive(self, arrived: list[intake.EventBatch]) -> list[Arrival]:
        out = []
        for one in arrived:
            event = one.event
            for values, number in zip(one.table.to_pylist(), one.arrival.tolist(), strict=True):
                id_ = values[event.id] if event.id else 0
                place = _time(values[str(event.order)]), event.id is not None, id_, self._arrived + number
                out.append(Arrival(event, values, place))
        self._arrived += len(out)
        return out

    def _due(self, new: list[Arrival], watermark: int | None, flush: bool) -> tuple[list[Arrival], list[Arrival]]:
        """What of a batch is late, and what runs now of it and of what was held, each in order; the rest is held."""
        self._highest = max([self._highest, *(one.ts for one in new)])
        limit = self._highest if watermark is None or flush else self._highest - watermark
        frontier = _NEVER if watermark is None and not flush else self._clock
        late = [one for one in new if one.ts <= frontier]
        there = self._held + [one for one in new if one.ts > frontier]
        due = [one for one in there if one.ts <= limit]
        self._held = [one for one in there if one.ts > limit]
        return sorted(late, key=lambda one: one.place), sorted(due, key=lambda one: one.place)

    def _outcome(self, one: Arrival) -> dict[str, Any]:
        transaction = self.program.transaction_of(one.event)
        assert transaction is not None
        return {
            "transaction": transaction.name,
            "ts": one.values[str(one.event.order)],
            "id": one.values[one.event.id] if one.event.id else None,
            "version": self.version,
        }

    def _execute(self, one: Arrival) -> list[dict[str, Any]]:
        """Run one event and all that it causes; the rows of their outcomes."""
        outcome = self._outcome(one)
        self._clock = max(self._clock, one.ts)
        rows, outputs = self._rounds.run(one.event, one.values, self._now())
        self._emitted += [(out.event.name, {**outcome, **out.values, "step": out.step}) for out in outputs]
        return [outcome | row for row in rows]

    def _now(self) -> Any:
        """The clock as a value of ts; None before there is one."""
        if self._clock == _NEVER:
            return None
        is_time = self.program.order_type() == DATETIME
        return EPOCH + int(self._clock) * MICROSECOND if is_time else int(self._clock)

    def _definition(self, table: Any) -> TableDef:
        wanted = table.definition if isinstance(table, objects.Table) else table
        for t in self.program.tables:
            if t.name == wanted or t == wanted:
                return t
        raise InputError(f"app '{self.program.name}' has no table {table!r}")


def _table(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_arrays([pa.array([row.get(f.name) for row in rows], f.type) for f in schema], schema=schema)


def _time(ts: Any) -> int:
    """A place in time as the number that watermarks count in."""
    return (ts - EPOCH) // MICROSECOND if isinstance(ts, datetime.datetime) else int(ts)
