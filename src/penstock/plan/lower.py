"""A function's body, lowered to guarded operations: statements and control flow.

While it walks the statements, a Lowering holds
    ops    the operations so far (a loop's body is a list of its own)
    env    name -> Binding, as of here
    path   the guard under which this statement runs, None for always
    dead   nothing can get here: every path has returned, aborted, or left the loop

An `if` lowers both arms under their guards and joins: names that differ get a `select`. A path
that aborts needs no guard behind it, since an abort ends the transaction; a path that returns,
breaks or continues does, so `left` remembers those.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from penstock.declare.body import Body
from penstock.declare.model import EventDef, Program, TableDef
from penstock.declare.objects import Udf
from penstock.declare.types import BOOL, INT, Type
from penstock.plan import calls, expressions, functions, lists, loops, names, nullable, records, refusals
from penstock.plan.ir import Op
from penstock.plan.numbers import arithmetic
from penstock.plan.values import (
    NONE,
    Binding,
    EventRef,
    Exit,
    Found,
    ListRef,
    MemberRef,
    Mismatch,
    RecordRef,
    SelfRef,
    Several,
    Unassigned,
    Val,
    WindowRef,
    WindowRow,
    meet,
    unscaled,
)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where lowering stands: what a Lowering holds that differs from arm to arm."""

    path: int | None
    env: dict[str, Binding]
    dead: bool
    left: bool


@dataclass(slots=True)
class Lowering:
    body: Body
    event: EventDef | None = None  # a transaction's event
    members: Val | None = None  # all events of a transaction that takes several
    table: TableDef | None = None  # a check's table
    ops: list[Op] = field(default_factory=list)
    env: dict[str, Binding] = field(default_factory=dict)
    path: int | None = None
    dead: bool = False
    left: bool = False
    exits: list[Exit] | None = None  # inside a loop
    depth: int = 0  # of loops within loops
    count: int = 0
    returns: dict[str, list[tuple[Type, int]]] = field(default_factory=dict)  # field -> (type, line)
    udfs: dict[str, Udf] = field(default_factory=dict)
    types: dict[int, Type] = field(default_factory=dict)
    self_row: int = 0
    locals: frozenset[str] = frozenset()  # names that the body assigns anywhere
    tables: tuple[TableDef, ...] | None = None  # the app's, where they are known
    events: tuple[EventDef, ...] = ()  # the app's
    program: Program | None = None  # None in a check
    windows: dict[str, int] = field(default_factory=dict)  # that are named -> the first line
    triggers: list[str] = field(default_factory=list)  # that have become a part of it, each time
    is_trigger: bool = False  # its parameter is a window
    running: tuple[str, ...] = ()  # windows whose triggers this is part of
    line: int = 0  # of the add that a trigger runs at, or of a function's call: what it does is told as of there
    frame: functions.Frame | None = None  # of a @ps.function

    # -- emitting ---------------------------------------------------------------------------

    def emit(
        self, code: str, args: tuple[int, ...] = (), type: Type | None = None, node: ast.AST | None = None, **more: Any
    ) -> int:
        self.count += 1
        line = self.line or getattr(node, "lineno", 0)
        guard = more.pop("guard", self.path)
        self.ops.append(Op(self.count, code, args, type, guard, line, **more))
        if type is not None:
            self.types[self.count] = type
        return self.count

    def value(self, code: str, type: Type, *args: Val, node: ast.AST | None = None, **more: Any) -> Val:
        return Val(self.emit(code, tuple(a.id for a in args), type, node, **more), type)

    def const(self, constant: Any, type: Type, *, literal: Any = None) -> Val:
        return Val(self.emit("const", (), type, const=constant, guard=None), type, literal)

    @contextmanager
    def trial(self) -> Iterator[None]:
        """What is lowered in here is forgotten: it is lowered to see what it gives, and once more to stay."""
        before = self.env, self.path, self.left, self.dead, self.exits, self.count
        exits, ops, triggers = self.exits and list(self.exits), len(self.ops), len(self.triggers)
        returns = {name: list(several) for name, several in self.returns.items()}
        yield
        self.env, self.path, self.left, self.dead, self.exits, self.count = before
        self.exits, self.returns = exits, returns
        del self.ops[ops:], self.triggers[triggers:]

    def both(self, a: int | None, b: int) -> int:
        """The guard "a and b"."""
        return b if a is None else self.emit("and", (a, b), BOOL, guard=None)

    def negated(self, a: int) -> int:
        return self.emit("not", (a,), BOOL, guard=None)

    def is_event(self, node: ast.expr) -> bool:
        """Whether an expression is the event that the body takes."""
        is_parameter = isinstance(node, ast.Name) and node.id == self.body.parameter
        return is_parameter and self.event is not None and not self.is_trigger

    def fresh(self, type_: Type) -> int:
        self.count += 1
        self.types[self.count] = type_
        return self.count

    # -- statements -------------------------------------------------------------------------

    def block(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            if self.dead:
                self.body.refuse(statement, "this statement can never run; remove it")
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Expr(value=ast.Constant(value=str())) | ast.Pass():
                pass
            case ast.Expr(value=ast.Call() as call):
                calls.statement(self, call)
            case ast.Assign(targets=[target], value=value):
                self.assign(target, value)
            case ast.AnnAssign(target=ast.Name() as target, value=ast.expr() as value):
                self.assign(target, value, names.annotated(self, node.annotation))
            case ast.AugAssign():
                self.augmented(node)
            case ast.If():
                self.branch(node)
            case ast.For():
                loops.lower(self, node)
            case ast.Return():
                self.returned(node)
                self.leave("return")
            case ast.Break():
                self.leave("break")
            case ast.Continue():
                self.leave("continue")
            case ast.Delete():
                for target in node.targets:
                    expressions.delete(self, target)
            case _:
                self.body.refuse(node, refusals.words(node))

    def assign(self, target: ast.expr, value: ast.expr, type_: Type | None = None) -> None:
        """type_: what an annotation says that a name is, where it may be None."""
        if isinstance(target, ast.Tuple):
            several = expressions.found(self, value)
            if not isinstance(several, Several) or len(several.values) != len(target.elts):
                self.body.refuse(value, "a tuple of names takes a tuple of as many values: a, b = x, y")
            for one, binding in zip(target.elts, several.values, strict=True):
                self.store(one, binding)
        else:
            found = lists.found(self, value) or expressions.any_value(self, value)
            if isinstance(found, Val) and type_ is not None:
                found = nullable.typed(self, found, type_)
            self.store(target, found)

    def store(self, target: ast.expr, binding: Found) -> None:
        match target:
            case ast.Name(id=name):
                if name == self.body.parameter:
                    what = "the window" if self.is_trigger else "the event"
                    what = what if self.members is None else "the list of events"
                    self.body.refuse(target, f"'{name}' is {what}; use another name")
                self.env[name] = binding
            case ast.Attribute():
                if isinstance(binding, RecordRef):
                    self.body.refuse(target, "a column holds a value, not a record; store its key")
                if not isinstance(binding, Val):
                    self.body.refuse(target, "a column holds one value; no list, window or row of it, or event")
                expressions.write_column(self, target, binding)
            case ast.Subscript():
                self.body.refuse(
                    target, "a record is changed column by column: Account[k].balance = 5, or Account.insert(k, …)"
                )
            case _:
                self.body.refuse(target, "assign to a name or to a record's column")

    def augmented(self, node: ast.AugAssign) -> None:
        match node.target:
            case ast.Name() | ast.Attribute():
                # Python evaluates the record once and reads it before the right side.
                target: Any = node.target
                if isinstance(target, ast.Attribute):
                    expressions.refuse_event(self, target)
                    found = expressions.record(self, target.value)
                    old = records.read(self, found, target)
                    right = expressions.nullable_value(self, node.value)
                    result = arithmetic(self, node.op, old, right, node)
                    expressions.write_record(self, found, target, result)
                else:
                    old = expressions.nullable_value(self, ast.copy_location(ast.Name(target.id, ast.Load()), target))
                    right = expressions.nullable_value(self, node.value)
                    self.store(target, arithmetic(self, node.op, old, right, node))
            case _:
                self.body.refuse(node, "change a name or a record's column")

    # -- branches ---------------------------------------------------------------------------

    def branch(self, node: ast.If) -> None:
        """An `elif` is an `if` in the other arm. A loop goes along them: there may be more than Python can nest."""
        opened = []
        while True:
            test = expressions.condition(self, node.test)
            before, other = self._here(), self.negated(test.id)
            self._enter(before, test.id)
            self.block(node.body)
            opened.append((node, test, before, self._here()))
            self._enter(before, other)
            match node.orelse:
                case [ast.If() as node]:
                    continue
                case statements:
                    self.block(statements)
            break
        for node, test, before, arm in reversed(opened):
            self._join_arms(node, test, before, arm)

    def _here(self) -> _Place:
        return _Place(self.path, self.env, self.dead, self.left)

    def _enter(self, before: _Place, guard: int) -> None:
        self.path, self.env, self.dead, self.left = self.both(before.path, guard), dict(before.env), False, False

    def _join_arms(self, node: ast.If, test: Val, before: _Place, a: _Place) -> None:
        """Go on behind an `if`; a: where its first arm has ended. The other one ends here."""
        b = self._here()
        self.dead, self.left = a.dead and b.dead, before.left or a.left or b.left
        if a.dead or b.dead:
            self.env, self.path = (b.env, b.path) if a.dead else (a.env, a.path)
        else:
            self.path = None
            self.env = {n: self.join(node, n, test, a.env.get(n), b.env.get(n)) for n in {**a.env, **b.env}}
            assert a.path is not None and b.path is not None
            self.path = self.emit("or", (a.path, b.path), BOOL, guard=None)
        if not (a.left or b.left):
            self.path = before.path

    def join(self, node: ast.AST, name: str, test: Val, a: Binding | None, b: Binding | None) -> Binding:
        if a is None or b is None or isinstance(a, Unassigned) or isinstance(b, Unassigned):
            return next((x for x in (a, b) if isinstance(x, Unassigned)), Unassigned(getattr(node, "lineno", 0)))
        if a == b:
            return a
        if isinstance(a, ListRef | Several) or isinstance(b, ListRef | Several):
            self.body.refuse(node, f"'{name}' is not the same list on both paths; use two names")
        if isinstance(a, MemberRef | EventRef | SelfRef) or isinstance(b, MemberRef | EventRef | SelfRef):
            self.body.refuse(node, f"'{name}' is an event on one path and something else on another; use two names")
        if isinstance(a, WindowRef | WindowRow) or isinstance(b, WindowRef | WindowRow):
            self.body.refuse(node, f"'{name}' is not the same window or row on both paths; use two names")
        if isinstance(a, RecordRef) or isinstance(b, RecordRef):
            return self.join_records(node, name, test, a, b)
        return self.select(node, f"'{name}'", test, a, b)

    def join_records(self, node: ast.AST, name: str, test: Val, a: Val | RecordRef, b: Val | RecordRef) -> RecordRef:
        if not (isinstance(a, RecordRef) and isinstance(b, RecordRef)) or (a.table, a.optional) != (
            b.table,
            b.optional,
        ):
            self.body.refuse(node, f"'{name}' is not the same kind of record on both paths; use two names")
        keys = [self.select(node, f"'{name}'", test, x, y) for x, y in zip(a.keys, b.keys, strict=True)]
        return RecordRef(a.table, tuple(keys), a.optional)

    def select(self, node: ast.AST, what: str, test: Val, a: Val, b: Val) -> Val:
        """One value that is a where the test holds and b elsewhere."""
        if (a.id, a.why) == (b.id, b.why):
            return a
        type_, loose = self.meeting(node, what, a, b)
        x, y = self.bend(a, type_), self.bend(b, type_)
        why = None
        if a.why is not None or b.why is not None:
            several = (test.id, nullable.why(self, a), nullable.why(self, b))
            why = self.emit("select", several, INT, guard=None)
        chosen = x.id if x.id == y.id else self.emit("select", (test.id, x.id, y.id), type_, guard=None)
        return Val(chosen, type_, None, loose, why)

    def meeting(self, node: ast.AST, what: str, a: Val, b: Val) -> tuple[Type, bool]:
        if NONE in (a.type, b.type):
            known = b if a.type == NONE else a
            return known.type, known.loose
        try:
            return meet(a, b)
        except Mismatch as why:
            self.body.refuse(node, f"{what}: {why}")

    def bend(self, value: Val, type_: Type) -> Val:
        """A literal as a constant of the type it has met; anything else has that type already."""
        if value.type == type_:
            return value
        if value.type == NONE:
            return nullable.typed(self, value, type_)
        if type_.kind == "float":
            return self.const(float(value.literal), type_)
        return self.const(unscaled(value.literal, type_.scale), type_)

    # -- leaving ----------------------------------------------------------------------------

    def returned(self, node: ast.Return) -> None:
        value = node.value
        if self.frame is not None:
            functions.returned(self, node)
            return
        if self.table is not None:
            holds = self.const(False, BOOL) if value is None else expressions.condition(self, value)
            self.emit("return", (holds.id,), name="holds", node=node)
            return
        if value is None or (isinstance(value, ast.Constant) and value.value is None):
            return
        if self.is_trigger:
            self.body.refuse(value, "a trigger returns nothing; return from the transaction that adds to the window")
        if not isinstance(value, ast.Dict):
            self.body.refuse(value, 'return a dict of named fields: return {"left": src.balance}')
        fields = []
        for key, one in zip(value.keys, value.values, strict=True):
            if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
                self.body.refuse(key or value, "a returned field's name is a constant string")
            names.outcome_field(self, key.value, key)
            if isinstance(one, ast.Constant) and one.value is None:
                continue
            fields.append((key.value, expressions.nullable_value(self, one)))
        for name, given in dict(fields).items():
            if given.type == NONE:
                continue
            self.returns.setdefault(name, []).append((given.type, node.lineno))
            self.emit("return", (given.id,), name=name, node=node, guard=self.there(given))

    def there(self, found: Val, path: int | None = None) -> int | None:
        """The guard under which a value is given here, which is not None."""
        path = self.path if path is None else path
        return path if found.why is None else self.both(path, self.negated(nullable.is_none(self, found).id))

    def leave(self, kind: str) -> None:
        if self.exits is not None:
            self.exits.append(Exit(kind, self.path, dict(self.env)))
        self.dead = self.left = True
