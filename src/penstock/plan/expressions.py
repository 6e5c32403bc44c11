"""Expressions of a body, lowered to operations, in Python's order of evaluation.

Every function takes the Lowering it adds to. `value` gives a Val, `record` a RecordRef,
`any_value` either, `condition` a bool Val by Python's truth.
"""

from __future__ import annotations

import ast
import datetime
import types
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from penstock.declare import objects
from penstock.declare.body import MISSING
from penstock.declare.types import BOOL, FLOAT, INT, INT_MAX, INT_MIN, STR, Type, to_python
from penstock.plan import records
from penstock.plan.numbers import arithmetic, compare, negate, to_type
from penstock.plan.values import RecordRef, Unassigned, Val, decimal_type, scale_of, unscaled

if TYPE_CHECKING:
    from penstock.plan.lower import Lowering

SUPPORTED_CALLS = "min, max, abs, len, range, zip, Decimal, ps.abort, ps.require and functions marked @ps.udf"


def any_value(lo: Lowering, node: ast.expr) -> Val | RecordRef:
    """A value or a record."""
    match node:
        case ast.Name(id=name) if name in lo.env:
            binding = lo.env[name]
            if isinstance(binding, Unassigned):
                lo.body.refuse(
                    node, f"'{name}' may be unassigned here; assign it on every path, before line {binding.line}"
                )
            return binding
        case ast.Name(id=name) if name in lo.locals:
            lo.body.refuse(node, f"'{name}' may be unassigned here; assign it first")
        case ast.Subscript() if (table := table_of(lo, node.value)) is not None:
            return records.locate(lo, table, keys_of(lo, node.slice), node)
        case ast.Call(func=ast.Attribute(value=base, attr=method)) if (table := table_of(lo, base)) is not None:
            return records.method(lo, table, method, node)
        case ast.IfExp():
            return _conditional(lo, node)
    return _value(lo, node)


def value(lo: Lowering, node: ast.expr) -> Val:
    found = any_value(lo, node)
    if isinstance(found, RecordRef):
        lo.body.refuse(node, f"a {found.table.name} record is not a value; name one of its columns")
    return found


def record(lo: Lowering, node: ast.expr) -> RecordRef:
    found = any_value(lo, node)
    if not isinstance(found, RecordRef):
        lo.body.refuse(node, f"this is {found.type}, which has no columns")
    return found


def condition(lo: Lowering, node: ast.expr) -> Val:
    """A bool by Python's truth; inside and/or/not too."""
    match node:
        case ast.BoolOp():
            return _bool_op(lo, node, condition)
        case ast.UnaryOp(op=ast.Not()):
            return lo.value("not", BOOL, condition(lo, node.operand), node=node, guard=None)
    return truth(lo, value(lo, node), node)


def truth(lo: Lowering, found: Val, node: ast.AST) -> Val:
    match found.type.kind:
        case "bool":
            return found
        case "int" | "decimal":
            return lo.value("ne", BOOL, found, lo.const(0, found.type), node=node)
        case "float":
            return lo.value("ne", BOOL, found, lo.const(0.0, FLOAT), node=node)
        case "str":
            return lo.value("ne", BOOL, found, lo.const("", STR), node=node)
    lo.body.refuse(node, f"a {found.type} is always true; compare it with something")


def _value(lo: Lowering, node: ast.expr) -> Val:
    match node:
        case ast.Constant():
            return constant(lo, node.value, node)
        case ast.Name(id=name):
            if name == lo.body.parameter:
                lo.body.refuse(node, f"'{name}' is not a value; name one of its fields")
            return global_value(lo, lo.body.lookup(name), name, node)
        case ast.Attribute():
            return _attribute(lo, node)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)) if (
            number is not True and number is not False
        ):
            return constant(lo, -number, node)
        case ast.UnaryOp(op=ast.USub()):
            return negate(lo, value(lo, node.operand), node)
        case ast.UnaryOp(op=ast.UAdd()):
            lo.body.refuse(node, "a leading '+' does nothing; remove it")
        case ast.UnaryOp(op=ast.Not()) | ast.BoolOp():
            return _logic(lo, node)
        case ast.BinOp():
            left = value(lo, node.left)
            return arithmetic(lo, node.op, left, value(lo, node.right), node)
        case ast.Compare():
            return _compare(lo, node)
        case ast.Call():
            return _call(lo, node)
        case ast.JoinedStr():
            lo.body.refuse(node, "strings cannot be built in a transaction; build them after, from the outcomes")
        case ast.Subscript():
            lo.body.refuse(node, "only tables can be indexed; loop over a list with 'for x in e.xs'")
    lo.body.refuse(
        node,
        f"'{type(node).__name__}' cannot be compiled; use names, fields, columns, arithmetic, "
        "comparisons and calls to " + SUPPORTED_CALLS,
    )


# -- constants and names ------------------------------------------------------------------------


def constant(lo: Lowering, found: Any, node: ast.AST) -> Val:
    match found:
        case bool():
            return lo.const(found, BOOL)
        case int():
            if not INT_MIN <= found <= INT_MAX:
                lo.body.refuse(node, f"{found} does not fit in 64 bits")
            return lo.const(int(found), INT, literal=int(found))
        case float():
            return lo.const(float(found), FLOAT)
        case str():
            return lo.const(str(found), STR)
        case Decimal():
            return decimal_constant(lo, found, node)
        case datetime.datetime():
            return lo.const(to_python(found, Type("datetime"), where=lo.body.label), Type("datetime"))
        case datetime.date():
            return lo.const(found, Type("date"))
        case None:
            lo.body.refuse(
                node, "None is not a value here; a null field aborts when it is used, and Table.get(k) has defaults"
            )
    lo.body.refuse(node, f"a constant of type {type(found).__name__} cannot be compiled")


def decimal_constant(lo: Lowering, found: Decimal, node: ast.AST) -> Val:
    if not found.is_finite():
        lo.body.refuse(node, f"{found} is not a finite decimal")
    scale = scale_of(found)
    if scale > 18 or abs(unscaled(found, scale)) >= 10**18:
        lo.body.refuse(node, f"{found} has more than 18 digits")
    return lo.const(unscaled(found, scale), decimal_type(scale), literal=found)


def global_value(lo: Lowering, found: Any, name: str, node: ast.AST) -> Val:
    if found is MISSING:
        lo.body.refuse(node, f"'{name}' is not defined")
    if isinstance(found, bool | int | float | str | Decimal | datetime.date):
        return constant(lo, found, node)
    lo.body.refuse(
        node,
        f"'{name}' ({type(found).__name__}) is not a value that can be compiled; "
        "use int, float, bool, str, Decimal, datetime or date constants",
    )


def table_of(lo: Lowering, node: ast.expr) -> Any:
    """The table that an expression names, or None."""
    found = static(lo, node)
    return found.definition if isinstance(found, objects.Table) else None


def static(lo: Lowering, node: ast.expr) -> Any:
    """What a dotted name outside the body stands for, or MISSING."""
    match node:
        case ast.Name(id=name) if name not in lo.locals and name != lo.body.parameter:
            return lo.body.lookup(name)
        case ast.Attribute(value=base, attr=attr):
            found = static(lo, base)
            if isinstance(found, types.ModuleType | type | types.SimpleNamespace):
                return getattr(found, attr, MISSING)
    return MISSING


def _attribute(lo: Lowering, node: ast.Attribute) -> Val:
    if isinstance(node.value, ast.Name) and node.value.id == lo.body.parameter and lo.event is not None:
        return field(lo, node)
    found = static(lo, node)
    if found is not MISSING:
        return global_value(lo, found, ast.unparse(node), node)
    return read_column(lo, record_or_self(lo, node.value), node)


def field(lo: Lowering, node: ast.Attribute) -> Val:
    assert lo.event is not None
    found = lo.event.field(node.attr)
    if found is None:
        names = ", ".join(f.name for f in lo.event.fields)
        lo.body.refuse(node, f"event '{lo.event.name}' has no field '{node.attr}'; it has {names}")
    if found.type.kind == "list":
        lo.body.refuse(node, f"'{node.attr}' is a list; loop over it, or take its len()")
    may_be_null = node.attr not in (lo.event.order, lo.event.id)
    type_ = decimal_type(found.type.scale) if found.type.kind == "decimal" else found.type
    return lo.value("field", type_, node=node, name=node.attr, const=may_be_null)


def list_field(lo: Lowering, node: ast.expr) -> Val:
    match node:
        case ast.Attribute(value=ast.Name(id=name), attr=attr) if lo.event is not None and name == lo.body.parameter:
            found = lo.event.field(attr)
            if found is not None and found.type.kind == "list":
                return lo.value("list", found.type, node=node, name=attr, const=True)
    lo.body.refuse(node, "this must be a list field of the event")


# -- records ------------------------------------------------------------------------------------


def record_or_self(lo: Lowering, node: ast.expr) -> RecordRef | None:
    """A record; None stands for the record that a check looks at."""
    if lo.table is not None and isinstance(node, ast.Name) and node.id == lo.body.parameter:
        return None
    return record(lo, node)


def keys_of(lo: Lowering, node: ast.expr) -> list[Val]:
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    return [value(lo, part) for part in parts]


def read_column(lo: Lowering, found: RecordRef | None, node: ast.Attribute) -> Val:
    if found is None:
        return records.read_self(lo, node)
    return records.read(lo, found, node)


def write_column(lo: Lowering, target: ast.Attribute, new: Val) -> None:
    if isinstance(target.value, ast.Name) and target.value.id == lo.body.parameter:
        what = "an event cannot be changed" if lo.event is not None else "a check only looks; it cannot write"
        lo.body.refuse(target, what)
    if static(lo, target.value) is not MISSING:
        lo.body.refuse(target, "only columns of records can be changed; keep shared state in a table")
    records.write(lo, record(lo, target.value), target, new)


def write_record(lo: Lowering, found: RecordRef, target: ast.Attribute, new: Val) -> None:
    records.write(lo, found, target, new)


def delete(lo: Lowering, target: ast.expr) -> None:
    table = table_of(lo, target.value) if isinstance(target, ast.Subscript) else None
    if table is None:
        lo.body.refuse(target, "only records can be deleted: del Account[k]")
    assert isinstance(target, ast.Subscript)
    records.delete(lo, table, keys_of(lo, target.slice), target)


# -- logic --------------------------------------------------------------------------------------


def _logic(lo: Lowering, node: ast.expr) -> Val:
    """and, or, not where a value is wanted: Python gives an operand back, so they must be bools."""
    if isinstance(node, ast.BoolOp):
        return _bool_op(lo, node, _only_bool)
    return condition(lo, node)


def _only_bool(lo: Lowering, node: ast.expr) -> Val:
    found = value(lo, node)
    if found.type != BOOL:
        lo.body.refuse(
            node, f"'and'/'or' as a value takes bools, not {found.type}; compare it, or use a conditional expression"
        )
    return found


def _bool_op(lo: Lowering, node: ast.BoolOp, operand: Any) -> Val:
    stop_on = isinstance(node.op, ast.Or)  # `or` stops at the first that holds, `and` at the first that does not
    total = operand(lo, node.values[0])
    path = lo.path
    for part in node.values[1:]:
        # What Python would not evaluate must not abort: the rest runs under a guard.
        lo.path = lo.both(path, lo.negated(total.id) if stop_on else total.id)
        one = operand(lo, part)
        lo.path = path
        total = lo.value("or" if stop_on else "and", BOOL, total, one, node=node, guard=None)
    return total


def _conditional(lo: Lowering, node: ast.IfExp) -> Val | RecordRef:
    test = condition(lo, node.test)
    path = lo.path
    arms = []
    for part, guard in ((node.body, test.id), (node.orelse, lo.negated(test.id))):
        lo.path = lo.both(path, guard)
        arms.append(any_value(lo, part))
    lo.path = path
    a, b = arms
    if isinstance(a, RecordRef) or isinstance(b, RecordRef):
        return lo.join_records(node, "this expression", test, a, b)
    return lo.select(node, "the two arms", test, a, b)


def _compare(lo: Lowering, node: ast.Compare) -> Val:
    if len(node.ops) == 1 and isinstance(node.ops[0], ast.In | ast.NotIn):
        return _membership(lo, node)
    path = lo.path
    left = value(lo, node.left)
    total: Val | None = None
    for op, part in zip(node.ops, node.comparators, strict=True):
        if total is not None:
            lo.path = lo.both(path, total.id)
        right = value(lo, part)
        one = compare(lo, op, left, right, node)
        lo.path = path
        total = one if total is None else lo.value("and", BOOL, total, one, node=node, guard=None)
        left = right
    assert total is not None
    return total


def _membership(lo: Lowering, node: ast.Compare) -> Val:
    table = table_of(lo, node.comparators[0])
    if table is None:
        lo.body.refuse(node, "'in' asks a table: k in Account")
    found = records.contains(lo, table, keys_of(lo, node.left), node)
    if isinstance(node.ops[0], ast.NotIn):
        return lo.value("not", BOOL, found, node=node, guard=None)
    return found


# -- calls --------------------------------------------------------------------------------------


def call_statement(lo: Lowering, node: ast.Call) -> None:
    """A call for its effect: ps.abort, ps.require, Table.insert."""
    function = static(lo, node.func)
    if function is objects.abort:
        lo.emit("abort", name=_reason(lo, node, 0, 1), node=node)
        lo.dead = True
    elif function is objects.require:
        reason_at = _reason(lo, node, 1, 2)
        holds = condition(lo, _arguments(lo, node, 2)[0])
        lo.emit("abort", name=reason_at, node=node, guard=lo.both(lo.path, lo.negated(holds.id)))
    else:
        any_value(lo, node)


def _reason(lo: Lowering, node: ast.Call, place: int, count: int) -> str:
    found = _arguments(lo, node, count)[place]
    text = found.value if isinstance(found, ast.Constant) else static(lo, found)
    if not isinstance(text, str) or not text:
        lo.body.refuse(node, "a reason is a constant string, so that outcomes can be counted by it")
    return text


def _arguments(lo: Lowering, node: ast.Call, count: int) -> list[ast.expr]:
    """Positional arguments; ps.require also takes its reason by name."""
    given = [*node.args, *(k.value for k in node.keywords if k.arg in ("reason", "condition"))]
    if len(given) != count or len(given) != len(node.args) + len(node.keywords):
        lo.body.refuse(node, f"{ast.unparse(node.func)} takes {count} argument(s)")
    return given


def _call(lo: Lowering, node: ast.Call) -> Val:
    function = static(lo, node.func)
    if node.keywords:
        lo.body.refuse(node, f"{ast.unparse(node.func)}: named arguments cannot be compiled here")
    if function in (min, max):
        return _extreme(lo, node, "lt" if function is min else "gt")
    if function is abs:
        return negate(lo, value(lo, _arguments(lo, node, 1)[0]), node, code="abs")
    if function is len:
        return lo.value("len", INT, list_field(lo, _arguments(lo, node, 1)[0]), node=node)
    if function is Decimal:
        return _decimal_call(lo, node)
    if isinstance(function, objects.Udf):
        return _udf(lo, function, node)
    if function in (objects.abort, objects.require):
        lo.body.refuse(node, f"{ast.unparse(node.func)} is a statement of its own")
    what = ast.unparse(node.func)
    if isinstance(function, types.FunctionType):
        lo.body.refuse(node, f"'{what}' is an ordinary function; mark it with @ps.udf (scalars in, scalar out)")
    lo.body.refuse(node, f"a call to '{what}' cannot be compiled; use {SUPPORTED_CALLS}")


def _extreme(lo: Lowering, node: ast.Call, better: str) -> Val:
    if len(node.args) < 2 or any(isinstance(a, ast.Starred) for a in node.args):
        lo.body.refuse(node, f"{ast.unparse(node.func)} takes two or more values; loop over a list to find its extreme")
    total, *rest = [value(lo, a) for a in node.args]
    op = ast.Lt() if better == "lt" else ast.Gt()
    for one in rest:
        test = compare(lo, op, one, total, node)
        total = lo.select(node, f"the arguments of {ast.unparse(node.func)}", test, one, total)
    return total


def _decimal_call(lo: Lowering, node: ast.Call) -> Val:
    argument = _arguments(lo, node, 1)[0]
    if (
        isinstance(argument, ast.Constant)
        and isinstance(argument.value, str | int)
        and not isinstance(argument.value, bool)
    ):
        try:
            return decimal_constant(lo, Decimal(argument.value), node)
        except ArithmeticError:
            pass
    lo.body.refuse(node, 'Decimal takes a constant: Decimal("0.05")')


def _udf(lo: Lowering, function: objects.Udf, node: ast.Call) -> Val:
    args = [value(lo, a) for a in node.args]
    known = {"int": "int64", "float": "float64", "bool": "bool"}
    for given, arg in zip(node.args, args, strict=True):
        if arg.type.kind not in known or arg.loose:
            lo.body.refuse(given, f"udf '{function.name}' takes int, float and bool, not {arg.type}")
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
        first = str(error).strip().splitlines()
        lo.body.refuse(
            node, f"udf '{function.name}' cannot be compiled for ({signature}): {first[-1] if first else error}"
        )
    result = function.compiled.overloads[types_].signature.return_type
    if isinstance(result, numba.types.Boolean):
        return BOOL
    if isinstance(result, numba.types.Integer):
        return INT
    if isinstance(result, numba.types.Float):
        return FLOAT
    lo.body.refuse(node, f"udf '{function.name}' returns {result}; it must return int, float or bool on every path")


# -- loops --------------------------------------------------------------------------------------


def iterable(lo: Lowering, node: ast.For) -> tuple[str, tuple[Val, ...], tuple[Type, ...], int]:
    """What a `for` runs over: (code, arguments, types of a turn's items, step)."""
    match node.iter:
        case ast.Call(func=ast.Name() as name, args=args) if (
            static(lo, name) is zip and args and not node.iter.keywords
        ):
            lists = tuple(list_field(lo, a) for a in args)
        case ast.Call(func=ast.Name() as name, args=args) if static(lo, name) is range:
            return _range(lo, node.iter, args)
        case ast.Attribute():
            lists = (list_field(lo, node.iter),)
        case _:
            lo.body.refuse(node.iter, "a loop runs over a list field, zip(e.xs, e.ys) or range(n)")
    items = []
    for one in lists:
        item = one.type.item
        assert item is not None
        items.append(decimal_type(item.scale) if item.kind == "decimal" else item)
    return "each", lists, tuple(items), 1


def _range(lo: Lowering, node: ast.Call, args: list[ast.expr]) -> tuple[str, tuple[Val, ...], tuple[Type, ...], int]:
    if not 1 <= len(args) <= 3 or node.keywords:
        lo.body.refuse(node, "range takes (stop), (start, stop) or (start, stop, step)")
    step = 1
    bounds = [value(lo, a) for a in args[:2]]
    if len(args) == 3:
        found = value(lo, args[2])
        if not isinstance(found.literal, int) or found.literal == 0:
            lo.body.refuse(args[2], "the step of a range is a constant int, not 0")
        step = found.literal
    if len(bounds) == 1:
        bounds.insert(0, lo.const(0, INT))
    for bound in bounds:
        if bound.type != INT:
            lo.body.refuse(node, f"range takes ints, not {bound.type}")
    return "range", tuple(bounds), (INT,), step


__all__ = ["any_value", "arithmetic", "condition", "record", "to_type", "value"]
