"""Calls in a body: ps.abort, ps.require, ps.emit, built-in functions, udfs, and what a loop runs over."""

from __future__ import annotations

import ast
import types
from typing import TYPE_CHECKING

from penstock.declare import objects
from penstock.declare.body import MISSING
from penstock.declare.model import when_aborted
from penstock.declare.types import BOOL, FLOAT, INT, Type
from penstock.plan import (
    builtins,
    constants,
    emits,
    expressions,
    functions,
    lists,
    making_times,
    methods,
    names,
    scans,
    times,
    windows,
)
from penstock.plan.ir import MEMBERS
from penstock.plan.nullable import is_none, use
from penstock.plan.numbers import arithmetic
from penstock.plan.values import Found, Iterated, Several, Val, in_body

if TYPE_CHECKING:
    from penstock.plan.lower import Lowering


def supported() -> str:
    """What may be called, for messages."""
    called = [row.name for row in builtins.BUILTINS]
    return f"{', '.join(called)}, ps.abort, ps.require, ps.emit, ps.now and functions marked @ps.function or @ps.udf"


def statement(lo: Lowering, node: ast.Call) -> None:
    """A call for its effect: ps.abort, ps.require, ps.emit, Table.insert."""
    function = names.static(lo, node.func)
    if function is objects.abort:
        (reason,), fields = _arguments(lo, node, "reason")
        text = _reason(lo, node, reason)
        _abort(lo, node, text, _abort_fields(lo, fields), lo.path)
        lo.dead = True
    elif function is objects.require:
        (test, reason), fields = _arguments(lo, node, "condition", "reason")
        text = _reason(lo, node, reason)
        holds = expressions.condition(lo, test)
        given = _abort_fields(lo, fields)  # before it is known whether they are wanted, as Python evaluates them
        _abort(lo, node, text, given, lo.both(lo.path, lo.negated(holds.id)))
    elif function is objects.emit:
        emits.lower(lo, node)
    elif windows.statement(lo, node) or functions.statement(lo, node):
        return
    else:
        expressions.any_value(lo, node)


def _reason(lo: Lowering, node: ast.Call, found: ast.expr) -> str:
    text = found.value if isinstance(found, ast.Constant) else names.static(lo, found)
    if not isinstance(text, str) or not text:
        lo.body.refuse(node, "a reason is a constant string, so that outcomes can be counted by it")
    return names.text(lo, text, node)


def _abort(lo: Lowering, node: ast.Call, reason: str, given: dict[str, Val], guard: int | None) -> None:
    certain = {name: value for name, value in given.items() if value.why is None}
    if certain:
        lanes = tuple(when_aborted(name) for name in certain)
        lo.emit("tell", tuple(value.id for value in certain.values()), node=node, guard=guard, const=lanes)
    for name, value in given.items():
        if value.why is not None:
            there = lo.both(guard, lo.negated(is_none(lo, value).id))
            lo.emit("tell", (value.id,), node=node, guard=there, const=(when_aborted(name),))
    lo.emit("abort", name=reason, node=node, guard=guard)


def _abort_fields(lo: Lowering, fields: list[ast.keyword]) -> dict[str, Val]:
    """The fields of the outcome that an abort gives."""
    given = {}
    for field in fields:
        assert field.arg is not None
        if lo.table is not None:
            lo.body.refuse(field.value, "what a check aborts with is its text alone; give fields in a transaction")
        names.outcome_field(lo, field.arg, field.value)
        if isinstance(field.value, ast.Constant) and field.value.value is None:
            continue
        given[field.arg] = value = expressions.nullable_value(lo, field.value)
        lo.returns.setdefault(field.arg, []).append((value.type, field.value.lineno))
    return given


def _arguments(lo: Lowering, node: ast.Call, *names: str) -> tuple[list[ast.expr], list[ast.keyword]]:
    """What a call gives for these parameters, by place or by name; and what it names besides."""
    given = dict(zip(names, node.args, strict=False))
    given_twice = any(k.arg in given for k in node.keywords)
    given |= {k.arg: k.value for k in node.keywords if k.arg in names}
    rest = [k for k in node.keywords if k.arg not in names]
    if len(node.args) > len(names) or given_twice or set(given) != set(names) or any(k.arg is None for k in rest):
        takes = ", ".join(names)
        lo.body.refuse(node, f"{ast.unparse(node.func)} takes ({takes}), and fields of the outcome by name")
    return [given[name] for name in names], rest


def several(lo: Lowering, node: ast.Call) -> Found | None:
    """What a call gives that may be more than one value; None where it is one value, of another function."""
    if names.static(lo, node.func) is not divmod:
        return functions.value(lo, node)
    if len(node.args) != 2 or node.keywords:
        lo.body.refuse(node, "divmod takes (a, b)")
    a, b = [expressions.nullable_value(lo, one) for one in node.args]
    return Several(tuple(arithmetic(lo, op, a, b, node) for op in (ast.FloorDiv(), ast.Mod())))


def call(lo: Lowering, node: ast.Call) -> Val:
    of_window = windows.call(lo, node)
    if of_window is not None:
        return of_window
    if (looked_up := constants.get(lo, node)) is not None:
        return looked_up
    function = names.static(lo, node.func)
    row = builtins.find(function)
    if node.keywords and (isinstance(function, objects.Udf) or (row is not None and not row.named)):
        lo.body.refuse(node, f"{ast.unparse(node.func)} takes its arguments by place, not by name")
    if row is not None:
        return builtins.call(lo, row, node)
    if isinstance(function, objects.Udf):
        return _udf(lo, function, node)
    if function is objects.now:
        return times.now(lo, node)
    if function in (objects.abort, objects.require, objects.emit):
        lo.body.refuse(node, f"{ast.unparse(node.func)} is a statement of its own")
    what = ast.unparse(node.func)
    if function is MISSING and (found := methods.of_value(lo, node)) is not None:
        return found
    if instead := making_times.instead(function):
        lo.body.refuse(node, f"a call to '{what}' cannot be compiled; {instead}")
    if isinstance(function, types.FunctionType):
        lo.body.refuse(
            node,
            f"'{what}' is an ordinary function; mark it with @ps.function, and it becomes a part of what calls it, or "
            "with @ps.udf where numba is to compile it by itself (scalars in, scalar out)",
        )
    if function is MISSING and isinstance(node.func, ast.Name) and what not in lo.locals:
        lo.body.refuse(node, f"'{what}' is not defined here; write it above, so that it is known where it is called")
    lo.body.refuse(node, f"a call to '{what}' cannot be compiled; use {supported()}")


def _udf(lo: Lowering, function: objects.Udf, node: ast.Call) -> Val:
    args = [expressions.nullable_value(lo, a) for a in node.args]
    args = [use(lo, arg, given) for given, arg in zip(node.args, args, strict=True)]
    known = {"int": "int64", "float": "float64", "bool": "bool"}
    for given, arg in zip(node.args, args, strict=True):
        if arg.type.kind not in known:
            lo.body.refuse(given, f"udf '{function.name}' takes int, float and bool, not {arg.type}")
        if arg.loose:
            lo.body.refuse(given, "this is a float on one path and an int literal on another; write the literal as 0.0")
    signature = ", ".join(known[a.type.kind] for a in args)
    result = _udf_result(lo, function, signature, node)
    if lo.udfs.setdefault(function.name, function) is not function:
        lo.body.refuse(node, f"two udfs are called '{function.name}'; rename one")
    return lo.value("udf", result, *args, node=node, name=function.name)


def _udf_result(lo: Lowering, function: objects.Udf, signature: str, node: ast.AST) -> Type:
    """Compile the udf for these arguments and see what it returns."""
    import numba

    types_ = tuple(getattr(numba.types, {"bool": "boolean"}.get(t, t)) for t in signature.split(", ") if t)
    try:
        function.compiled.compile(types_)
    except Exception as error:
        lo.body.refuse(node, f"udf '{function.name}' cannot be compiled for ({signature}): {_gist(error)}")
    result = function.compiled.overloads[types_].signature.return_type
    if isinstance(result, numba.types.Boolean):
        return BOOL
    if isinstance(result, numba.types.Integer) and result.signed:
        return INT
    if isinstance(result, numba.types.Float):
        return FLOAT
    lo.body.refuse(node, f"udf '{function.name}' returns {result}; it must return int, float or bool on every path")


# -- loops --------------------------------------------------------------------------------------


def iterable(lo: Lowering, node: ast.expr) -> Iterated:
    """What a `for` runs over."""
    found = scans.iterated(lo, node) or windows.iterated(lo, node)
    if found is not None:
        return found
    match node:
        case ast.Call(func=ast.Name() as name, args=args) if (
            names.static(lo, name) is zip and args and not node.keywords
        ):
            several = tuple(lists.needed(lo, a) for a in args)
            if any(one.type == MEMBERS for one in several):
                lo.body.refuse(node, f"a list of events is looped over alone: for t in {lo.body.parameter}")
        case ast.Call(func=ast.Name() as name) if names.static(lo, name) is enumerate:
            return _enumerate(lo, node)
        case ast.Call(func=ast.Name() as name, args=args) if names.static(lo, name) is range:
            return _range(lo, node, args)
        case _ if (of := lists.found(lo, node)) is not None:
            several = (of.value,)
        case ast.Attribute():
            several = (lists.needed(lo, node),)
        case _:
            over = "a list field" if lo.members is None else f"'{lo.body.parameter}', a list field"
            lo.body.refuse(
                node, f"a loop runs over {over}, zip(e.xs, e.ys), enumerate(e.xs), range(n), a table or a window"
            )
    return each(several)


def each(several: tuple[Val, ...]) -> Iterated:
    """Lists at once; the shortest ends them."""
    items = [in_body(one.type.item) for one in several if one.type.item is not None]
    return Iterated("each", several, tuple(items), 1)


def _enumerate(lo: Lowering, node: ast.Call) -> Iterated:
    of = lists.found(lo, node.args[0]) if len(node.args) == 1 and not node.keywords else None
    if of is None or of.value.type == MEMBERS:
        lo.body.refuse(node, "enumerate takes one list field, and counts from 0; add to the number where it is used")
    (item,) = each((of.value,)).items
    return Iterated("each", (of.value,), (INT, item), 1, numbered=True)


def _range(lo: Lowering, node: ast.Call, args: list[ast.expr]) -> Iterated:
    if not 1 <= len(args) <= 3 or node.keywords:
        lo.body.refuse(node, "range takes (stop), (start, stop) or (start, stop, step)")
    step = 1
    bounds = [expressions.nullable_value(lo, a) for a in args[:2]]
    bounds = [use(lo, bound, a) for a, bound in zip(args, bounds, strict=False)]
    if len(args) == 3:
        found = expressions.value(lo, args[2])
        if not isinstance(found.literal, int) or found.literal == 0:
            lo.body.refuse(args[2], "the step of a range is a constant int, not 0")
        step = found.literal
    if len(bounds) == 1:
        bounds.insert(0, lo.const(0, INT))
    for bound in bounds:
        if bound.type != INT:
            lo.body.refuse(node, f"range takes ints, not {bound.type}")
    return Iterated("range", tuple(bounds), (INT,), step)


def _gist(error: Exception) -> str:
    """The line of numba's long message that says what is wrong."""
    lines = [line.strip() for line in str(error).splitlines()]
    noise = ("Failed in", "During:", "File ", "def ", "<source", "^")
    return next((line for line in lines if line and not line.startswith(noise)), type(error).__name__)
