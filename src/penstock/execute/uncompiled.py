"""A body as plain Python: what it touches while it runs uncompiled.

    uncompiled(function)   a copy of the function whose numbers are checked ones
    EventView              its argument: reading a null field aborts
    Transaction            how `Account[k]` and its kin reach the tables; the `Accesses` of objects.py
    Record                 what they give: a table and a key, which looks through at each use

Plain Python is not quite what a body means: Python's ints have no end, and `decimal.Decimal`
rounds and floors otherwise. So in the copy every name, attribute, call and literal that is
read passes through `lift`, which makes numbers checked ones; the copy is otherwise the function.
"""

from __future__ import annotations

import ast
import datetime
import textwrap
import types
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass
from typing import Any

from penstock.declare import constants, notebook, objects
from penstock.declare.constants import is_collection
from penstock.declare.model import EventDef, TableDef, WindowDef
from penstock.declare.null import Null, is_none, use
from penstock.errors import Aborted
from penstock.execute import scans
from penstock.execute.aggregates import REFERENCES, Turns
from penstock.execute.values import convert, lift, lower, made, negated
from penstock.execute.windows import Rows, Windows, WindowView, add, seen
from penstock.plan.flow import TOO_MANY

EPOCH, MICROSECOND = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC), datetime.timedelta(microseconds=1)

Key = tuple[Any, ...]
Row = dict[str, Any]  # the columns beside the key, as a body sees them


class EventView:
    """An event as a body sees it: reading a null field aborts."""

    # Two underscores, which Python spells _EventView__values: a field can have any other name.
    __slots__ = ("__definition", "__values")

    def __init__(self, definition: EventDef, values: dict[str, Any]) -> None:
        self.__definition = definition
        self.__values = values

    def __getattr__(self, name: str) -> Any:
        field = self.__definition.field(name)
        if field is None:
            raise AttributeError(f"event '{self.__definition.name}' has no field '{name}'")
        value = self.__values[name]
        if value is None and field.nullable:
            return Null(f"null {name}")
        if value is None or (field.type.item is not None and None in value):
            raise Aborted(f"null {name}")
        if field.type.item is not None:
            return Items(convert(lift(v), field.type.item) for v in value)
        return convert(lift(value), field.type)


class Items(list[Any]):
    """A list of an event, or a part of it."""

    def __getitem__(self, place: Any) -> Any:
        try:
            found = super().__getitem__(place)
        except IndexError:
            raise Aborted("index out of range") from None
        return Items(found) if isinstance(place, slice) else found


@dataclass(frozen=True, slots=True)
class Clock:
    """Times are values of ts."""

    now: Any  # None before anything has run
    until: Any  # timers up to here run before the next event does
    room: int  # how many more of these may be set

    def tick(self) -> Any:
        """The next moment."""
        return lift(self.now) + (1 if isinstance(self.now, int) else datetime.timedelta(microseconds=1))


class Transaction:
    """The way of a transaction, and of those nested in it, to tables and windows: what it wrote, and how to put it
    back; and what it emitted: an event, its fields, and when it runs, or None. room: how much more it may emit."""

    def __init__(self, tables: dict[str, dict[Key, Row]], windows: Windows, room: int, clock: Clock) -> None:
        self.tables, self._windows, self._room, self._clock = tables, windows, room, clock
        self.emitted: list[tuple[EventDef, dict[str, Any], Any]] = []
        self.written: dict[tuple[str, Key], None] = {}  # in order of first write
        self._before: dict[tuple[str, Key], Row | None] = {}
        self._kept_before: dict[tuple[str, Key], Rows] = {}

    def existing(self, table: TableDef, key: Key) -> Record:
        record = Record(self, table, _key(table, key), optional=False)
        self.row(table, _key(table, key))
        return record

    def optional(self, table: TableDef, key: Key) -> Record:
        return Record(self, table, _key(table, key), optional=True)

    def contains(self, table: TableDef, key: Key) -> bool:
        return _key(table, key) in self.tables[table.name]

    def insert(self, table: TableDef, key: Key, values: dict[str, Any]) -> Record:
        key = _key(table, key)
        given = {c.name: convert(values[c.name], c.type, nullable=c.nullable) for c in table.values if c.name in values}
        if key in self.tables[table.name]:
            raise Aborted(f"exists {table.name}")
        self.write(table, key, {**{c.name: lift(c.default) for c in table.values}, **given})
        return Record(self, table, key, optional=False)

    def delete(self, table: TableDef, key: Key) -> None:
        key = _key(table, key)
        self.row(table, key)
        self._remember(table, key)
        del self.tables[table.name][key]

    def window(self, window: WindowDef, key: Key) -> WindowView:
        return WindowView(self, window, tuple(convert(k, c.type) for k, c in zip(key, window.keys, strict=True)))

    def seen(self, window: WindowDef, key: Key) -> list[Row]:
        kept = self._windows.kept[window.name].get(key, Rows())
        first, end = seen(window, kept, self._time(window))
        return [row for _, row in kept.rows[first:end]]

    def add(self, window: WindowDef, key: Key, row: Row) -> None:
        """One row more; what it makes slide runs the window's triggers."""
        several = self._windows.kept[window.name]
        before = several.get(key, Rows())
        several[key], came, left = add(window, before, row, self._time(window))
        self._kept_before.setdefault((window.name, key), before)
        if came or left:
            for trigger in self._windows.triggers[window.name]:
                trigger(WindowView(self, window, key, (came, left)))

    def _time(self, window: WindowDef) -> int:
        """The clock as a number; rows are counted without one."""
        if window.rows is not None:
            return 0
        clock = lower(self.now())
        return (clock - EPOCH) // MICROSECOND if isinstance(clock, datetime.datetime) else int(clock)

    def emit(self, event: EventDef, values: dict[str, Any], at: Any) -> None:
        given = {f.name: lower(convert(lift(values[f.name]), f.type, nullable=f.nullable)) for f in event.fields}
        use(at)
        if len(self.emitted) == self._room:
            raise Aborted(TOO_MANY)
        self.emitted.append((event, given, None if at is None else self._later(at)))

    def _later(self, at: Any) -> Any:
        """When a timer runs: after now."""
        clock = self._clock
        self.now()
        later = lower(at if at > clock.now else clock.tick())
        on_the_way = [when for _, _, when in self.emitted if when is not None and when <= clock.until]
        if later <= clock.until and len(on_the_way) == clock.room:
            raise Aborted(TOO_MANY)
        return later

    def now(self) -> Any:
        if self._clock.now is None:
            raise Aborted("no clock yet")
        return lift(self._clock.now)

    def scan(self, table: TableDef, way: str, names: tuple[str, ...], values: tuple[Any, ...]) -> scans.Scan:
        found = scans.keys(table, self.tables[table.name], way, names, values)
        return scans.Scan(table, [Record(self, table, key, optional=False) for key in found])

    def row(self, table: TableDef, key: Key) -> Row:
        found = self.tables[table.name].get(key)
        if found is None:
            raise Aborted(f"missing {table.name}")
        return found

    def write(self, table: TableDef, key: Key, row: Row) -> None:
        self._remember(table, key)
        self.written.setdefault((table.name, key))
        self.tables[table.name][key] = row

    def _remember(self, table: TableDef, key: Key) -> None:
        # Rows are replaced, never changed in place, so the old one can be kept as it is.
        self._before.setdefault((table.name, key), self.tables[table.name].get(key))

    @property
    def changed(self) -> Iterable[tuple[str, Key]]:
        """The records that it wrote or deleted."""
        return self._before

    def undo(self) -> None:
        for (name, key), row in self._before.items():
            self.tables[name].pop(key, None)
            if row is not None:
                self.tables[name][key] = row
        for (name, key), kept in self._kept_before.items():
            self._windows.kept[name][key] = kept


def _key(table: TableDef, key: Key) -> Key:
    return tuple(convert(k, c.type) for k, c in zip(key, table.keys, strict=True))


class Record:
    """A table and a key: each use looks at the table as it is at that moment."""

    __slots__ = ("__key", "__optional", "__table", "__transaction")

    def __init__(self, transaction: Transaction, table: TableDef, key: Key, *, optional: bool) -> None:
        for name, value in (("transaction", transaction), ("table", table), ("key", key), ("optional", optional)):
            object.__setattr__(self, f"_Record__{name}", value)

    def __row(self) -> Row:
        """The record's columns; those of one that is not there yet are the defaults."""
        table, key = self.__table, self.__key
        if self.__optional and key not in self.__transaction.tables[table.name]:
            return {c.name: lift(c.default) for c in table.values}
        return self.__transaction.row(table, key)

    def __getattr__(self, name: str) -> Any:
        row = self.__row()
        names = [c.name for c in self.__table.keys]
        if name in names:
            return self.__key[names.index(name)]
        if (method := self.__table.method(name)) is not None:
            return types.MethodType(method, self)
        if name not in row:
            raise AttributeError(f"table '{self.__table.name}' has no column '{name}'")
        return Null(f"null {name}") if row[name] is None else row[name]

    def __setattr__(self, name: str, value: Any) -> None:
        column = self.__table.column(name)
        if column is None or column.key:
            raise AttributeError(f"table '{self.__table.name}' has no column '{name}' that can be written")
        value = convert(value, column.type, nullable=column.nullable)
        self.__transaction.write(self.__table, self.__key, {**self.__row(), name: value})


Copies = dict[Callable[..., Any], Callable[..., Any]]


def uncompiled(function: Callable[..., Any], copies: Copies | None = None) -> Callable[..., Any]:
    """A copy of the function whose numbers are checked ones. copies: of those that it calls, marked @ps.function."""
    copies = {} if copies is None else copies
    source, first = notebook.source(function)
    tree = ast.parse(textwrap.dedent(source))
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef), function
    definition.decorator_list = []
    definition.returns = None
    arguments = definition.args  # what they are if nobody gives them is known already
    arguments.defaults = [ast.Constant(None) for _ in arguments.defaults]
    arguments.kw_defaults = [None if one is None else ast.Constant(None) for one in arguments.kw_defaults]
    tree = _Lifted().visit(tree)
    ast.increment_lineno(tree, first - 1)
    outside = {name: _as_now(value) for name, value in (function.__globals__ | _closure(function)).items()}
    scope = {**outside, _LIFT: lambda value: _lift(value, copies), _NEGATED: negated, _MADE: made, _TURNS: Turns}
    scope |= {_IS_NONE: is_none, _NONE: Null("null"), _VALUE: _value}
    exec(compile(ast.fix_missing_locations(tree), function.__code__.co_filename, "exec"), scope)
    copied = scope[function.__name__]
    assert isinstance(copied, types.FunctionType) and isinstance(function, types.FunctionType)
    copied.__defaults__ = function.__defaults__ and tuple(_or_null(lift(one)) for one in function.__defaults__)
    copied.__kwdefaults__ = {name: _or_null(lift(value)) for name, value in (function.__kwdefaults__ or {}).items()}
    return copied


def _copy_of(function: Callable[..., Any], copies: Copies) -> Callable[..., Any]:
    if function not in copies:
        copies[function] = uncompiled(function, copies)
    return copies[function]


def _as_now(value: Any) -> Any:
    """What a name stands for: a table that the app declares anew, in a notebook, changes nothing here."""
    return copy(value) if isinstance(value, objects.Table | objects.EventType | objects.Window) else value


# Not names that a body could have.
_LIFT, _NEGATED, _MADE, _TURNS, _ITEMS = "(lift)", "(negated)", "(made)", "(turns)", "(items)"
_IS_NONE, _NONE, _VALUE = "(is none)", "(none)", "(value)"


def _lift(value: Any, copies: Copies) -> Any:
    if objects.is_function(value):
        return _copy_of(value, copies)
    if isinstance(value, types.MethodType) and objects.is_function(value.__func__):
        return types.MethodType(_copy_of(value.__func__, copies), value.__self__)
    if is_collection(value):
        return _collection(value)
    reference = REFERENCES.get(value) if isinstance(value, types.BuiltinFunctionType) else None
    return _or_null(lift(value)) if reference is None else reference


class _Table(dict[Any, Any]):
    """A constant dict."""

    def __missing__(self, key: Any) -> Any:
        use(key)
        raise Aborted("missing key")


def _collection(value: Any) -> Any:
    if isinstance(value, dict):
        keys = (_or_null(lift(key)) for key in value)
        return _Table(zip(keys, (_or_null(lift(one)) for one in constants.values(value)), strict=True))
    return type(value)(_or_null(lift(one)) for one in value)


def _or_null(value: Any) -> Any:
    """None that stands outside the body, as it stands for one inside."""
    return Null("null") if value is None else value


def _value(owner: Any) -> Any:
    """x.value: a member of an Enum is its value already."""
    return use(owner) if isinstance(owner, str | int | Null) else owner.value


class _Lifted(ast.NodeTransformer):
    """Passes every name, attribute, call and literal int or string that is read through `lift`; drops annotations."""

    def _lift(self, node: Any) -> Any:
        self.generic_visit(node)
        if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            return node
        return _call(_LIFT, node, node)

    visit_Name = visit_Call = _lift

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        if node.attr != "value" or not isinstance(node.ctx, ast.Load):
            return self._lift(node)
        self.generic_visit(node)
        return _call(_LIFT, _call(_VALUE, node.value, node), node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> Any:
        """It stays a generator, and what it goes through can be asked for."""
        self.generic_visit(node)
        first = node.generators[0]
        items, first.iter = first.iter, ast.Name(_ITEMS, ast.Load())
        arguments = ast.arguments([], [ast.arg(_ITEMS)], None, [], [], None, [])
        call = ast.Call(ast.Name(_TURNS, ast.Load()), [items, ast.Lambda(arguments, node)], [])
        return ast.fix_missing_locations(ast.copy_location(call, node))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        self.generic_visit(node)
        if not isinstance(node.op, ast.USub):
            return node
        return _call(_NEGATED, node.operand, node)

    # A long sum nests to the left, and a long elif in the other arm, more deeply than Python can: loops go along them.

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        inner = node
        while isinstance(inner.left, ast.BinOp):
            inner.right = self.visit(inner.right)
            inner = inner.left
        self.generic_visit(inner)
        return node

    def visit_If(self, node: ast.If) -> Any:
        inner = node
        while len(inner.orelse) == 1 and isinstance(inner.orelse[0], ast.If):
            inner.test, inner.body = self.visit(inner.test), [self.visit(one) for one in inner.body]
            inner = inner.orelse[0]
        self.generic_visit(inner)
        return node

    def visit_Compare(self, node: ast.Compare) -> Any:
        """`x is None` asks for what stands for None here."""
        self.generic_visit(node)
        match node:
            case ast.Compare(ops=[ast.Is() | ast.IsNot() as op], comparators=[ast.Name(id="(none)")]):
                asked = _call(_IS_NONE, node.left, node)
                return asked if isinstance(op, ast.Is) else ast.copy_location(ast.UnaryOp(ast.Not(), asked), node)
        # Of a member of an Enum: that is its value here, and of equal strings there may be several.
        instead: dict[type, ast.cmpop] = {ast.Is: ast.Eq(), ast.IsNot: ast.NotEq()}
        node.ops = [instead.get(type(op), op) for op in node.ops]
        return node

    def visit_Constant(self, node: ast.Constant) -> Any:
        if node.value is None:
            return ast.copy_location(ast.Name(_NONE, ast.Load()), node)
        return self._lift(node) if type(node.value) in (int, str) else node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> Any:
        """What stands between its braces; the rest is no expression of its own."""
        for one in node.values:
            if isinstance(one, ast.FormattedValue):
                one.value = self.visit(one.value)
        return _call(_MADE, node, node)

    def visit_arg(self, node: ast.arg) -> Any:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        plain = ast.Pass() if node.value is None else ast.Assign([node.target], node.value)
        return self.generic_visit(ast.copy_location(plain, node))


def _call(name: str, argument: ast.expr, node: ast.expr) -> ast.expr:
    return ast.copy_location(ast.Call(ast.copy_location(ast.Name(name, ast.Load()), node), [argument], []), node)


def _closure(function: Callable[..., Any]) -> dict[str, Any]:
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return found
