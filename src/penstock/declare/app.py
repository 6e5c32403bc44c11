"""Declarations: the decorators that turn classes and functions into a Program.

This class only collects and checks shapes. Bodies are read by plan/, when `App` (app.py at the
top) adds a transaction, so that what cannot be compiled is refused where it is declared.
"""

from __future__ import annotations

import datetime
import inspect
import re
import types
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from penstock.declare import classes, notebook
from penstock.declare.limits import LONGEST
from penstock.declare.marks import Id, Index, Key, Order
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
from penstock.declare.objects import EventType, Window, is_function
from penstock.declare.types import INT_MAX, NOT_TEXT, Type, is_text, without_none
from penstock.declare.windows import NAMES as WINDOW_NAMES
from penstock.declare.windows import check_order, check_size
from penstock.errors import DeclarationError

# Names that outcomes use themselves; a returned field cannot have one of them.
OUTCOME_COLUMNS = ("transaction", "ts", "id", "status", "reason", "version")
# Bytes of a table's or an event's name: with what is put around it, a file's name has 255 at most.
MAX_NAME = 200
# What has a name that is taken.
AGAIN = "rename one; in a notebook, run the cell that makes the App again, which forgets all"


class Declarations:
    """Collects tables, events and transactions; `program` is what has been declared so far."""

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise DeclarationError('an app needs a name: ps.App("bank")')
        if not is_text(name):
            raise DeclarationError(f"ps.App({name!r}): its name {NOT_TEXT}")
        self.program = Program(name)

    def _add_table(self, cls: type, ttl: int | datetime.timedelta | None = None) -> TableDef:
        where = classes.where_of("table", cls)
        _refuse_ttl(ttl, where)
        self._refuse_name(cls.__name__, where, self.program.tables)
        checks = tuple(v for v in vars(cls).values() if isinstance(v, CheckDef))
        classes.refuse_extras(cls, where, checks)
        columns = self._columns(cls, where)
        if not any(c.key for c in columns):
            raise DeclarationError(f"{where} needs a key: write one column as `id: str = ps.key()`")
        methods = tuple(v for v in vars(cls).values() if is_function(v))
        return TableDef(cls.__name__, columns, checks, ttl, methods)

    def _columns(self, cls: type, where: str) -> tuple[Column, ...]:
        columns = []
        for name, annotation in classes.annotations_of(cls).items():
            at = f"{where}, column '{name}'"
            annotation, nullable = without_none(annotation)
            type_, mark = classes.type_and_value(name, annotation, vars(cls).get(name, REQUIRED), at, lists=False)
            if isinstance(mark, Key) and nullable:
                raise DeclarationError(f"{at}: a key cannot be None; leave out `| None`")
            if isinstance(mark, Key | Index) and "key" not in type_.traits.roles:
                role = "be a key" if isinstance(mark, Key) else "be looked up by"
                raise DeclarationError(f"{at}: a float cannot {role}; use int, str or ps.decimal")
            if isinstance(mark, Key):
                columns.append(Column(name, type_, key=True))
                continue
            index = isinstance(mark, Index)
            default = classes.default_of(mark.default if index else mark, type_, at, nullable=nullable)
            columns.append(Column(name, type_, default=default, index=index, nullable=nullable))
        # Keys come first, whatever the order in the class: Stock[w, i] takes them in this order.
        return tuple(sorted(columns, key=lambda c: not c.key))

    def _add_window(self, cls: type, *, rows: Any, time: Any, slide: Any) -> WindowDef:
        where = classes.where_of("window", cls)
        self._refuse_name(cls.__name__, where, self.program.windows)
        check_size(where, rows, time, slide)
        classes.refuse_extras(cls, where, ())
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
        where = classes.where_of("event", cls)
        self._refuse_name(cls.__name__, where, self.program.events)
        others = replace(self.program, events=tuple(e for e in self.program.events if e.name != cls.__name__))
        if len(others.events) == MAX_EVENTS:
            raise DeclarationError(
                f"{where} is one too many: app '{self.program.name}' has {MAX_EVENTS} events, and more cannot be told "
                "apart; declare one event with a field that says which kind it is, or make two apps"
            )
        classes.refuse_extras(cls, where, ())
        fields = []
        marks: dict[str, str] = {}
        unique: datetime.timedelta | int | None = None
        for name, annotation in classes.annotations_of(cls).items():
            at = f"{where}, field '{name}'"
            annotation, nullable = without_none(annotation)
            type_, mark = classes.type_and_value(name, annotation, vars(cls).get(name, REQUIRED), at, lists=True)
            _refuse_odd_mark(mark, type_, at, nullable=nullable)
            if isinstance(mark, Order | Id):
                kind = "order" if isinstance(mark, Order) else "id"
                if kind in marks:
                    raise DeclarationError(f"{at}: '{marks[kind]}' is the {kind} already; an event has one")
                marks[kind] = name
                unique = classes.span_of(mark.unique, at) if isinstance(mark, Id) else unique
                mark = REQUIRED
            fields.append(Field(name, type_, classes.default_of(mark, type_, at, nullable=nullable), nullable))
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
        parameter = self._parameter(function, where, self.program.transactions, ("event, with its type", "e: Transfer"))
        annotation, several = _without_list(parameter)
        event = self._event_of(annotation, function, where)
        other = self.program.transaction_of(event)
        if other is not None and other.name != function.__name__:
            raise DeclarationError(
                f"{where}: event '{event.name}' already runs transaction '{other.name}'; an event has one outcome: "
                f"{AGAIN}"
            )
        classes.refuse_odd_name(function.__name__, where)
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
        annotation = self._parameter(function, where, self.program.triggers, ("window", "w: Recent"))
        if isinstance(annotation, Window):
            window: WindowDef | None = annotation.definition
        else:
            window = self.program.window(str(annotation).rpartition(".")[2])
        if window is None or window not in self.program.windows:
            declared = ", ".join(w.name for w in self.program.windows) or "none yet"
            raise DeclarationError(f"{where}: {annotation!r} is not a window of app '{self.program.name}' ({declared})")
        classes.refuse_odd_name(function.__name__, where)
        return TriggerDef(function.__name__, function, window)

    def _parameter(
        self,
        function: Callable[..., Any],
        where: str,
        others: Iterable[TransactionDef | TriggerDef],
        takes: tuple[str, str],
    ) -> Any:
        """The annotation of the one parameter that a body has. takes: what that is, in words and in an example."""
        if not inspect.isfunction(function):
            raise DeclarationError(f"{where}: decorate a plain function")
        if any(other.name == function.__name__ for other in others) and not notebook.is_cell(function):
            raise DeclarationError(f"{where} is declared twice in app '{self.program.name}'; {AGAIN}")
        parameters = list(inspect.signature(function).parameters.values())
        if len(parameters) != 1 or parameters[0].annotation is inspect.Parameter.empty:
            what, example = takes
            raise DeclarationError(f"{where} takes one {what}: def {function.__name__}({example})")
        return parameters[0].annotation

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
        classes.refuse_odd_name(name, where)
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
        again = found is not None and found in alike and found.name == name and notebook.is_cell(classes.caller())
        if found is not None and not again:
            raise DeclarationError(f"{where} is declared twice in app '{self.program.name}'; {AGAIN}")


def _without_list(annotation: Any) -> tuple[Any, bool]:
    """A parameter's annotation, without the list[...] around it, and whether there is one."""
    if isinstance(annotation, types.GenericAlias) and annotation.__origin__ is list and len(annotation.__args__) == 1:
        return annotation.__args__[0], True
    if isinstance(annotation, str) and (found := re.fullmatch(r"\s*list\s*\[(.*)\]\s*", annotation)):
        return found[1].strip(), True
    return annotation, False


def _refuse_odd_mark(mark: Any, type_: Type, where: str, *, nullable: bool) -> None:
    """What an event's field cannot be set to."""
    if nullable and (type_.item is not None or isinstance(mark, Order | Id)):
        what = "a list" if type_.item is not None else "an order" if isinstance(mark, Order) else "an id"
        instead = "; an empty one says that there is nothing" if what == "a list" else ""
        raise DeclarationError(f"{where}: {what} cannot be None; leave out `| None`{instead}")
    if isinstance(mark, Key | Index):
        name = "ps.key()" if isinstance(mark, Key) else "ps.index()"
        raise DeclarationError(f"{where}: {name} is for a table's column; an event's field has none")
    if isinstance(mark, Order | Id):
        return
    if type_.item is not None and mark is not REQUIRED:
        raise DeclarationError(f"{where}: a list has no default; leave out `{mark!r}`")
    if mark is None and not nullable:
        raise DeclarationError(f"{where}: its default is None; write its type `{type_.traits.declared} | None`")


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
