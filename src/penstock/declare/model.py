"""The nouns a declaration is made of: what the planner and the reference hold.

    Program
    ├── TableDef(name, columns, checks, ttl,    Column(name, type, key, default, index, nullable)
    │            methods)
    │                                           CheckDef(text, function)
    ├── EventDef(name, fields, order, id,       Field(name, type, default, nullable)
    │            unique)
    ├── TransactionDef(name, function, event, nested, several, batch)
    ├── WindowDef(name, columns, rows | time, slide)
    ├── TriggerDef(name, function, window)
    └── Flow(ranked, emitted, timed)            where transactions emit events

They hold the user's functions, but know nothing of how those run. What a user touches
(`Account`, `Transfer`) is in objects.py.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pyarrow as pa

from penstock.declare.types import BOOL, INT, Type, of_text

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
    index: bool = False  # `Table.where` may look records up by it; derived from the records, so no part of what is kept
    nullable: bool = False  # it may hold None, and does where it is left out and has no other default

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    @property
    def text(self) -> str:
        """What it is, as a state directory says it: "decimal(18, 2) | None", "str key"."""
        return f"{self.type}{' | None' if self.nullable else ''}{' key' if self.key else ''}"

    @classmethod
    def of_text(cls, name: str, text: str) -> Column | None:
        bare = text.removesuffix(" key")
        type_ = of_text(bare.removesuffix(" | None"))
        nullable = bare.endswith(" | None")
        return None if type_ is None else cls(name, type_, key=text.endswith(" key"), nullable=nullable)

    @property
    def arrow(self) -> pa.Field:
        return pa.field(self.name, self.type.arrow(), nullable=self.nullable)


@dataclass(frozen=True, slots=True)
class CheckDef:
    text: str
    function: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class TableDef:
    name: str
    columns: tuple[Column, ...]
    checks: tuple[CheckDef, ...] = ()
    ttl: int | datetime.timedelta | None = None  # a record that was not written for so long is absent
    methods: tuple[Callable[..., Any], ...] = field(default=(), compare=False)  # functions of its records

    @property
    def lifetime(self) -> int | None:
        """ttl in the unit that the clock counts in."""
        if isinstance(self.ttl, datetime.timedelta):
            return self.ttl // datetime.timedelta(microseconds=1)
        return self.ttl

    @property
    def keys(self) -> tuple[Column, ...]:
        return tuple(c for c in self.columns if c.key)

    @property
    def values(self) -> tuple[Column, ...]:
        return tuple(c for c in self.columns if not c.key)

    @property
    def lanes(self) -> tuple[Column, ...]:
        """Where the values beside the key lie; behind them, for each that may be None, whether it is."""
        flags = (Column(is_none(c.name), BOOL, default=c.default is None) for c in self.values if c.nullable)
        return (*self.values, *flags)

    def column(self, name: str) -> Column | None:
        return next((c for c in self.columns if c.name == name), None)

    def method(self, name: str) -> Callable[..., Any] | None:
        return next((f for f in self.methods if f.__name__ == name), None)

    def arrow(self) -> pa.Schema:
        return pa.schema([c.arrow for c in self.columns])


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    type: Type
    default: Any = REQUIRED  # a plain Python value of the field's type, or None
    nullable: bool = False  # a body may ask whether it is None; any other field aborts where it is null

    @property
    def required(self) -> bool:
        """Whether a table of events has to have it."""
        return self.default is REQUIRED

    @property
    def left_out(self) -> Any:
        """What an event holds that was made without it."""
        return None if self.default is REQUIRED else self.default


@dataclass(frozen=True, slots=True)
class EventDef:
    name: str
    fields: tuple[Field, ...]
    order: str | None  # the field that places the event in time; None: it is emitted or called, and not streamed
    id: str | None  # the field that breaks ties
    unique: int | datetime.timedelta | None = (
        None  # an id runs once within this span of time; None: as often as it comes
    )
    # Every batch asks for these, so they are made once.
    _arrow: pa.Schema = field(init=False, repr=False, compare=False)
    _places: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        schema = pa.schema([pa.field(f.name, f.type.arrow()) for f in self.fields])
        object.__setattr__(self, "_arrow", schema)
        object.__setattr__(self, "_places", {f.name: i for i, f in enumerate(self.fields)})

    @property
    def span(self) -> int | None:
        """unique in the unit that the clock counts in."""
        return None if self.unique is None else _span(self.unique)

    def field(self, name: str) -> Field | None:
        return next((f for f in self.fields if f.name == name), None)

    @property
    def lanes(self) -> tuple[Field, ...]:
        """What is emitted of it: the fields, and behind them, for each that may be None, whether it is."""
        return (*self.fields, *(Field(is_none(f.name), BOOL) for f in self.fields if f.nullable))

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
    nested: bool = False  # part of the transaction that emitted its event: they commit or abort as one
    several: bool = False  # of an atomic batch: it takes a list of events
    batch: str | int | None = None  # of events from outside, which are one batch: "ts", all of one ts; n, so many


@dataclass(frozen=True, slots=True)
class WindowDef:
    """The last rows, or those of the last while; one such window for each key, where it has key columns."""

    name: str
    columns: tuple[Column, ...]  # key columns first
    rows: int | None  # how many rows are seen; None: those of a span of time
    time: int | timedelta | None
    slide: int | timedelta | None = None  # None: with every row, or with the clock

    @property
    def keys(self) -> tuple[Column, ...]:
        return tuple(c for c in self.columns if c.key)

    @property
    def values(self) -> tuple[Column, ...]:
        return tuple(c for c in self.columns if not c.key)

    def column(self, name: str) -> Column | None:
        return next((c for c in self.columns if c.name == name), None)

    @property
    def hidden(self) -> str:
        """The table that says where each key's rows lie (plan/windows.py); no user's can have this name."""
        return f"${self.name}"

    @property
    def size(self) -> int:
        """Rows; or time in the order's unit, which for a datetime is a microsecond."""
        return self.rows if self.rows is not None else _span(self.time)

    @property
    def step(self) -> int:
        """How far it slides at once, likewise; 0: with the clock."""
        return _span(self.slide) if self.slide is not None else (0 if self.rows is None else 1)


def _span(given: int | timedelta | None) -> int:
    assert given is not None
    return given // timedelta(microseconds=1) if isinstance(given, timedelta) else given


@dataclass(frozen=True, slots=True)
class TriggerDef:
    """Runs inside the transaction that adds to the window, where rows have entered or expired."""

    name: str
    function: Callable[..., Any]
    window: WindowDef


@dataclass(frozen=True, slots=True)
class Flow:
    """What an app has whose outcomes are more than a row for each event of a batch: the events that transactions emit,
    and the order in which what they cause runs."""

    ranked: tuple[str, ...]  # the events that transactions take: who emits before who is emitted
    emitted: tuple[str, ...]  # in order of declaration
    timed: tuple[str, ...] = ()  # those of them that are emitted with at=


# Columns of the table in which an event's timers wait, beside its fields, which cannot have such names. number: which
# emission it was; at: when it runs; id: of the event at the root of the round that set it; named: whether that has one.
NUMBER, AT, ID, NAMED = "$number", "$at", "$id", "$named"


def timers_of(event: str) -> str:
    """The name of the table in which an event's timers wait."""
    return f"${event}"


def is_none(name: str) -> str:
    """The lane of whether a column or field is None; nothing that is declared can have this name."""
    return f"{name} is None"


def when_aborted(field: str) -> str:
    """The lane of what aborts give of a field; no field can have this name."""
    return f"{field} when aborted"


@dataclass(frozen=True, slots=True)
class Program:
    name: str
    tables: tuple[TableDef, ...] = ()
    events: tuple[EventDef, ...] = ()
    transactions: tuple[TransactionDef, ...] = ()
    windows: tuple[WindowDef, ...] = ()
    triggers: tuple[TriggerDef, ...] = ()
    # Field name -> type of what the transactions return, in order of first mention; filled by the planner.
    returns: tuple[tuple[str, Type], ...] = field(default=())
    # Those of them that some abort gives; filled by the planner.
    abort_fields: tuple[str, ...] = ()
    # None where nothing is emitted, and each transaction takes one event; filled by the planner.
    flow: Flow | None = None
    # The events whose transactions only read; filled by the planner.
    reading: frozenset[str] = frozenset()
    # Every batch asks for these by an event's name, so they are made once.
    _kinds: dict[str, int] = field(init=False, repr=False, compare=False)
    _by_event: dict[str, TransactionDef] = field(init=False, repr=False, compare=False)
    _timers: tuple[TableDef, ...] = field(init=False, repr=False, compare=False)
    # The events whose ids run once each.
    unique: tuple[EventDef, ...] = field(init=False, repr=False, compare=False)
    # The events from outside that atomic batches are made of, and what one of them is.
    batches: dict[str, str | int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_kinds", {e.name: kind for kind, e in enumerate(self.events)})
        object.__setattr__(self, "_by_event", {t.event.name: t for t in self.transactions})
        timed = self.flow.timed if self.flow is not None else ()
        object.__setattr__(self, "_timers", tuple(self._timers_of(e) for e in self.events if e.name in timed))
        object.__setattr__(self, "unique", tuple(e for e in self.events if e.unique is not None))
        batches = {t.event.name: t.batch for t in self.transactions if t.batch is not None}
        object.__setattr__(self, "batches", batches)

    @property
    def lanes(self) -> tuple[tuple[str, Type], ...]:
        """Where kernels put what outcomes give: the returned fields, and behind them what aborts give of these."""
        of_aborts = ((when_aborted(name), type_) for name, type_ in self.returns if name in self.abort_fields)
        return (*self.returns, *of_aborts)

    def table(self, name: str) -> TableDef:
        return next(t for t in self.stored if t.name == name)

    @property
    def timers(self) -> tuple[TableDef, ...]:
        """A table for each event that is emitted with at=, in which those wait that have not run."""
        return self._timers

    @property
    def stored(self) -> tuple[TableDef, ...]:
        """What the state consists of: the tables that were declared, and behind them the timers."""
        return (*self.tables, *self._timers)

    def _timers_of(self, event: EventDef) -> TableDef:
        id_ = self.id_type()
        return TableDef(
            timers_of(event.name),
            (
                Column(NUMBER, INT, key=True),
                Column(AT, self.order_type() or INT),
                *(() if id_ is None else (Column(ID, id_), Column(NAMED, BOOL))),
                *(Column(f.name, f.type, nullable=f.nullable) for f in event.fields),
            ),
        )

    def window(self, name: str) -> WindowDef | None:
        return next((w for w in self.windows if w.name == name), None)

    def triggers_of(self, window: WindowDef) -> tuple[TriggerDef, ...]:
        return tuple(t for t in self.triggers if t.window == window)

    def event(self, name: str) -> EventDef | None:
        kind = self._kinds.get(name)
        return None if kind is None else self.events[kind]

    def kind(self, event: str) -> int:
        """Which of the events has this name."""
        return self._kinds[event]

    def transaction_of(self, event: EventDef) -> TransactionDef | None:
        return self._by_event.get(event.name)

    def is_nested(self, event: str) -> bool:
        transaction = self._by_event.get(event)
        return transaction is not None and transaction.nested

    def takes_several(self, event: str) -> bool:
        """Whether its transaction takes a list of them."""
        transaction = self._by_event.get(event)
        return transaction is not None and transaction.several

    def outputs(self) -> tuple[EventDef, ...]:
        """The events that are emitted, and that no transaction takes."""
        emitted = self.flow.emitted if self.flow is not None else ()
        return tuple(e for e in self.events if e.name in emitted and e.name not in self._by_event)

    def order_type(self) -> Type | None:
        """The type of ts, which all events share that have one."""
        return next((e.type_of(e.order) for e in self.events if e.order), None)

    def id_type(self) -> Type | None:
        """The type of id, which all events that have one share."""
        return next((e.type_of(e.id) for e in self.events if e.id), None)

    def pending(self, event: EventDef) -> pa.Schema:
        """The columns of an event's timers, for users."""
        root = [("at", (self.order_type() or INT).arrow()), *([("id", id_.arrow())] if (id_ := self.id_type()) else [])]
        return pa.schema([*root, *event.arrow()])

    def outcomes(self) -> pa.Schema:
        """The columns of this app's outcomes; both sides of the law make tables of it."""
        return pa.schema(
            [
                ("transaction", TEXT),
                *self._root(),
                ("status", TEXT),
                ("reason", TEXT),
                ("version", pa.int64()),
                *((name, type_.arrow()) for name, type_ in self.returns),
            ]
        )

    def output(self, event: EventDef) -> pa.Schema:
        """The columns of an output stream."""
        return pa.schema([*self._root(), ("version", pa.int64()), *event.arrow()])

    def _root(self) -> list[tuple[str, pa.DataType]]:
        """What a row says of the event that is at its root; step: its place among all that this one caused."""
        id_ = self.id_type()
        ts = ("ts", (self.order_type() or INT).arrow())
        return [ts, *([("id", id_.arrow())] if id_ else []), *([("step", pa.int32())] if self.flow else [])]
