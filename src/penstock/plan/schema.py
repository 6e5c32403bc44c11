"""Schema: what a state directory remembers of the app that writes it.

    tables         {"Account": {"id": "str key", "balance": "decimal(18, 2)"}}
    windows        {"Spend": {"columns": {…}, "rows": "100"}}                     left out where there are none
    defaults       {"Account": {"balance": "Decimal('0.00')"}}
    ttl            {"Account": "30 days, 0:00:00"}
    checks         {"Account": {"solvent": ["insufficient funds", digest]}}
    events         {"Transfer": {"ts": "int order", "id": "str id", "src": "str"}}
    timed          ["Expire"]                                                     events that are emitted with at=
    transactions   {"transfer": digest}
    unique         {"Transfer": 86400000000}                      within which an id runs once, as ts counts
    members        {"table 'Order'": {"status": ["open", "paid"]}}   of columns and fields that are of an Enum

The first one is in penstock.json, and each later one in the commit that made it. The tables say how state is to be
read; the rest says what has changed. A digest is of what the compiler makes of a body: layout and comments do not
count. An older Penstock noted tables and windows only: what it did not note is taken as it is today.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.declare.model import Column, EventDef, Field, Program, TableDef, WindowDef
from penstock.errors import StateError
from penstock.plan.ir import Op, Plan

TABLES, WINDOWS, DEFAULTS, TTL, CHECKS = "tables", "windows", "defaults", "ttl", "checks"
EVENTS, TIMED, TRANSACTIONS, UNIQUE, MEMBERS = "events", "timed", "transactions", "unique", "members"
_PARTS = (TABLES, WINDOWS, DEFAULTS, TTL, CHECKS, EVENTS, TIMED, TRANSACTIONS, UNIQUE, MEMBERS)


@dataclass(frozen=True, slots=True)
class Schema:
    content: dict[str, Any]  # as JSON has it

    @classmethod
    def of(cls, plan: Plan) -> Schema:
        program = plan.program
        windows = {w.name: _window(w) for w in program.windows}
        checks: dict[str, dict[str, Any]] = {}
        for check in plan.checks:
            checks.setdefault(check.table, {})[check.block.name] = [check.text, _digest(check.block.ops)]
        return cls(
            {
                TABLES: {t.name: _columns(t.columns) for t in program.tables},
                **({WINDOWS: windows} if windows else {}),
                DEFAULTS: {
                    t.name: {c.name: repr(c.default) for c in t.columns if not c.required} for t in program.tables
                },
                TTL: {t.name: str(t.ttl) for t in program.tables if t.ttl is not None},
                CHECKS: checks,
                EVENTS: {e.name: _fields(e) for e in program.events},
                TIMED: list(program.flow.timed) if program.flow is not None else [],
                TRANSACTIONS: {
                    t.name: _digest(
                        t.block.ops, f"{t.event} {d.nested} {d.several} {d.batch}", *_udfs(plan, t.block.walk())
                    )
                    for t, d in zip(plan.transactions, program.transactions, strict=True)
                },
                **({UNIQUE: unique} if (unique := {e.name: e.span for e in program.unique}) else {}),
                **({MEMBERS: members} if (members := _members(program)) else {}),
            }
        )

    @classmethod
    def read(cls, content: dict[str, Any]) -> Schema:
        """Of a header, or of penstock.json, which says more."""
        return cls({name: content[name] for name in _PARTS if name in content})

    @property
    def tables(self) -> dict[str, dict[str, str]]:
        """Table -> column -> its type, and " key"."""
        found: dict[str, dict[str, str]] = self.content[TABLES]
        return found

    @property
    def windows(self) -> dict[str, Any]:
        found: dict[str, Any] = self.content.get(WINDOWS, {})
        return found

    def noted(self, part: str) -> Any:
        """A part of it; None where an older Penstock did not note it."""
        return self.content.get(part)

    @property
    def ttl(self) -> dict[str, str]:
        """Table -> its ttl. That nothing is noted says that there was none: so with `unique` and `members`."""
        return self.content.get(TTL) or {}

    @property
    def unique(self) -> dict[str, int]:
        """Event -> the span within which an id of it runs once."""
        return self.content.get(UNIQUE) or {}

    @property
    def members(self) -> dict[str, dict[str, list[Any]]]:
        """What has columns, or fields -> which of them are of an Enum, and the values of its members."""
        return self.content.get(MEMBERS) or {}

    def role(self, role: str) -> str | None:
        """The type of ts ("order"), or of ids ("id")."""
        fields = (text for event in (self.noted(EVENTS) or {}).values() for text in event.values())
        return next((text.removesuffix(f" {role}") for text in fields if text.endswith(f" {role}")), None)

    def definitions(self, where: str) -> tuple[TableDef, ...]:
        """Its tables, as far as readers need them. where: the directory that it is of."""
        return tuple(
            TableDef(name, tuple(_column(where, name, column, text) for column, text in columns.items()))
            for name, columns in self.tables.items()
        )


def _columns(columns: Iterable[Column]) -> dict[str, str]:
    return {c.name: c.text for c in columns}


def _window(window: WindowDef) -> dict[str, Any]:
    """Its columns, and what is seen of it: with another size its rows would mean something else."""
    sizes = (("rows", window.rows), ("time", window.time), ("slide", window.slide))
    return {"columns": _columns(window.columns), **{name: str(size) for name, size in sizes if size is not None}}


def _fields(event: EventDef) -> dict[str, str]:
    roles = {event.order: " order", event.id: " id"}
    return {f.name: f"{f.type}{' | None' if f.nullable else ''}{roles.get(f.name, '')}" for f in event.fields}


def _members(program: Program) -> dict[str, dict[str, list[Any]]]:
    places: list[tuple[str, Sequence[Column | Field]]] = [(f"table '{t.name}'", t.columns) for t in program.tables]
    places += [(f"window '{w.name}'", w.columns) for w in program.windows]
    places += [(f"event '{e.name}'", e.fields) for e in program.events]
    found = {
        place: {c.name: list(members) for c in several if (members := c.type.all_members)} for place, several in places
    }
    return {place: columns for place, columns in found.items() if columns}


def _column(where: str, table: str, name: str, text: str) -> Column:
    column = Column.of_text(name, text)
    if column is None:
        raise StateError(
            f"{where}: column '{name}' of table '{table}' has a type that this Penstock does not know, {text!r}; use "
            "the Penstock that wrote it"
        )
    return column


def _digest(ops: Iterable[Op], *more: str) -> str:
    return hashlib.sha256("\n".join([*more, *_texts(ops)]).encode()).hexdigest()[:16]


def _udfs(plan: Plan, ops: Iterable[Op]) -> list[str]:
    """What the udfs compile from that are called."""
    called = {op.name for op in ops if op.code == "udf"}
    return [udf.fingerprint.digest for name, udf in plan.udfs if name in called]


def _texts(ops: Iterable[Op]) -> Iterator[str]:
    """Each operation without its line."""
    for op in ops:
        carries = [(c.id, str(c.type), c.init, c.next) for c in op.carries]
        yield f"{op.id} {op.code} {op.args} {op.type} {op.guard} {op.table} {op.name} {op.const!r} {carries} {op.until}"
        yield from _texts(op.body)
