"""The reference: the user's own functions, one event after another, over plain dicts.

    state       {"Account": {("a",): {"balance": Dec}, ...}, ...}
    one round   an event and what it causes: body(event) -> convert what it returns -> checks; on an abort, put back
                what it touched (rounds.py)
    windows     lists of rows beside the tables (windows.py)
    one batch   what is due of it and of what was held back, sorted by (ts, has an id, id, arrival), each as above, and
                before each the timers that are due by then (timers.py); the members of an atomic batch at the place of
                their last one, and what is short of some behind all; no event whose id has run already (unique.py)
    one call    an event that runs now, after all that has run and before all that has not

This is what every other way of running a batch must equal, so it is written to be read and not to
be fast. It shares only the Arrow border (intake) and the outcomes' columns with the engine. What a
body touches while it runs is in uncompiled.py.

An abort is `Aborted` or ZeroDivisionError. Any other exception is a bug in the body: its own
transaction is undone and it goes to the caller of `run`.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.declare import objects
from penstock.declare.model import EventDef, Program, TableDef
from penstock.declare.types import DATETIME
from penstock.errors import InputError
from penstock.execute import bad_rows, intake, loading, row_by_row, succession
from penstock.execute.clock import first_ts
from penstock.execute.request import Admission, BatchRequest, KeptSteps, checked_steps, set_back
from penstock.execute.rounds import Rounds
from penstock.execute.timers import Timers
from penstock.execute.uncompiled import EPOCH, MICROSECOND, Clock, Key, Row
from penstock.execute.unique import Ids, Seen
from penstock.execute.values import lower
from penstock.plan import flow
from penstock.state.sql import read


@dataclass(frozen=True, slots=True)
class Arrival:
    """An event that has arrived."""

    event: EventDef
    values: dict[str, Any]
    place: tuple[Any, ...]  # ts, has an id, id, arrival: what events are ordered by, and no two have one

    @property
    def ts(self) -> float:
        return float(self.place[0]) if self.place[0] == _NEVER else int(self.place[0])


class _Turn(NamedTuple):
    """When what has arrived gets its outcomes."""

    at: tuple[bool, Any]  # behind all else; the place of an event
    is_duplicate: bool
    place: Any


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
        self._ids = Ids(program)

    def go_on(self, before: Reference, rename: Mapping[str, str] | None = None) -> None:
        """Take over what the reference of an older schema of this app holds, as a version of its own. rename: what
        "Account.amount" is called now. Columns, tables and windows that are not there any more are dropped."""
        clock = ("_outcomes", "_versions", "_called", "_answers", "_watermark", "_arrived", "_highest", "_clock")
        for name in clock:
            setattr(self, name, getattr(before, name))
        self._ids.go_on(before._ids, before._clock)
        self.version = before.version + 1
        self._versions[self.version] = _table([], self.program.outcomes())
        older = {table.name: table for table in before.program.tables}
        for table in self.program.tables:
            if table.name in older:
                rows = before._tables[table.name]
                self._tables[table.name].update(succession.records(table, older[table.name], rows, rename or {}))
        self._rounds.go_on(before._rounds)
        for one in before._held:
            event = self._event(one.event)
            self._held.append(Arrival(event, succession.fields(event, one.values), one.place))
        self._timers = before._timers.changed(
            lambda timer: (self._event(timer.event), succession.timer(self._event(timer.event), timer.values))
        )

    def _event(self, before: EventDef) -> EventDef:
        found = self.program.event(before.name)
        if found is None:
            raise InputError(f"app '{self.program.name}' has no event '{before.name}' any more, of which some wait")
        return found

    def load(self, table: Any, rows: Any, on_conflict: str = "fail", check: bool = True) -> None:
        """Put rows in, all or none; no transaction, no version."""
        definition = self._definition(table)
        way, there = loading.checked(definition, on_conflict, check), self._tables[definition.name]
        loaded: dict[Key, Row] = {}
        for key, row in loading.records(definition, intake.rows(definition, rows)):
            if key in there and way == "fail":
                loading.refuse_there(definition, tuple(map(lower, key)))
            if key not in there or way == "replace":
                loaded[key] = row
        if check:
            loading.refuse_broken(definition, loaded.items())
        there.update(loaded)
        self._rounds.load(definition.name, loaded, self._now())

    def run(
        self,
        batch: Any,
        policy: Any = None,
        id: Any = None,
        *,
        watermark: int | None = None,
        flush: bool = False,
        _admission: Admission | None = None,
    ) -> pa.Table:
        """Run one batch; its outcomes. A batch id that ran before changes nothing and gives its outcomes again."""
        BatchRequest(id=id, watermark=watermark, flush=flush).checked()
        if id is not None and id in self._outcomes:
            return self._outcomes[id]
        rejected: list[row_by_row.Rejected] = []
        if _admission is not None and _admission.on_bad == "reject":
            highest = None if self._highest == _NEVER else int(self._highest)
            batch, rejected = row_by_row.admit(self.program, batch, _admission, highest)
        new = self._arrive(intake.events(self.program, batch))
        self._watermark = self._watermark if flush else watermark
        rejected = self._give_up() + rejected
        out = self._run(*self._due(new, watermark, flush), rejected=rejected)
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
                before, self._clock = self._clock, max(self._clock, one.ts)  # its own ts is seen, and not kept
                rows, _ = self._round(definition, [values], [self._outcome(one)], self._clock, flow.MOST_EMITS)
                self._clock = before
                return self._told(rows[0])
            self._arrived += 1
            self._answers[number] = {}
            if has_ts and self._watermark is not None:
                rejected = self._give_up()
                self._run(*self._due([one], self._watermark, flush=False), rejected=rejected)
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
        rejected = self._give_up()
        due = self._whole(sorted([one for one in self._held if one.ts <= to], key=lambda one: one.place), to + 1)
        self._held, self._highest = _without(self._held, due), max(self._highest, to)
        return self._run([], due, to, rejected)

    def set_back(self, t: Any) -> None:
        """Set the high mark, and the clock with it, back to a time; a version of its own."""
        to = intake.moment(self.program, t)
        self._ids.set_back(self._clock, min(self._clock, to))
        self._highest, self._clock = min(self._highest, to), min(self._clock, to)
        self.version += 1
        self._versions[self.version] = _table([], self.program.outcomes())

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
        """Events that wait: for a watermark, or for the rest of their atomic batch."""
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

    def _run(
        self,
        late: list[Arrival],
        due: list[Arrival],
        until: float = _NEVER,
        rejected: Iterable[row_by_row.Rejected] = (),
    ) -> pa.Table:
        """The next version. until: what the clock is set to behind it. rejected: what of its batch is no event."""
        self.version += 1
        self._emitted = []
        ran = list[tuple[_Turn, list[dict[str, Any]]]]()
        for one in late:
            rows = [self._outcome(one) | {"step": 0, "status": "late"}]
            ran.append((_Turn((False, one.place), False, one.place), rows))
            self._answer(one, rows[0])
        duplicates = self._ids.run(due, self._clock, self.version)
        for turn, several in self._turns(due, duplicates):
            before = self._run_timers(max(self._clock, *(one.ts for one in several)))
            outcomes = [self._outcome(one) for one in several]
            if turn.is_duplicate:
                first = duplicates[several[0].place]
                rows = [outcomes[0] | {"step": 0, "status": "duplicate", "version": first.version}]
            else:
                values = [one.values for one in several]
                rows, _ = self._round(several[0].event, values, outcomes, self._clock, flow.MOST_EMITS)
            self._answer(several[-1], rows[0])
            ran.append((turn, before + rows))
        rows = [row for _, some in sorted(ran, key=lambda one: one[0]) for row in some]
        rows += self._run_timers(max(self._clock, until))
        if self._steps == "roots":
            arrive = {t.name for t in self.program.transactions if t.event.order is not None}
            rows = [r for r in rows if r["step"] == 0 or r["status"] != "committed" or r["transaction"] in arrive]
        rows += [{"status": "rejected", "step": 0, "version": self.version, **one} for one in rejected]
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
        """What of a batch is late, and what runs now of it and of what was held, in order; the rest is held."""
        self._highest = max([self._highest, *(one.ts for one in new)])
        limit = self._highest if watermark is None or flush else self._highest - watermark
        frontier = _NEVER if watermark is None and not flush else self._clock
        late = [one for one in new if one.ts <= frontier]
        there = self._held + [one for one in new if one.ts > frontier]
        due = sorted([one for one in there if one.ts <= limit], key=lambda one: one.place)
        due = due if flush else self._whole(due, self._highest)
        self._held = _without(there, due)
        return late, due

    def _give_up(self) -> list[row_by_row.Rejected]:
        """What is held beyond the high mark, since that was set back, is rejected; in order of arrival."""
        beyond = sorted([one for one in self._held if one.ts > self._highest], key=lambda one: one.place[3])
        self._held, rejected = _without(self._held, beyond), []
        for one in beyond:
            assert one.event.order is not None
            type_ = one.event.type_of(one.event.order)
            shown = bad_rows.shown(pa.array([one.values[one.event.order]], type_.arrow()), 0, type_)
            row = self._outcome(one) | {"status": "rejected", "step": 0, "reason": set_back(one.event, shown)}
            rejected.append(row | {"version": self.version + 1})
            self._answer(one, rejected[-1])
        return rejected

    def _whole(self, due: list[Arrival], highest: float) -> list[Arrival]:
        """Without what waits for other members of an atomic batch, or behind what does. highest: of this ts more may
        come. A duplicate is no member; it waits if the first one does."""
        sizes = self.program.batches
        duplicates = self._ids.duplicates(due, self._clock)
        for place, one in enumerate(due):
            if sizes.get(one.event.name) == "ts" and one.ts == highest and one.place not in duplicates:
                due = due[:place]  # more of this ts may come, and all from here on has it
                break
        for name, size in sizes.items():
            if isinstance(size, int):
                members = [one for one in due if one.event.name == name and one.place not in duplicates]
                due = _without(due, members[len(members) // size * size :])
        firsts = {place: first.place for place, first in duplicates.items() if first.version is None}
        there = {one.place for one in due}
        return [one for one in due if firsts.get(one.place, one.place) in there]

    def _batches(self, due: list[Arrival]) -> list[list[Arrival]]:
        """Each transaction's events, in order: one, or the members of an atomic batch."""
        sizes = self.program.batches
        out = [[one] for one in due if one.event.name not in sizes]
        for name, size in sizes.items():
            members = [one for one in due if one.event.name == name]
            if isinstance(size, int):
                out += [members[i : i + size] for i in range(0, len(members), size)]
            else:
                out += [[one for one in members if one.ts == ts] for ts in sorted({one.ts for one in members})]
        return out

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

    def _turns(self, due: list[Arrival], duplicates: Mapping[Any, Seen]) -> list[tuple[_Turn, list[Arrival]]]:
        """When transactions run, in that order: at the place of their last event; what is short of members, in a flush,
        behind all. A duplicate stands at its own place, or behind the first one, whose batch may run later."""
        out, runs_at = list[tuple[_Turn, list[Arrival]]](), dict[Any, tuple[bool, Any]]()
        for several in self._batches([one for one in due if one.place not in duplicates]):
            size = self.program.batches.get(several[0].event.name)
            at = isinstance(size, int) and len(several) < size, several[-1].place
            runs_at |= {one.place: at for one in several}
            out.append((_Turn(at, False, several[-1].place), several))
        for one in (one for one in due if one.place in duplicates):
            own = False, one.place
            at = max(own, runs_at.get(duplicates[one.place].place, own))
            out.append((_Turn(at, True, one.place), [one]))
        return sorted(out, key=lambda one: one[0])

    def _run_timers(self, to: float) -> list[dict[str, Any]]:
        """Move the clock to this time, and run the timers on the way; the rows of their outcomes."""
        rows, room = list[dict[str, Any]](), flow.MOST_EMITS
        while (timer := self._timers.take(self._value(to))) is not None:
            self._clock = _time(timer.at)
            outcome = {"ts": timer.at, "id": timer.id, "version": self.version}
            more, on_the_way = self._round(timer.event, [timer.values], [outcome], to, room)
            rows, room = rows + more, room - on_the_way
        self._clock = to
        self._rounds.expire(self._now())
        return rows

    def _round(
        self, event: EventDef, several: list[dict[str, Any]], outcomes: list[dict[str, Any]], until: float, room: int
    ) -> tuple[list[dict[str, Any]], int]:
        """Run a transaction's events and all that they cause at this clock; the rows of their outcomes, and how many
        timers were set that run up to `until`. What is caused has the last one's ts and id. room: how many timers these
        may be."""
        clock, last = Clock(self._value(self._clock), self._value(until), room), outcomes[-1]
        done = self._rounds.run(event, several, clock)
        for one in done.timers:
            self._timers.set(one.event, one.values, one.at, last["id"])
        self._emitted += [(out.event.name, {**last, **out.values, "step": out.step}) for out in done.outputs]
        outcomes = outcomes + [last] * (len(done.rows) - len(outcomes))
        rows = [outcome | row for outcome, row in zip(outcomes, done.rows, strict=True)]
        return rows, sum(one.at <= clock.until for one in done.timers)

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


def _without(some: list[Arrival], others: list[Arrival]) -> list[Arrival]:
    places = {one.place for one in others}
    return [one for one in some if one.place not in places]


def _time(ts: Any) -> int:
    """A place in time as the number that watermarks count in."""
    return (ts - EPOCH) // MICROSECOND if isinstance(ts, datetime.datetime) else int(ts)
