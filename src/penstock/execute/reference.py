"""The reference: the user's own functions, one event after another, over plain dicts.

    state       {"Account": {("a",): {"balance": Dec}, ...}, ...}
    one round   an event and what it causes: body(event) -> convert what it returns -> checks; on an abort, put back
                what it touched (rounds.py)
    windows     lists of rows beside the tables (windows.py)
    one batch   what is due of it and of what was held back, sorted by (ts, has an id, id, arrival), each as above
    one call    an event that runs now, after all that has run and before all that has not

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
from penstock.execute.clock import first_ts
from penstock.execute.request import BatchRequest, KeptSteps, checked_steps
from penstock.execute.rounds import Rounds
from penstock.execute.timers import Timers
from penstock.execute.uncompiled import EPOCH, MICROSECOND, Clock, Key, Row
from penstock.execute.values import convert, lift, lower
from penstock.plan import flow
from penstock.state.sql import read


@dataclass(frozen=True, slots=True)
class Arrival:
    """An event that has arrived."""

    event: EventDef
    values: dict[str, Any]
    place: tuple[Any, ...]  # ts, has an id, id, arrival: what events are ordered by

    @property
    def ts(self) -> float:
        return float(self.place[0]) if self.place[0] == _NEVER else int(self.place[0])


_NEVER = float("-inf")  # before every ts


class Reference:
    """The same methods as an open database, in memory."""

    def __init__(self, program: Program, steps: KeptSteps = "all") -> None:
        self.program, self._steps = program, checked_steps(program, steps)
        self.version = 0
        self._tables: dict[str, dict[Key, Row]] = {t.name: {} for t in program.tables}
        self._rounds = Rounds(program, self._tables)
        self._emitted: list[tuple[str, dict[str, Any]]] = []  # by the last batch: an output and its row
        self._outcomes: dict[Any, pa.Table] = {}  # by batch id
        self._versions: dict[int, pa.Table] = {}  # the outcomes of each
        self._called: dict[Any, int] = {}  # what has been called: an event's name and id -> which arrival that is
        self._answers: dict[int, dict[str, Any]] = {}  # the outcomes of events that were called, by arrival
        self._watermark: int | None = None  # of the last batch
        self._arrived = 0  # events so far
        self._highest: float = _NEVER  # ts that has arrived
        self._clock: float = _NEVER  # the highest ts that has run
        self._held: list[Arrival] = []
        self._timers = Timers()

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
        self._rounds.load(definition.name, loaded, self._now())

    def run(
        self, batch: Any, policy: Any = None, id: Any = None, *, watermark: int | None = None, flush: bool = False
    ) -> pa.Table:
        """Run one batch; its outcomes. A batch id that ran before changes nothing and gives its outcomes again."""
        BatchRequest(id=id, watermark=watermark, flush=flush).checked()
        if id is not None and id in self._outcomes:
            return self._outcomes[id]
        new = self._arrive(intake.events(self.program, batch))
        self._watermark = self._watermark if flush else watermark
        out = self._run(*self._due(new, watermark, flush))
        if id is not None:
            self._outcomes[id] = out
        return out

    def call(self, event: Any) -> dict[str, Any] | None:
        """Run one event now, as a version of its own; its outcome. One that only reads makes no version; one with a ts
        of its own waits where there is a watermark, and is None until then. An id that was called before changes
        nothing and gives its outcome again."""
        taken = intake.called(self.program, event)
        definition, values = taken.event, taken.table.to_pylist()[0]
        has_ts = definition.order is not None and values[definition.order] is not None
        reads = definition.name in self.program.reading and not has_ts
        key = None if definition.id is None or reads else (definition.name, values[definition.id])
        if key is None or key not in self._called:
            if definition.order is not None and not has_ts:
                values[definition.order] = self._first() if self._clock == _NEVER else self._now()
            if key is not None:
                self._called[key] = self._arrived
            number, one = self._arrived, self._arrival(definition, values, self._arrived)
            if reads:
                rows, _ = self._round(definition, values, self._outcome(one), self._clock, flow.MOST_EMITS)
                return self._told(rows[0])
            self._arrived += 1
            self._answers[number] = {}
            if has_ts and self._watermark is not None:
                self._run(*self._due([one], self._watermark, flush=False))
            else:
                self._highest = max(self._highest, one.ts)
                self._run([], [one])
        return self._answers[number if key is None else self._called[key]] or None

    def outcomes(self, version: int) -> pa.Table:
        """The outcomes of a version."""
        return self._versions[version]

    def advance(self, t: Any) -> pa.Table:
        """Set the clock: what is held and what waits up to then runs, as a version of its own; its outcomes."""
        to = intake.moment(self.program, t)
        if to <= self._clock:
            return _table([], self.program.outcomes())
        due, self._held = [o for o in self._held if o.ts <= to], [o for o in self._held if o.ts > to]
        self._highest = max(self._highest, to)
        return self._run([], sorted(due, key=lambda one: one.place), to)

    def pending(self, event: Any) -> pa.Table:
        """The timers of an event that have not run, in the order in which they will."""
        definition = intake.timed(self.program, event)
        rows = [{**timer.values, "at": timer.at, "id": timer.id} for timer in self._timers.of(definition)]
        return _table(rows, self.program.pending(definition))

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
                out.append(self._arrival(event, values, self._arrived + number))
        self._arrived += len(out)
        return out

    def _arrival(self, event: EventDef, values: dict[str, Any], number: int) -> Arrival:
        ts = self._clock if event.order is None else _time(values[event.order])
        return Arrival(event, values, (ts, event.id is not None, values[event.id] if event.id else 0, number))

    def _run(self, late: list[Arrival], due: list[Arrival], until: float = _NEVER) -> pa.Table:
        """The next version. until: what the clock is set to behind it."""
        self.version += 1
        self._emitted = []
        rows = []
        for one in late:
            rows.append(self._outcome(one) | {"step": 0, "status": "late"})
            self._answer(one, rows[-1])
        for one in due:
            rows += self._run_timers(max(self._clock, one.ts))
            ran, _ = self._round(one.event, one.values, self._outcome(one), self._clock, flow.MOST_EMITS)
            self._answer(one, ran[0])
            rows += ran
        rows += self._run_timers(max(self._clock, until))
        if self._steps == "roots":
            rows = [row for row in rows if row["step"] == 0 or row["status"] != "committed"]
        self._versions[self.version] = _table(rows, self.program.outcomes())
        return self._versions[self.version]

    def _answer(self, one: Arrival, row: dict[str, Any]) -> None:
        if one.place[3] in self._answers:
            self._answers[one.place[3]] = self._told(row)

    def _told(self, row: dict[str, Any]) -> dict[str, Any]:
        """Every column of an outcome."""
        told: dict[str, Any] = _table([row], self.program.outcomes()).to_pylist()[0]
        return told

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
            "ts": self._now() if one.event.order is None else one.values[one.event.order],
            "id": one.values[one.event.id] if one.event.id else None,
            "version": self.version,
        }

    def _first(self) -> Any:
        """What a called event gets that leaves its ts to the clock, before there is a clock."""
        order = self.program.order_type()
        assert order is not None
        return EPOCH + first_ts(order) * MICROSECOND if order.kind == "datetime" else first_ts(order)

    def _run_timers(self, to: float) -> list[dict[str, Any]]:
        """Move the clock to this time, and run the timers on the way; the rows of their outcomes."""
        rows, room = list[dict[str, Any]](), flow.MOST_EMITS
        while (timer := self._timers.take(self._value(to))) is not None:
            self._clock = _time(timer.at)
            outcome = {"ts": timer.at, "id": timer.id, "version": self.version}
            more, on_the_way = self._round(timer.event, timer.values, outcome, to, room)
            rows, room = rows + more, room - on_the_way
        self._clock = to
        self._rounds.expire(self._now())
        return rows

    def _round(
        self, event: EventDef, values: dict[str, Any], outcome: dict[str, Any], until: float, room: int
    ) -> tuple[list[dict[str, Any]], int]:
        """Run an event and all that it causes at this clock; the rows of their outcomes, and how many timers it set
        that run up to `until`. room: how many these may be."""
        clock = Clock(self._value(self._clock), self._value(until), room)
        done = self._rounds.run(event, values, clock)
        for one in done.timers:
            self._timers.set(one.event, one.values, one.at, outcome["id"])
        self._emitted += [(out.event.name, {**outcome, **out.values, "step": out.step}) for out in done.outputs]
        return [outcome | row for row in done.rows], sum(one.at <= clock.until for one in done.timers)

    def _now(self) -> Any:
        return self._value(self._clock)

    def _value(self, time: float) -> Any:
        """A place in time as a value of ts; None before there is a clock."""
        if time == _NEVER:
            return None
        is_time = self.program.order_type() == DATETIME
        return EPOCH + int(time) * MICROSECOND if is_time else int(time)

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
