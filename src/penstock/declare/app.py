"""Declarations: the decorators that turn classes and functions into a Program.

This class only collects and checks shapes. Bodies are read by plan/, when `App` (app.py at the
top) adds a transaction, so that what cannot be compiled is refused where it is declared.
"""

from __future__ import annotations

import datetime
import inspect
import re
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import PurePath
from typing import Any, cast, dataclass_transform

from penstock.declare import notebook
from penstock.declare.limits import LONGEST, MICROSECOND
from penstock.declare.model import (
    MAX_EVENTS,
    REQUIRED,
    CheckDef,
    Column,
    EventDef,
    Field,
    Program,
    TableDef,
    TransactionDef,
    TriggerDef,
    WindowDef,
)
from penstock.declare.objects import EventType, F, Table, Window, is_function
from penstock.declare.spans import microseconds_of
from penstock.declare.types import INT_MAX, NOT_TEXT, Type, is_text, of_annotation, to_python, without_none
from penstock.declare.types import decimal as decimal_type
from penstock.declare.windows import NAMES as WINDOW_NAMES
from penstock.declare.windows import check_order, check_size
from penstock.errors import DeclarationError

# Names that outcomes use themselves; a returned field cannot have one of them.
OUTCOME_COLUMNS = ("transaction", "ts", "id", "status", "reason", "version")
# Bytes of a table's or an event's name: with what is put around it, a file's name has 255 at most.
MAX_NAME = 200
# What has a name that is taken.
AGAIN = "rename one; in a notebook, run the cell that makes the App again, which forgets all"


class _Key:
    """`ps.key()`: this column is (part of) the table's key."""


@dataclass(frozen=True, slots=True)
class _Index:
    """`ps.index(default=0)`: records are looked up by this column."""

    default: Any

    def __repr__(self) -> str:
        return f"ps.index({'' if self.default is REQUIRED else f'default={self.default!r}'})"


class _Order:
    """`ps.order()`: this field is the event's place in time."""


@dataclass(frozen=True, slots=True)
class _Id:
    """`ps.id(unique="1 day")`: this field names the event and breaks ties in time; each of them runs once."""

    unique: Any


@dataclass(frozen=True, slots=True)
class _Decimal:
    """`ps.decimal(18, 2, default=0)`: the type of a column, and its default."""

    type: Type
    default: Any

    def __str__(self) -> str:
        return f"{str(self.type)[:-1]}, default={self.default!r})"


_NO_DEFAULT: Any = REQUIRED  # no number, whatever the signature below says


def key() -> Any:
    return _Key()


def index(*, default: Any = _NO_DEFAULT) -> Any:
    """A column that records are looked up by: `contestant: int = ps.index()`, for `Ballot.where(contestant=…)`."""
    return _Index(default)


def order() -> Any:
    return _Order()


def id_(*, unique: str | datetime.timedelta | int | None = None) -> Any:
    """The field that names an event and breaks ties in time: `id: str = ps.id()`. It does not deduplicate by itself.

    Args:
        unique: Run each id once within this span of event time; whatever brings it again has the outcome `duplicate`
            and changes nothing. "1 day" or a timedelta where ts is a datetime, else an int in the unit of ts.
    """
    return _Id(unique)


def decimal(precision: int, scale: int, *, default: Decimal | int | None = _NO_DEFAULT) -> Decimal:
    """An exact number with `precision` digits, `scale` of them after the point: `balance: Decimal = ps.decimal(18, 2)`.

    To a type checker it is the value that stands there. Without a default it is the type itself, so that
    `balance: ps.decimal(18, 2) = 0` says the same, though to no type checker."""
    type_ = decimal_type(precision, scale)
    return cast(Decimal, type_ if default is _NO_DEFAULT else _Decimal(type_, default))


def check(text: str) -> Callable[[F], F]:
    """A condition that must hold for every record a transaction writes; `text` is the abort's reason."""
    if not isinstance(text, str) or not text:
        raise DeclarationError('ps.check needs the reason to abort with: @ps.check("insufficient funds")')
    if not is_text(text):
        raise DeclarationError(f"ps.check({text!r}): its reason {NOT_TEXT}")

    def mark(function: F) -> F:
        if not inspect.isfunction(function):
            raise DeclarationError(f"@ps.check({text!r}) marks a method of a table, not {function!r}")
        return cast(F, CheckDef(text, function))

    return mark


class Declarations:
    """Collects tables, events and transactions; `program` is what has been declared so far."""

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise DeclarationError('an app needs a name: ps.App("bank")')
        if not is_text(name):
            raise DeclarationError(f"ps.App({name!r}): its name {NOT_TEXT}")
        self.program = Program(name)

    def _add_table(self, cls: type, ttl: int | datetime.timedelta | None = None) -> TableDef:
        where = _where("table", cls)
        _refuse_ttl(ttl, where)
        self._refuse_name(cls.__name__, where, self.program.tables)
        checks = tuple(v for v in vars(cls).values() if isinstance(v, CheckDef))
        _refuse_extras(cls, where, checks)
        columns = self._columns(cls, where)
        if not any(c.key for c in columns):
            raise DeclarationError(f"{where} needs a key: write one column as `id: str = ps.key()`")
        methods = tuple(v for v in vars(cls).values() if is_function(v))
        return TableDef(cls.__name__, columns, checks, ttl, methods)

    def _columns(self, cls: type, where: str) -> tuple[Column, ...]:
        columns = []
        for name, annotation in _annotations(cls).items():
            at = f"{where}, column '{name}'"
            annotation, nullable = without_none(annotation)
            type_, default = _type_and_value(name, annotation, vars(cls).get(name, REQUIRED), at, lists=False)
            if isinstance(default, _Key):
                if nullable:
                    raise DeclarationError(f"{at}: a key cannot be None; leave out `| None`")
                if "key" not in type_.traits.roles:
                    raise DeclarationError(f"{at}: a float cannot be a key; use int, str or ps.decimal")
                columns.append(Column(name, type_, key=True))
            elif isinstance(default, _Index):
                if "key" not in type_.traits.roles:
                    raise DeclarationError(f"{at}: a float cannot be looked up by; use int, str or ps.decimal")
                given = _default(default.default, type_, at, nullable=nullable)
                columns.append(Column(name, type_, default=given, index=True, nullable=nullable))
            else:
                given = _default(default, type_, at, nullable=nullable)
                columns.append(Column(name, type_, default=given, nullable=nullable))
        # Keys come first, whatever the order in the class: Stock[w, i] takes them in this order.
        return tuple(sorted(columns, key=lambda c: not c.key))

    def _add_window(self, cls: type, *, rows: Any, time: Any, slide: Any) -> WindowDef:
        where = _where("window", cls)
        self._refuse_name(cls.__name__, where, self.program.windows)
        check_size(where, rows, time, slide)
        _refuse_extras(cls, where, ())
        columns = self._columns(cls, where)
        for column in columns:
            if column.index:
                raise DeclarationError(
                    f"{where}, column '{column.name}': ps.index() is for a table's column; loop over the window's rows"
                )
            if column.nullable:
                raise DeclarationError(
                    f"{where}, column '{column.name}': a window's column cannot be None; leave out `| None`, and add a "
                    "value that says so, or no row"
                )
            if not column.required:
                raise DeclarationError(
                    f"{where}, column '{column.name}': a window's column has no default; each add gives all of them"
                )
            if column.name in WINDOW_NAMES or hasattr(Window, column.name):
                raise DeclarationError(
                    f"{where}: '{column.name}' is what every window has already ({', '.join(WINDOW_NAMES)}); "
                    "give the column another name"
                )
        window = WindowDef(cls.__name__, columns, rows, time, slide)
        check_order(window, self.program.order_type(), where)
        return window

    def _add_event(self, cls: type) -> EventDef:
        where = _where("event", cls)
        self._refuse_name(cls.__name__, where, self.program.events)
        others = replace(self.program, events=tuple(e for e in self.program.events if e.name != cls.__name__))
        if len(others.events) == MAX_EVENTS:
            raise DeclarationError(
                f"{where} is one too many: app '{self.program.name}' has {MAX_EVENTS} events, and more cannot be told "
                "apart; declare one event with a field that says which kind it is, or make two apps"
            )
        _refuse_extras(cls, where, ())
        fields = []
        marks: dict[str, str] = {}
        unique: datetime.timedelta | int | None = None
        for name, annotation in _annotations(cls).items():
            at = f"{where}, field '{name}'"
            annotation, nullable = without_none(annotation)
            type_, mark = _type_and_value(name, annotation, vars(cls).get(name, REQUIRED), at, lists=True)
            if nullable and (type_.item is not None or isinstance(mark, _Order | _Id)):
                what = "a list" if type_.item is not None else "an order" if isinstance(mark, _Order) else "an id"
                instead = "; an empty one says that there is nothing" if what == "a list" else ""
                raise DeclarationError(f"{at}: {what} cannot be None; leave out `| None`{instead}")
            if isinstance(mark, _Index):
                raise DeclarationError(f"{at}: ps.index() is for a table's column; an event's field has none")
            if isinstance(mark, _Order | _Id):
                kind = "order" if isinstance(mark, _Order) else "id"
                if kind in marks:
                    raise DeclarationError(f"{at}: '{marks[kind]}' is the {kind} already; an event has one")
                marks[kind] = name
                unique = _span(mark.unique, at) if isinstance(mark, _Id) else unique
                mark = REQUIRED
            elif isinstance(mark, _Key):
                raise DeclarationError(f"{at}: ps.key() is for a table's column; an event's field has none")
            elif type_.item is not None and mark is not REQUIRED:
                raise DeclarationError(f"{at}: a list has no default; leave out `{mark!r}`")
            elif mark is None and not nullable:
                raise DeclarationError(f"{at}: its default is None; write its type `{type_.traits.declared} | None`")
            fields.append(Field(name, type_, _default(mark, type_, at, nullable=nullable), nullable))
        event = EventDef(cls.__name__, tuple(fields), marks.get("order"), marks.get("id"), unique)
        self._check_order(event, where, others)
        return event

    def _check_order(self, event: EventDef, where: str, others: Program) -> None:
        ts = event.type_of(event.order) if event.order else None
        if ts is not None and "order" not in ts.traits.roles:
            raise DeclarationError(f"{where}, field '{event.order}': an order is int or datetime.datetime, not {ts}")
        if event.id and "id" not in event.type_of(event.id).traits.roles:
            raise DeclarationError(f"{where}, field '{event.id}': an id is int or str, not {event.type_of(event.id)}")
        for window in others.windows:
            check_order(window, ts, where)
        for name, mine, theirs in (
            ("order", ts, others.order_type()),
            ("id", event.type_of(event.id) if event.id else None, others.id_type()),
        ):
            if mine and theirs and mine != theirs:
                raise DeclarationError(f"{where}: its {name} is {mine}, but other events of this app have {theirs}")

    def _add_transaction(
        self, function: Callable[..., Any], *, nested: bool = False, batch: Any = None
    ) -> TransactionDef:
        where = f"transaction '{getattr(function, '__name__', function)}'"
        if not inspect.isfunction(function):
            raise DeclarationError(f"{where}: decorate a plain function")
        if any(t.name == function.__name__ for t in self.program.transactions) and not notebook.is_cell(function):
            raise DeclarationError(f"{where} is declared twice in app '{self.program.name}'; {AGAIN}")
        parameters = list(inspect.signature(function).parameters.values())
        if len(parameters) != 1 or parameters[0].annotation is inspect.Parameter.empty:
            raise DeclarationError(f"{where} takes one event, with its type: def {function.__name__}(e: Transfer)")
        annotation, several = _without_list(parameters[0].annotation)
        event = self._event_of(annotation, function, where)
        other = self.program.transaction_of(event)
        if other is not None and other.name != function.__name__:
            raise DeclarationError(
                f"{where}: event '{event.name}' already runs transaction '{other.name}'; an event has one outcome: "
                f"{AGAIN}"
            )
        _refuse_odd(function.__name__, where)
        if nested is not True and nested is not False:
            raise DeclarationError(f"{where}: nested={nested!r}; give True or False")
        if nested and event.order is not None:
            raise DeclarationError(
                f"{where} is nested, which is for events that are emitted, but '{event.name}' comes from outside: it "
                f"has '{event.order}' as its ps.order(); leave out nested=True"
            )
        _refuse_odd_batch(event, batch, where, several=several, nested=nested)
        return TransactionDef(function.__name__, function, event, nested, several, batch)

    def _add_trigger(self, function: Callable[..., Any]) -> TriggerDef:
        where = f"trigger '{getattr(function, '__name__', function)}'"
        if not inspect.isfunction(function):
            raise DeclarationError(f"{where}: decorate a plain function")
        if any(t.name == function.__name__ for t in self.program.triggers) and not notebook.is_cell(function):
            raise DeclarationError(f"{where} is declared twice in app '{self.program.name}'; {AGAIN}")
        parameters = list(inspect.signature(function).parameters.values())
        if len(parameters) != 1 or parameters[0].annotation is inspect.Parameter.empty:
            raise DeclarationError(f"{where} takes one window: def {function.__name__}(w: Recent)")
        annotation = parameters[0].annotation
        if isinstance(annotation, Window):
            window: WindowDef | None = annotation.definition
        else:
            window = self.program.window(str(annotation).rpartition(".")[2])
        if window is None or window not in self.program.windows:
            declared = ", ".join(w.name for w in self.program.windows) or "none yet"
            raise DeclarationError(f"{where}: {annotation!r} is not a window of app '{self.program.name}' ({declared})")
        _refuse_odd(function.__name__, where)
        return TriggerDef(function.__name__, function, window)

    def _event_of(self, annotation: Any, function: Callable[..., Any], where: str) -> EventDef:
        found: EventDef | None
        if isinstance(annotation, EventType):
            found = annotation.definition
        else:
            # Under `from __future__ import annotations` it is the event's name.
            found = self.program.event(str(annotation).rpartition(".")[2])
        if found is None or found not in self.program.events:
            declared = ", ".join(e.name for e in self.program.events) or "none yet"
            raise DeclarationError(f"{where}: {annotation!r} is not an event of app '{self.program.name}' ({declared})")
        return found

    def _refuse_name(self, name: str, where: str, alike: Iterable[TableDef | EventDef | WindowDef]) -> None:
        """alike: what it may be declared in the place of, where a cell runs again."""
        _refuse_odd(name, where)
        if len(name.encode()) > MAX_NAME:
            raise DeclarationError(
                f"{where}: a name that files are named after has at most {MAX_NAME} bytes, not {len(name.encode())}; "
                "choose a shorter one"
            )
        # DuckDB's names ignore case, so Account and account would be one table there.
        program = self.program
        several: tuple[Any, ...] = (*program.tables, *program.events, *program.windows)
        taken = {one.name.lower(): one for one in several}
        found = taken.get(name.lower())
        again = found is not None and found in alike and found.name == name and notebook.is_cell(_caller())
        if found is not None and not again:
            raise DeclarationError(f"{where} is declared twice in app '{self.program.name}'; {AGAIN}")


def _without_list(annotation: Any) -> tuple[Any, bool]:
    """A parameter's annotation, without the list[...] around it, and whether there is one."""
    if isinstance(annotation, types.GenericAlias) and annotation.__origin__ is list and len(annotation.__args__) == 1:
        return annotation.__args__[0], True
    if isinstance(annotation, str) and (found := re.fullmatch(r"\s*list\s*\[(.*)\]\s*", annotation)):
        return found[1].strip(), True
    return annotation, False


def _refuse_odd_batch(event: EventDef, batch: Any, where: str, *, several: bool, nested: bool) -> None:
    """Which transactions take a list, and of which events."""
    form = f"list[{event.name}]"
    if batch is not None and batch != "ts" and (isinstance(batch, bool) or not isinstance(batch, int) or batch < 1):
        raise DeclarationError(
            f'{where}: batch={batch!r}; give "ts", for all events of one time, or how many events are one batch'
        )
    if not several and batch is not None:
        raise DeclarationError(
            f"{where}: batch={batch!r} is for a transaction of several events; write its type {form}"
        )
    if not several:
        return
    if nested:
        raise DeclarationError(
            f"{where} takes a {form}, all that a round has emitted, and so cannot be part of one transaction that "
            "emits; leave out nested=True, or take one event"
        )
    if event.order is not None and batch is None:
        raise DeclarationError(
            f"{where} takes a {form}, but does not say which events are one; write "
            '@app.transaction(batch="ts"), for all of one time, or batch=100, for so many'
        )
    if event.order is None and batch is not None:
        raise DeclarationError(
            f"{where}: batch={batch!r} is for events that come from outside, but '{event.name}' has no ps.order(): "
            "its list is all that a round has emitted of it; leave out batch="
        )


def _refuse_ttl(ttl: Any, where: str) -> None:
    if ttl is None:
        return
    if isinstance(ttl, datetime.timedelta):
        sound = datetime.timedelta(0) < ttl <= LONGEST
    else:
        sound = isinstance(ttl, int) and not isinstance(ttl, bool) and 0 < ttl <= INT_MAX
    if not sound:
        raise DeclarationError(
            f"{where}: ttl={ttl!r} is no time that a record lives; give a timedelta above 0 where ts is a datetime, "
            "such as ttl=timedelta(days=30), or an int above 0 in the unit of ts"
        )


def _span(unique: Any, where: str) -> datetime.timedelta | int | None:
    """Within which an id is to run once."""
    told = microseconds_of(unique)
    span = unique if told is None else min(told, INT_MAX) * MICROSECOND
    if span is None or (isinstance(span, datetime.timedelta) and datetime.timedelta(0) < span <= LONGEST):
        return span
    if isinstance(span, int) and not isinstance(span, bool) and 0 < span <= INT_MAX:
        return span
    raise DeclarationError(
        f'{where}: unique={unique!r} is no span of time; give one above 0: "1 day" or timedelta(hours=6) where ts is a '
        "datetime, or an int in the unit of ts"
    )


def _type_and_value(name: str, annotation: Any, value: Any, where: str, *, lists: bool) -> tuple[Type, Any]:
    """A field's type and what stands behind its `=`: a mark, a default or REQUIRED. A decimal says its type there."""
    if isinstance(value, Type):
        value = _Decimal(value, REQUIRED)
    form = f"`{name}: Decimal = ps.decimal(18, 2)`"
    if isinstance(value, _Decimal):
        if annotation is not Decimal:
            raise DeclarationError(f"{where}: ps.decimal is the value of a Decimal; write {form}")
        return value.type, value.default
    if annotation is Decimal and isinstance(value, _Order | _Id):
        may = "an order is int or datetime.datetime" if isinstance(value, _Order) else "an id is int or str"
        raise DeclarationError(f"{where}: {may}, not a Decimal")
    if annotation is Decimal and isinstance(value, _Index):
        raise DeclarationError(
            f"{where}: a Decimal says its digits; with an index, write `{name}: ps.decimal(18, 2) = ps.index()`"
        )
    if annotation is Decimal and not isinstance(value, _Key):
        raise DeclarationError(f"{where}: a Decimal says its digits; write {form}, so that the scale is known")
    if isinstance(annotation, _Decimal):
        raise DeclarationError(f"{where}: its default stands behind the type; write {form[:-2]}, default=…)`")
    return of_annotation(annotation, where=where, lists=lists), value


def _default(given: Any, type_: Type, where: str, *, nullable: bool) -> Any:
    """A column's or field's default, as Python has it; what may be None is that by itself."""
    if nullable and (given is REQUIRED or given is None):
        return None
    return given if given is REQUIRED else to_python(given, type_, where=where)


def _where(what: str, cls: Any) -> str:
    """Who is being declared, and in which line: "table 'Account' (bank.py:7)"."""
    if not isinstance(cls, type):
        raise DeclarationError(f"@app.{what} decorates a class, not {cls!r}")
    frame = _caller()
    at = f" ({PurePath(frame.f_code.co_filename).name}:{frame.f_lineno})" if frame is not None else ""
    return f"{what} '{cls.__name__}'{at}"


def _caller() -> types.FrameType | None:
    """The nearest frame outside this package: where the user's decorator stands."""
    frame: types.FrameType | None = sys._getframe(1)
    while (
        frame is not None
        and frame.f_globals.get("__name__", "").startswith("penstock.")
        and "workloads" not in str(frame.f_globals.get("__name__"))
    ):
        frame = frame.f_back
    return frame


def _refuse_extras(cls: type, where: str, checks: tuple[CheckDef, ...]) -> None:
    """A class declares columns and checks, and nothing that would be ignored."""
    if cls.__bases__ != (object,):
        raise DeclarationError(f"{where} inherits from {cls.__bases__[0].__name__}; write its columns out")
    typed = inspect.get_annotations(cls)
    folded: dict[str, str] = {}
    for name in typed:
        # SQL and Spark do not tell upper case from lower.
        if folded.setdefault(name.lower(), name) != name:
            raise DeclarationError(f"{where}: '{folded[name.lower()]}' and '{name}' differ only in case; rename one")
    for name, value in vars(cls).items():
        if name in typed or (name.startswith("__") and name.endswith("__")) or value in checks:
            continue
        if is_function(value) and where.startswith("table"):
            _refuse_twin(value, name, typed, where)
            continue
        if callable(value) or isinstance(value, property | classmethod | staticmethod | CheckDef):
            hint = 'mark it with @ps.check("reason"), or with @ps.function to call it: account.available()'
            if not where.startswith("table"):
                hint = "a window has columns only" if where.startswith("window") else "an event has fields only"
            raise DeclarationError(f"{where}: '{name}' is not a field; {hint}")
        shown = type(value).__name__, repr(value)
        if isinstance(value, Type | _Decimal):
            shown = "Decimal", f"ps.{value}"
        raise DeclarationError(f"{where}: '{name}' needs a type: {name}: {shown[0]} = {shown[1]}")


def _refuse_twin(function: Callable[..., Any], name: str, typed: Mapping[str, object], where: str) -> None:
    """A method is known by the name that it was written with, and takes its record."""
    if function.__name__ != name:
        raise DeclarationError(f"{where}: '{name}' is another name of '{function.__name__}'; write it with def")
    if not inspect.signature(function).parameters:
        raise DeclarationError(f"{where}: '{name}' takes the record first: def {name}(self)")


def _refuse_odd(name: str, where: str) -> None:
    """Names become names in generated source, and files' names: those of a class made by hand may be anything."""
    if not name.isidentifier():
        raise DeclarationError(f"{where}: {name!r} is not a name; use letters, digits and _, and no digit first")


def _annotations(cls: type) -> dict[str, Any]:
    """The class's own annotations, in order; strings (future annotations) are evaluated where the class stands."""
    raw = inspect.get_annotations(cls)
    frame = _caller()
    scope = {**frame.f_globals, **frame.f_locals} if frame is not None else vars(sys.modules[cls.__module__])
    out = {}
    for name, annotation in raw.items():
        _refuse_odd(name, f"'{cls.__name__}'")
        if isinstance(annotation, str):
            try:
                annotation = eval(annotation, scope)
            except Exception as error:
                raise DeclarationError(
                    f"'{cls.__name__}', '{name}': cannot read its type {annotation!r}: {error}"
                ) from None
        out[name] = annotation
    return out


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(order, id_, decimal))
class Fields:
    """What an event is made of. Nothing is derived from it but in the eyes of mypy's plugin (penstock/mypy.py)."""


__all__ = ["OUTCOME_COLUMNS", "Declarations", "Table", "Type", "check", "decimal", "id_", "index", "key", "order"]
