"""The reference: the user's own functions, one event after another, over plain dicts.

    state       {"Account": {("a",): {"balance": Dec}, ...}, ...}
    one event   body(event) -> convert what it returns -> checks; on an abort, put back what it touched
    one batch   the events sorted by (ts, has an id, id, arrival), each as above

This is what every other way of running a batch must equal, so it is written to be read and not to
be fast. It shares only the Arrow border (intake) and the outcomes' columns with the engine. What a
body touches while it runs is in uncompiled.py.

An abort is `Aborted` or ZeroDivisionError. Any other exception is a bug in the body: its own
transaction is undone and it goes to the caller of `run`.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.declare import objects
from penstock.declare.model import EventDef, Program, TableDef
from penstock.errors import Aborted, InputError
from penstock.execute import intake
from penstock.execute.uncompiled import EventView, Key, Row, Transaction, uncompiled
from penstock.execute.values import convert, lift, lower


class Reference:
    """The same methods as an open database, in memory."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.version = 0
        self._tables: dict[str, dict[Key, Row]] = {t.name: {} for t in program.tables}
        self._bodies = {t.event.name: uncompiled(t.function) for t in program.transactions}
        self._checks = {t.name: [(c.text, uncompiled(c.function)) for c in t.checks] for t in program.tables}
        self._returns = dict(program.returns)
        self._outcomes: dict[Any, pa.Table] = {}  # by batch id

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

    def run(self, batch: Any, policy: Any = None, id: Any = None) -> pa.Table:
        """Run one batch; its outcomes. A batch id that ran before changes nothing and gives its outcomes again."""
        if id is not None and id in self._outcomes:
            return self._outcomes[id]
        arrived = intake.events(self.program, batch)
        self.version += 1
        rows = [self._execute(event, values) for event, values in _in_order(arrived)]
        schema = self.program.outcomes()
        arrays = [pa.array([row.get(f.name) for row in rows], f.type) for f in schema]
        out = pa.Table.from_arrays(arrays, schema=schema)
        if id is not None:
            self._outcomes[id] = out
        return out

    def table(self, table: Any) -> pa.Table:
        """All records of a table."""
        definition = self._definition(table)
        names = [c.name for c in definition.keys]
        rows = [{**dict(zip(names, key, strict=True)), **row} for key, row in self._tables[definition.name].items()]
        arrays = [pa.array([lower(row[c.name]) for row in rows], c.type.arrow()) for c in definition.columns]
        return pa.Table.from_arrays(arrays, schema=definition.arrow())

    def sql(self, query: str) -> pa.Table:
        """A DuckDB query over the tables."""
        import duckdb

        with duckdb.connect(":memory:") as connection:
            for t in self.program.tables:
                connection.register(t.name, self.table(t))
            return connection.sql(query).to_arrow_table()

    def close(self) -> None:
        """Nothing to give back; the engine has this method."""

    def __enter__(self) -> Reference:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _execute(self, event: EventDef, values: dict[str, Any]) -> dict[str, Any]:
        """Run one event's transaction; its outcome row."""
        transaction = self.program.transaction_of(event)
        assert transaction is not None
        outcome = {
            "transaction": transaction.name,
            "ts": values[event.order],
            "id": values[event.id] if event.id else None,
            "version": self.version,
        }
        accesses = Transaction(self._tables)
        token = objects.current.set(accesses)
        done = False
        try:
            returned = self._converted(self._bodies[event.name](EventView(event, values)))
            self._check(accesses)
            done = True
            return {**outcome, "status": "committed", **returned}
        except Aborted as abort:
            return {**outcome, "status": "aborted", "reason": abort.reason}
        except ZeroDivisionError:
            return {**outcome, "status": "aborted", "reason": "division by zero"}
        finally:
            objects.current.reset(token)
            if not done:
                accesses.undo()

    def _converted(self, returned: dict[str, Any] | None) -> dict[str, Any]:
        return {
            name: None if value is None else lower(convert(value, self._returns[name]))
            for name, value in (returned or {}).items()
        }

    def _check(self, accesses: Transaction) -> None:
        for name, key in accesses.written:
            if key not in self._tables[name]:
                continue
            for text, check in self._checks[name]:
                if not check(accesses.existing(self.program.table(name), key)):
                    raise Aborted(text)

    def _definition(self, table: Any) -> TableDef:
        wanted = table.definition if isinstance(table, objects.Table) else table
        for t in self.program.tables:
            if t.name == wanted or t == wanted:
                return t
        raise InputError(f"app '{self.program.name}' has no table {table!r}")


def _in_order(arrived: list[intake.Arrived]) -> list[tuple[EventDef, dict[str, Any]]]:
    def place(item: tuple[EventDef, dict[str, Any], int]) -> tuple[Any, ...]:
        event, values, arrival = item
        return values[event.order], event.id is not None, values[event.id] if event.id else 0, arrival

    everything = [
        (a.event, values, arrival)
        for a in arrived
        for values, arrival in zip(a.table.to_pylist(), a.arrival.tolist(), strict=True)
    ]
    return [(event, values) for event, values, _ in sorted(everything, key=place)]
