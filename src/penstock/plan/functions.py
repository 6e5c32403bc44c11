"""Functions marked @ps.function: a call becomes what the function does, in its place and under its guard.

    @ps.function
    def fee(amount, rate=RATE):             %7  lt(%5, %6)          the first return's guard
        if amount < LEAST:                  %8  const 0.00
            return Decimal("0.00")          %9  mul(%5, …)          if not %7
        return amount * rate                %10 select(%7, %8, %9)  what the call gives

Its parameters are names of its own, bound to what the call gives: values, records, the event, lists. So a key that it
is handed is as foreseen as one that stands in the body. What returns from a loop is a carry of that loop, `_RESULT`.
"""

from __future__ import annotations

import ast
import inspect
import types
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock.declare import body as bodies
from penstock.declare.objects import is_function
from penstock.declare.types import BOOL, INT
from penstock.plan import aggregates, expressions, loops, names, nullable
from penstock.plan.values import NONE, Found, Iterated, RecordRef, SelfRef, Several, Val

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.plan.lower import Lowering

# No name that a body can have.
_RESULT = "(result)"
# A transaction with more values than this calls no more functions: two calls in each of a chain of functions double
# them with every link.
MOST_VALUES = 20_000


@dataclass(slots=True)
class Frame:
    """A function while it is lowered: how it has ended so far, outside loops, and what it returned inside of one."""

    function: types.FunctionType
    outer: Frame | None
    ends: list[tuple[int | None, Found | None]] = field(default_factory=list)  # guard, and what it returned there
    looped: dict[ast.Return, Found] = field(default_factory=dict)

    def running(self) -> list[types.FunctionType]:
        """The functions that are being lowered, this one last."""
        return [*(self.outer.running() if self.outer is not None else []), self.function]


def method(lo: Lowering, node: ast.expr) -> tuple[types.FunctionType, RecordRef | SelfRef] | None:
    """A function of a table, and the record that it is asked of: `account.available`; None where it is none."""
    if not isinstance(node, ast.Attribute) or names.static(lo, node) is not bodies.MISSING:
        return None
    of = _self(lo, node.value)
    if of is None and not _may_be_record(lo, node):
        return None
    record = of or expressions.any_value(lo, node.value)
    table = lo.table if isinstance(record, SelfRef) else record.table if isinstance(record, RecordRef) else None
    function = None if table is None else table.method(node.attr)
    if not isinstance(function, types.FunctionType):
        known = "" if table is None or not table.methods else f"; it has {', '.join(f.__name__ for f in table.methods)}"
        what = "a value" if table is None else f"table '{table.name}'"
        lo.body.refuse(node, f"{what} has no method '{node.attr}'{known}")
    assert isinstance(record, RecordRef | SelfRef)
    return function, record


def _self(lo: Lowering, node: ast.expr) -> SelfRef | None:
    """The record that a check looks at."""
    if lo.table is None or not isinstance(node, ast.Name):
        return None
    return SelfRef() if node.id == lo.body.parameter or isinstance(lo.env.get(node.id), SelfRef) else None


def _may_be_record(lo: Lowering, node: ast.Attribute) -> bool:
    """Whether it is a method of some table, asked of a name or of `Account[k]`; nothing is lowered to find out."""
    if not any(table.method(node.attr) for table in lo.tables or ()):
        return False
    match node.value:
        case ast.Name(id=name):
            return isinstance(lo.env.get(name), RecordRef)
        case ast.Call(func=function) if is_function(names.static(lo, function)):
            return True
        case ast.Subscript(value=base) | ast.Call(func=ast.Attribute(value=base)):
            return names.table_of(lo, base) is not None
    return False


def called(lo: Lowering, node: ast.Call) -> tuple[types.FunctionType, list[Found]] | None:
    """The @ps.function that a call is of, and what is given before its arguments; None where it is of none."""
    function = names.static(lo, node.func)
    if is_function(function):
        return function, []
    of = method(lo, node.func)
    return None if of is None else (of[0], [of[1]])


def value(lo: Lowering, node: ast.Call) -> Found | None:
    """What a call gives; None where it is of no @ps.function."""
    found = called(lo, node)
    if found is None:
        return None
    inner = _run(lo, *found, node)
    assert inner.frame is not None
    name, ends = found[0].__name__, [*inner.frame.ends, *([] if inner.dead else [(inner.path, None)])]
    if all(one is None for _, one in ends):
        inner.body.refuse(inner.body.tree, f"'{name}' returns nothing, so it gives no value; call it as a statement")
    *others, last = [(guard, nullable.none(inner) if one is None else one) for guard, one in ends]
    total = last[1]
    for guard, one in reversed(others):
        total = one if guard is None else _select(inner, name, Val(guard, BOOL), one, total)
    lo.count = inner.count
    return total


def statement(lo: Lowering, node: ast.Call) -> bool:
    """A call for its effect; whether it is one of a @ps.function."""
    found = called(lo, node)
    if found is None:
        return False
    inner = _run(lo, *found, node)
    assert inner.frame is not None
    lo.dead = inner.dead and not inner.frame.ends  # it aborts on every path
    return True


def _run(lo: Lowering, function: types.FunctionType, first: list[Found], node: ast.Call) -> Lowering:
    """Lower the function in place of the call; the Lowering of its body, behind it."""
    name = function.__name__
    running = [] if lo.frame is None else lo.frame.running()
    if function in running:
        chain = " → ".join(f.__name__ for f in [*running[running.index(function) :], function])
        lo.body.refuse(node, f"'{name}' calls itself ({chain}), which cannot be compiled; use a loop, or emit an event")
    if lo.count > MOST_VALUES:
        lo.body.refuse(
            node,
            f"'{name}' would be one more part of a transaction that has {MOST_VALUES} operations already, since each "
            "call is compiled in its place; call it in a loop, or in fewer places",
        )
    at = f"; called in {lo.body.label} ({lo.body.file}:{node.lineno}){lo.body.called}"
    body = bodies.parsed(function, f"function '{name}'", at)
    env = _bound(lo, body, function, first, node)
    inner = replace(
        lo,
        body=body,
        env=dict(env),
        locals=bodies.stored(body) | env.keys(),
        line=lo.line or node.lineno,
        frame=Frame(function, lo.frame),
        exits=None,
        left=False,
        dead=False,
    )
    inner.block(body.tree.body)
    lo.count, lo.returns = inner.count, inner.returns
    return inner


def _bound(
    lo: Lowering, body: bodies.Body, function: types.FunctionType, first: list[Found], node: ast.Call
) -> dict[str, Found]:
    """Parameter -> what the call gives for it, evaluated as Python does."""
    signature = inspect.signature(function)
    for one in signature.parameters.values():
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            body.refuse(body.tree, f"'{one.name}' takes any number of arguments, which cannot be compiled; name each")
    if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
        lo.body.refuse(node, "* and ** cannot be compiled; write the arguments out")
    places = [*first, *(expressions.found(lo, a) for a in node.args)]
    given = {str(k.arg): expressions.found(lo, k.value) for k in node.keywords}
    try:
        bound: dict[str, Found] = dict(signature.bind(*places, **given).arguments)
    except TypeError as error:
        lo.body.refuse(node, f"{function.__name__}{_shown(signature)}: {error}")
    for one in signature.parameters.values():
        if one.name not in bound:
            bound[one.name] = names.global_value(lo, one.default, f"{one.name}={one.default!r}", node)
    return bound


def _shown(signature: inspect.Signature) -> str:
    """Its parameters, without their types."""
    bare = [one.replace(annotation=inspect.Parameter.empty) for one in signature.parameters.values()]
    return str(inspect.Signature(bare))


def _select(lo: Lowering, name: str, test: Val, a: Found, b: Found) -> Found:
    what = f"what '{name}' returns"
    if a == b:
        return a
    if isinstance(a, Several) and isinstance(b, Several) and len(a.values) == len(b.values):
        return Several(tuple(_select(lo, name, test, x, y) for x, y in zip(a.values, b.values, strict=True)))
    if isinstance(a, RecordRef) or isinstance(b, RecordRef):
        if isinstance(a, Val | RecordRef) and isinstance(b, Val | RecordRef):
            return lo.join_records(lo.body.tree, name, test, a, b)
    if not isinstance(a, Val) or not isinstance(b, Val):
        lo.body.refuse(lo.body.tree, f"{what} is not the same kind of thing on every path; return one kind")
    return lo.select(lo.body.tree, what, test, a, b)


# -- return -------------------------------------------------------------------------------------


def returned(lo: Lowering, node: ast.Return) -> None:
    """`return` in a function: outside of loops one of its ends; inside, what a carry of the loop becomes."""
    assert lo.frame is not None
    given = None if node.value is None else expressions.found(lo, node.value)
    if lo.exits is None:
        lo.frame.ends.append((lo.path, given))
    else:
        given = nullable.none(lo) if given is None else given
        if not isinstance(given, Val | RecordRef):
            lo.body.refuse(node, "from a loop a function returns one value or record; set names, and return behind it")
        lo.frame.looped[node] = given
        if _RESULT in lo.env:
            lo.env[_RESULT] = given


def carry(
    lo: Lowering, node: ast.For, over: Iterated, changed: tuple[str, ...], turn: Callable[[], None] | None
) -> tuple[str, ...]:
    """Before a loop that a function returns from: the name that carries what is returned, with a value of its type."""
    if lo.frame is None or not any(isinstance(n, ast.Return) and n.value is not None for n in ast.walk(node)):
        return ()
    if lo.exits is not None and _RESULT in lo.env:  # the loop around this one has made it
        return (_RESULT,)
    found = _look(lo, node, over, changed, turn)
    first = found[0]
    for other in found[1:]:
        first = _like(lo, node, first, other)
    if isinstance(first, Val) and first.type == NONE:  # whatever returned, it is None
        return ()
    lo.env[_RESULT] = _zero(lo, first)
    return (_RESULT,)


def _look(
    lo: Lowering, node: ast.For, over: Iterated, changed: tuple[str, ...], turn: Callable[[], None] | None
) -> list[Found]:
    """What a loop's turns return: it is lowered, and that forgotten."""
    assert lo.frame is not None
    ends, looped = list(lo.frame.ends), lo.frame.looped
    with lo.trial():
        lo.frame.looped = {}
        lo.env = {name: one for name, one in lo.env.items() if name != _RESULT}
        loops.once(lo, node, over, changed, turn)
        found = list(lo.frame.looped.values())
    lo.frame.ends, lo.frame.looped = ends, looped
    return found


def _like(lo: Lowering, node: ast.For, a: Found, b: Found) -> Found:
    if isinstance(a, Val) and isinstance(b, Val):
        type_, _ = lo.meeting(node, "what this loop returns", a, b)
        return b if b.type == type_ and b.literal is None else a if a.type == type_ else b
    return a  # that they differ is told where they meet


def _zero(lo: Lowering, like: Found) -> Any:
    """What nobody sees: no turn has returned yet."""
    if isinstance(like, RecordRef):
        return replace(like, keys=tuple(aggregates.nothing(lo, key.type) for key in like.keys))
    assert isinstance(like, Val)
    if like.literal is not None and like.type == INT:
        return lo.const(0, like.type, literal=0)
    return aggregates.nothing(lo, like.type)


def ended(lo: Lowering, guard: int) -> None:
    """Behind a loop, outside of others, some turn of which may have returned."""
    assert lo.frame is not None
    result = lo.env.get(_RESULT)
    assert result is None or isinstance(result, Val | RecordRef)
    lo.frame.ends.append((guard, result))
