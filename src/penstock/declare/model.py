"""The nouns a declaration is made of: what the planner and the reference hold.

    Program
    ├── TableDef(name, columns, checks)         Column(name, type, key, default)
    │                                           CheckDef(text, function)
    ├── EventDef(name, fields, order, id)       Field(name, type)
    └── TransactionDef(name, function, event)

They hold the user's functions, but know nothing of how those run. What a user touches
(`Account`, `Transfer`) is in objects.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.declare.types import INT, Type

# A batch keeps each event's kind in seven bits; the eighth says that it is late (execute/order.py).
MAX_EVENTS = 127
# Few different texts, many rows.
TEXT = pa.dictionary(pa.int32(), pa.string())


class _Required:
    """Stands where a column has no default."""

    def __repr__(self) -> str:
        return "REQUIRED"

    def __reduce__(self) -> str:
        return "REQUIRED"  # there is one; a copy elsewhere is that one


REQUIRED = _Required()


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: Type
    key: bool = False
    default: Any = REQUIRED  # a plain Python value of the column's type

    @property
    def required(self) -> bool:
        return self.default is REQUIRED


@dataclass(frozen=True, slots=True)
class CheckDef:
    text: str
    function: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class TableDef:
    name: str
    columns: tuple[Column, ...]
    checks: tuple[CheckDef, ...] = ()

    @property
    def keys(self) -> tuple[Column, ...]:
        return tuple(c for c in self.columns if c.key)

    @property
    def values(self) -> tuple[Column, ...]:
        return tuple(c for c in self.columns if not c.key)

    def column(self, name: str) -> Column | None:
        return next((c for c in self.columns if c.name == name), None)

    def arrow(self) -> pa.Schema:
        return pa.schema([pa.field(c.name, c.type.arrow(), nullable=False) for c in self.columns])


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class EventDef:
    name: str
    fields: tuple[Field, ...]
    order: str  # the field that places the event in time
    id: str | None  # the field that breaks ties
    # Every batch asks for these, so they are made once.
    _arrow: pa.Schema = field(init=False, repr=False, compare=False)
    _places: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        schema = pa.schema([pa.field(f.name, f.type.arrow()) for f in self.fields])
        object.__setattr__(self, "_arrow", schema)
        object.__setattr__(self, "_places", {f.name: i for i, f in enumerate(self.fields)})

    def field(self, name: str) -> Field | None:
        return next((f for f in self.fields if f.name == name), None)

    def place(self, name: str) -> int:
        """Which of the fields has this name."""
        return self._places[name]

    def type_of(self, name: str) -> Type:
        return self.fields[self.place(name)].type

    def arrow(self) -> pa.Schema:
        return self._arrow


@dataclass(frozen=True, slots=True)
class TransactionDef:
    name: str
    function: Callable[..., Any]
    event: EventDef


@dataclass(frozen=True, slots=True)
class Program:
    name: str
    tables: tuple[TableDef, ...] = ()
    events: tuple[EventDef, ...] = ()
    transactions: tuple[TransactionDef, ...] = ()
    # Field name -> type of what the transactions return, in order of first mention; filled by the planner.
    returns: tuple[tuple[str, Type], ...] = field(default=())
    # Every batch asks for these by an event's name, so they are made once.
    _kinds: dict[str, int] = field(init=False, repr=False, compare=False)
    _by_event: dict[str, TransactionDef] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_kinds", {e.name: kind for kind, e in enumerate(self.events)})
        object.__setattr__(self, "_by_event", {t.event.name: t for t in self.transactions})

    def table(self, name: str) -> TableDef:
        return next(t for t in self.tables if t.name == name)

    def event(self, name: str) -> EventDef | None:
        kind = self._kinds.get(name)
        return None if kind is None else self.events[kind]

    def kind(self, event: str) -> int:
        """Which of the events has this name."""
        return self._kinds[event]

    def transaction_of(self, event: EventDef) -> TransactionDef | None:
        return self._by_event.get(event.name)

    def order_type(self) -> Type | None:
        """The type of ts, which all events share."""
        return next((e.type_of(e.order) for e in self.events), None)

    def id_type(self) -> Type | None:
        """The type of id, which all events that have one share."""
        return next((e.type_of(e.id) for e in self.events if e.id), None)

    def outcomes(self) -> pa.Schema:
        """The columns of this app's outcomes; both sides of the law make tables of it."""
        id_ = self.id_type()
        return pa.schema(
            [
                ("transaction", TEXT),
                ("ts", (self.order_type() or INT).arrow()),
                *([("id", id_.arrow())] if id_ else []),
                ("status", TEXT),
                ("reason", TEXT),
                ("version", pa.int64()),
                *((name, type_.arrow()) for name, type_ in self.returns),
            ]
        )
