"""Arithmetic, comparison and conversion: which types may meet, and what comes out.

The rules are docs/SEMANTICS.md, "Values". Decimals carry their scale in the type; the operations
align their operands themselves.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

from penstock.declare.types import BOOL, DATE, DATETIME, FLOAT, INT, INT_MIN, MAX_DIGITS, STR, TIMEDELTA, Type
from penstock.plan import names, refusals, texts, times
from penstock.plan.ir import OPERATIONS
from penstock.plan.nullable import equal, typed, use
from penstock.plan.values import NONE, Val, decimal_type, fits, unscaled

if TYPE_CHECKING:
    from penstock.plan.lower import Lowering

OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
}
COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
}
# What to write instead of arithmetic with what is no number.
_INSTEAD = {
    BOOL: "; write `1 if x else 0`",
    STR: '; + joins strings alone, and an f-string takes ints too: f"{s}{n}"',
    DATETIME: "; add a timedelta: n * timedelta(seconds=1)",
    DATE: "; add a timedelta: n * timedelta(days=1)",
}
# A quotient of decimals has at least this many digits after the point.
QUOTIENT_SCALE = 6
# What is computed as a product has so many factors at most.
MOST_POWER = 8


def arithmetic(lo: Lowering, op: ast.operator, a: Val, b: Val, node: ast.AST) -> Val:
    if isinstance(op, ast.Pow):
        return _power(lo, a, b, node)
    if type(op) not in OPERATORS:
        lo.body.refuse(node, refusals.words(op))
    code = OPERATORS[type(op)]
    sign = OPERATIONS[code].sign
    a, b = use(lo, a, node), use(lo, b, node)
    if (a.type in times.TIMES and b.type in times.TIMES) or TIMEDELTA in (a.type, b.type):
        return times.arithmetic(lo, code, sign, a, b, node)
    if code == "add" and a.type == b.type == STR:
        return texts.make(lo, "texts.join", a, b, node=node, const=0)
    for one in (a, b):
        if not one.type.traits.number:
            lo.body.refuse(node, f"'{sign}' takes numbers, not {one.type}{_INSTEAD.get(one.type, '')}")
    _refuse_loose(lo, code, sign, a, b, node)
    if code in ("add", "sub"):
        a, b = _aligned(lo, a, b), _aligned(lo, b, a)
    return lo.value(code, result_type(lo, code, a, b, node), a, b, node=node)


def _power(lo: Lowering, a: Val, b: Val, node: ast.AST) -> Val:
    """a ** b as a product: so it overflows where a product does."""
    a, b = use(lo, a, node), use(lo, b, node)
    if a.type.kind not in ("int", "decimal"):
        hint = "; write x * x" if a.type == FLOAT else ""
        lo.body.refuse(node, f"'**' takes an int or a decimal, not {a.type}{hint}")
    most = 63 if isinstance(a.literal, int) else MOST_POWER
    if not isinstance(b.literal, int) or not 0 <= b.literal <= most:
        lo.body.refuse(node, f"'**' takes a constant int from 0 to {most}; write a product, or 1 / x ** 2")
    if isinstance(a.literal, int) or b.literal == 0:
        return names.constant(lo, a.literal**b.literal if b.literal else 1, node)
    total = a
    for _ in range(b.literal - 1):
        total = arithmetic(lo, ast.Mult(), total, a, node)
    return total


def result_type(lo: Lowering, code: str, a: Val, b: Val, node: ast.AST) -> Type:
    kinds = {a.type.kind, b.type.kind}
    if kinds == {"float", "decimal"}:
        lo.body.refuse(node, f"a decimal and a float do not mix; {_instead_of_float(node)}")
    if "decimal" in kinds:
        x, y = a.type.scale, b.type.scale
        scale = {
            "add": max(x, y),
            "sub": max(x, y),
            "mod": max(x, y),
            "mul": x + y,
            "floordiv": 0,
            "div": max(x, y, QUOTIENT_SCALE),
        }[code]
        if scale > MAX_DIGITS:
            lo.body.refuse(node, f"this product has {scale} digits after the point; at most {MAX_DIGITS} can be held")
        if code == "div" and scale - x + y > MAX_DIGITS:
            lo.body.refuse(
                node,
                f"dividing by a decimal with {y} digits after the point needs more than {MAX_DIGITS} digits; "
                "store it with fewer",
            )
        return decimal_type(scale)
    if "float" in kinds or code == "div":
        return FLOAT
    return INT


def _instead_of_float(node: ast.AST) -> str:
    """Where the body itself writes the float: just that, as a decimal."""
    for part in ast.iter_child_nodes(node):
        bare = part.operand if isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.USub) else part
        if isinstance(bare, ast.Constant) and isinstance(bare.value, float):
            return f'write the constant as Decimal("{ast.unparse(part)}")'
    return 'write a constant as Decimal("0.05"), and declare a column or field as ps.decimal(18, 2)'


def _refuse_loose(lo: Lowering, code: str, sign: str, a: Val, b: Val, node: ast.AST) -> None:
    for loose, other in ((a, b), (b, a)):
        if not loose.loose:
            continue
        kind = loose.type.kind
        same = other.type.kind == kind and not other.loose
        if kind == "float" and same:
            continue
        if kind == "decimal" and same and code in ("add", "sub") and other.type.scale >= loose.type.scale:
            continue
        instead = "0.0" if kind == "float" else f'Decimal("{0:.{loose.type.scale}f}")'
        lo.body.refuse(
            node,
            f"'{sign}': one side is a {kind} on one path and a literal on another, and Python would "
            f"compute it otherwise; write the literal as {instead}",
        )


def negate(lo: Lowering, a: Val, node: ast.AST, code: str = "neg") -> Val:
    what = "abs()" if code == "abs" else "'-'"
    a = use(lo, a, node)
    if not a.type.traits.signed:
        lo.body.refuse(node, f"{what} takes a number, not {a.type}")
    if a.loose and a.type.kind == "float":
        lo.body.refuse(
            node, f"{what}: this is a float on one path and an int literal on another; write the literal as 0.0"
        )
    if code == "neg" and isinstance(a.literal, Decimal):
        # copy_negate keeps every digit; unary minus would round to the context's precision.
        constant = a.literal.copy_negate()
        return lo.const(unscaled(constant, a.type.scale), a.type, literal=constant)
    if code == "neg" and isinstance(a.literal, int) and a.literal != INT_MIN:
        return lo.const(-a.literal, a.type, literal=-a.literal)
    result = lo.value(code, a.type, a, node=node)
    return Val(result.id, result.type, None, a.loose)


def compare(lo: Lowering, op: ast.cmpop, a: Val, b: Val, node: ast.AST) -> Val:
    if type(op) not in COMPARISONS:
        lo.body.refuse(
            node,
            "'is' compares objects; use == or !=. To ask whether a record is there: k in Account. "
            "A null field aborts when it is used",
        )
    code = COMPARISONS[type(op)]
    if NONE in (a.type, b.type):
        lo.body.refuse(
            node,
            "None is asked for with `is None` or `is not None`; a name that starts as None says its type: "
            "best: int | None = None",
        )
    if code not in ("eq", "ne"):
        a, b = use(lo, a, node), use(lo, b, node)
    elif a.why is not None or b.why is not None:
        same = equal(lo, compare(lo, ast.Eq(), replace(a, why=None), replace(b, why=None), node), a, b)
        return same if code == "eq" else lo.value("not", BOOL, same, node=node, guard=None)
    kinds = {a.type.kind, b.type.kind}
    if kinds == {"float", "decimal"}:
        lo.body.refuse(node, f"a decimal and a float do not compare; {_instead_of_float(node)}")
    if len(kinds) > 1 and not kinds <= {"int", "float"} and not kinds <= {"int", "decimal"}:
        lo.body.refuse(node, f"{a.type} and {b.type} do not compare")
    if not a.type.traits.ordered and OPERATIONS[code].orders:
        lo.body.refuse(node, f"{a.type}s have no order; use == or !=")
    a, b = _aligned(lo, a, b), _aligned(lo, b, a)
    return lo.value(code, BOOL, a, b, node=node)


def _aligned(lo: Lowering, literal: Val, other: Val) -> Val:
    """A literal beside a decimal, at the decimal's scale already, where that is exact: nothing to scale at run time."""
    if literal.literal is None or other.type.kind != "decimal" or literal.type.kind not in ("int", "decimal"):
        return literal
    return lo.bend(literal, other.type) if fits(literal.literal, other.type.scale) else literal


def _refuse_stranger(lo: Lowering, found: Val, type_: Type, node: ast.AST, what: str) -> None:
    """A constant that is no member of the Enum that a column is of."""
    if not type_.members or found.why is not None:
        return
    constant = next((op.const for op in reversed(lo.ops) if op.id == found.id and op.code == "const"), None)
    if constant is not None and constant not in type_.members:
        lo.body.refuse(node, f"{what} is {type_.enum}; {constant!r} is none of them: {type_.takes}")


def to_type(lo: Lowering, found: Val, type_: Type, node: ast.AST, what: str, *, nullable: bool = False) -> Val:
    """A value as it is stored in a column of this type. nullable: None may be stored there."""
    if not nullable and found.type == NONE:
        lo.body.refuse(node, f"{what} is {type_}; it cannot take None, unless it is declared with `| None`")
    found = typed(lo, found, type_) if nullable else use(lo, found, node)
    _refuse_stranger(lo, found, type_, node, what)
    kind = found.type.kind
    if found.type == type_:
        return found
    if (type_.kind == "decimal" and kind in ("int", "decimal")) or (type_.kind == "float" and kind == "int"):
        return replace(lo.value("convert", type_, found, node=node), why=found.why)
    if type_.kind != kind:
        lo.body.refuse(node, f"{what} is {type_}; it cannot take {found.type}")
    return found
