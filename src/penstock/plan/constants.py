"""Constant collections in a body: `e.kind in ("card", "cash")`, `e.kind in KINDS`, `RATES[e.kind]`, `RATES.get(k, 0)`.

Each is a chain of comparisons with what the collection holds when the body is declared. What is not in a dict aborts
with `missing key`.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.declare import constants
from penstock.declare.types import BOOL
from penstock.plan import aggregates, expressions, names, nullable
from penstock.plan.numbers import compare
from penstock.plan.values import NONE, Val

if TYPE_CHECKING:
    from penstock.plan.lower import Lowering

# More comparisons than this take longer than a look into a table.
MOST = 100
MISSING_KEY = "missing key"


def contains(lo: Lowering, node: ast.Compare) -> Val | None:
    """`x in …`; None where the right side is no constant collection, and none that is written there."""
    right = node.comparators[0]
    written = isinstance(right, ast.Tuple | ast.List | ast.Set)
    collection: Any = None if written else names.static(lo, right)
    if not written and not constants.is_collection(collection):
        return None
    left = expressions.nullable_value(lo, node.left)
    if isinstance(right, ast.Tuple | ast.List | ast.Set):
        several = [expressions.nullable_value(lo, one) for one in right.elts]
        if any(one.type.kind == "float" and not _is_constant(lo, one) for one in several):
            lo.body.refuse(node, "'in' asks of floats only constants; compare with ==")
    else:
        several = [_constant(lo, one, node) for one in constants.items(collection)]
    _refuse_long(lo, len(several), node)
    total = lo.const(False, BOOL)
    for place, one in enumerate(several):
        same = _same(lo, left, one, node)
        total = same if place == 0 else lo.value("or", BOOL, total, same, node=node, guard=None)
    return total if isinstance(node.ops[0], ast.In) else lo.value("not", BOOL, total, node=node, guard=None)


def item(lo: Lowering, node: ast.Subscript) -> Val | None:
    """`RATES[e.kind]`; None where it is no constant dict."""
    table = names.static(lo, node.value)
    if type(table) is not dict:
        return None
    key = expressions.nullable_value(lo, node.slice)
    if None not in table:
        key = nullable.use(lo, key, node.slice)
    found, value = _look_up(lo, table, key, node)
    lo.emit("abort", name=MISSING_KEY, node=node, guard=lo.both(lo.path, lo.negated(found.id)))
    return value


def get(lo: Lowering, node: ast.Call) -> Val | None:
    """`RATES.get(e.kind, 0)`."""
    function = node.func
    if not isinstance(function, ast.Attribute) or type(table := names.static(lo, function.value)) is not dict:
        return None
    if function.attr != "get" or node.keywords or not 1 <= len(node.args) <= 2:
        shown = ast.unparse(function.value)
        lo.body.refuse(node, f"of a constant dict there are {shown}[k], {shown}.get(k, default) and k in {shown}")
    given = [expressions.nullable_value(lo, one) for one in node.args]
    found, value = _look_up(lo, table, given[0], node)
    other = given[1] if len(given) == 2 else nullable.none(lo)
    return lo.select(node, f"what {ast.unparse(function)} gives, and its default,", found, value, other)


def _look_up(lo: Lowering, table: dict[Any, Any], key: Val, node: ast.AST) -> tuple[Val, Val]:
    """Whether a key is there, and what it has."""
    _refuse_long(lo, len(table), node)
    if not table:
        lo.body.refuse(node, "this dict is empty")
    values = [_constant(lo, one, node) for one in constants.values(table)]
    first = values[0]
    if any(one.type != first.type for one in values):
        lo.body.refuse(node, "a constant dict gives values of one type")
    found, total = lo.const(False, BOOL), aggregates.nothing(lo, first.type)
    for place, (name, value) in enumerate(zip(constants.items(table), values, strict=True)):
        same = _same(lo, key, _constant(lo, name, node), node)
        found = same if place == 0 else lo.value("or", BOOL, found, same, node=node, guard=None)
        total = lo.select(node, "the values of a dict", same, replace(value, literal=None), total)
    return found, replace(total, loose=False)


def _same(lo: Lowering, a: Val, b: Val, node: ast.AST) -> Val:
    if NONE in (a.type, b.type):
        return nullable.is_none(lo, a if b.type == NONE else b)
    return compare(lo, ast.Eq(), a, b, node)


def _constant(lo: Lowering, found: Any, node: ast.AST) -> Val:
    if constants.is_collection(found):
        lo.body.refuse(node, "a collection inside of a collection cannot be compiled; use one of plain values")
    return names.global_value(lo, found, repr(found), node)


def _is_constant(lo: Lowering, found: Val) -> bool:
    return any(op.id == found.id and op.code == "const" for op in reversed(lo.ops))


def _refuse_long(lo: Lowering, count: int, node: ast.AST) -> None:
    if count > MOST:
        lo.body.refuse(
            node, f"a constant collection has {MOST} items at most in a body, not {count}; put them in a table"
        )
