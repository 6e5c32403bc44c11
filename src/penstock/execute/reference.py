"""The reference: the user's own functions, one event after another, over plain dicts.

    state       {"Account": {("a",): {"balance": Dec}, ...}, ...}
    one round   an event and what it causes: body(event) -> convert what it returns -> checks; on an abort, put back
                what it touched (rounds.py)
    one batch   what is due of it and of what was held back, sorted by (ts, has an id, id, arrival), each as above; the
                members of an atomic batch at the place of their last one, and what is short of some behind all

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
from penstock.errors import InputError
from penstock.execute import intake
from penstock.execute.request import BatchRequest
from penstock.execute.rounds import Rounds
from penstock.execute.uncompiled import Key, Row
from penstock.execute.values import convert, lift, lower
from penstock.state.sql import read


@dataclass(frozen=True, slots=True)
class Arrival:
    """An event that has arrived."""

    event: EventDef
    values: dict[str, Any]
    place: tuple[Any, ...]  # ts, has an id, id, arrival: what events are ordered by, and no two have one

    @property
    def ts(self) -> int:
        return int(self.place[0])


_EPOCH, _MICROSECOND = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC), datetime.timedelta(microseconds=1)
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
        self._frontier: float = _NEVER  # the highest ts that has run
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
        ran = [((False, one.place), [self._outcome(one) | {"step": 0, "status": "late"}]) for one in late]
        for several in sorted(self._batches(due), key=self._turn):
            ran.append((self._turn(several), self._execute(several)))
        rows = [row for _, some in sorted(ran, key=lambda one: one[0]) for row in some]
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
                id_ = values[event.id] if event.id else 0
                place = _time(values[str(event.order)]), event.id is not None, id_, self._arrived + number
                out.append(Arrival(event, values, place))
        self._arrived += len(out)
        return out

    def _due(self, new: list[Arrival], watermark: int | None, flush: bool) -> tuple[list[Arrival], list[Arrival]]:
        """What of a batch is late, and what runs now of it and of what was held, in order; the rest is held."""
        self._highest = max([self._highest, *(one.ts for one in new)])
        limit = self._highest if watermark is None or flush else self._highest - watermark
        frontier = _NEVER if watermark is None and not flush else self._frontier
        late = [one for one in new if one.ts <= frontier]
        there = self._held + [one for one in new if one.ts > frontier]
        due = sorted([one for one in there if one.ts <= limit], key=lambda one: one.place)
        due = due if flush else self._whole(due)
        self._held = _without(there, due)
        self._frontier = max([self._frontier, *(one.ts for one in due)])
        return late, due

    def _whole(self, due: list[Arrival]) -> list[Arrival]:
        """Without what waits for other members of an atomic batch, or behind what does."""
        sizes = self.program.batches
        for place, one in enumerate(due):
            if sizes.get(one.event.name) == "ts" and one.ts == self._highest:
                due = due[:place]  # more of this ts may come, and all from here on has it
                break
        for name, size in sizes.items():
            if isinstance(size, int):
                members = [one for one in due if one.event.name == name]
                due = _without(due, members[len(members) // size * size :])
        return due

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
            "ts": one.values[str(one.event.order)],
            "id": one.values[one.event.id] if one.event.id else None,
            "version": self.version,
        }

    def _turn(self, several: list[Arrival]) -> tuple[bool, tuple[Any, ...]]:
        """When a transaction runs: at the place of its last event; what is short of members, in a flush, behind all."""
        size = self.program.batches.get(several[0].event.name)
        return isinstance(size, int) and len(several) < size, several[-1].place

    def _execute(self, several: list[Arrival]) -> list[dict[str, Any]]:
        """Run a transaction's events and all that they cause; the rows of their outcomes. What is caused has the last
        one's ts and id."""
        rows, outputs = self._rounds.run(several[0].event, [one.values for one in several])
        outcomes = [self._outcome(one) for one in several]
        last = outcomes[-1]
        self._emitted += [(out.event.name, {**last, **out.values, "step": out.step}) for out in outputs]
        outcomes += [last] * (len(rows) - len(outcomes))
        return [outcome | row for outcome, row in zip(outcomes, rows, strict=True)]

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
    return (ts - _EPOCH) // _MICROSECOND if isinstance(ts, datetime.datetime) else int(ts)
