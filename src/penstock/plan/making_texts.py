"""Strings that a body asks for: methods, str(…), f-strings, slices, and what is in a string."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from penstock.declare.body import MISSING
from penstock.declare.types import BOOL, INT, INT_MAX, STR
from penstock.plan import expressions, lists, names, texts
from penstock.plan.nullable import use
from penstock.plan.values import Val

if TYPE_CHECKING:
    from penstock.plan.lower import Lowering

# As many bits as tell which parts are ints.
_MOST_PARTS = 60


def method(lo: Lowering, owner: Val, node: ast.Call) -> Val:
    """s.upper(), s.startswith(t)"""
    assert isinstance(node.func, ast.Attribute)
    name = node.func.attr
    if name in ("startswith", "endswith"):
        if len(node.args) != 1 or node.keywords or isinstance(node.args[0], ast.Tuple):
            lo.body.refuse(node, f"{name} takes one string; of several, write s.{name}(a) or s.{name}(b)")
        other = expressions.value(lo, node.args[0])
        if other.type != STR:
            lo.body.refuse(node, f"{name} takes a string, not {other.type}")
        return texts.look(lo, f"texts.{name}", BOOL, owner, other, node=node)
    if node.args or node.keywords:
        lo.body.refuse(node, f"{name}() takes nothing here")
    return texts.make(lo, f"texts.{name}", owner, node=node)


def of_value(lo: Lowering, node: ast.Call) -> Val:
    """str(n)"""
    if len(node.args) != 1:
        lo.body.refuse(node, "str takes (x)")
    found = expressions.value(lo, node.args[0])
    if found.type not in (INT, STR):
        lo.body.refuse(node, f"str takes an int or a string, not {found.type}; give the value itself as a field")
    return found if found.type == STR else texts.make(lo, "texts.join", found, node=node, const=1)


def formatted(lo: Lowering, node: ast.JoinedStr) -> Val:
    """f"{a}-{n}": its parts are evaluated, and then joined at once."""
    if not any(isinstance(one, ast.FormattedValue) for one in node.values):
        return names.constant(lo, "".join(str(one.value) for one in node.values if isinstance(one, ast.Constant)), node)
    if len(node.values) > _MOST_PARTS:
        lo.body.refuse(node, f"an f-string has at most {_MOST_PARTS} parts; join two of them")
    parts = [_part(lo, one) for one in node.values]
    ints = sum(1 << place for place, one in enumerate(parts) if one.type == INT)
    return texts.make(lo, "texts.join", *parts, node=node, const=ints)


def _part(lo: Lowering, node: ast.expr) -> Val:
    if not isinstance(node, ast.FormattedValue):
        return expressions.value(lo, node)
    if node.conversion != -1 or node.format_spec is not None:
        lo.body.refuse(node, "an f-string takes values as they are; remove what stands behind ':' or '!'")
    found = expressions.value(lo, node.value)
    if found.type not in (INT, STR):
        lo.body.refuse(node, f"an f-string takes strings and ints, not {found.type}; give the value itself as a field")
    return found


def sliced(lo: Lowering, node: ast.Subscript) -> Val:
    """s[:3]"""
    assert isinstance(node.slice, ast.Slice)
    of = expressions.nullable_value(lo, node.value)
    if of.type != STR:
        lo.body.refuse(node, f"a slice is of a list of the event or of a string, not of {of.type}")
    if node.slice.step is not None:
        lo.body.refuse(node, "a slice with a step cannot be compiled")
    ends = [
        lo.const(default, INT) if given is None else expressions.nullable_value(lo, given)
        for given, default in ((node.slice.lower, 0), (node.slice.upper, INT_MAX))
    ]
    of, *ends = [use(lo, one, node) for one in (of, *ends)]
    for end in ends:
        if end.type != INT:
            lo.body.refuse(node, f"a slice is from int to int, not {end.type}")
    return texts.make(lo, "texts.cut", of, *ends, node=node)


def contains(lo: Lowering, node: ast.Compare) -> Val | None:
    """`"a" in s`; None where what stands behind `in` is no string."""
    right = node.comparators[0]
    if isinstance(right, ast.Tuple | ast.List | ast.Set | ast.Dict) or lists.found(lo, right) is not None:
        return None
    static = names.static(lo, right)
    if static is not MISSING and not isinstance(static, str):
        return None
    left, found = expressions.nullable_value(lo, node.left), expressions.any_value(lo, right)
    if not isinstance(found, Val) or found.type != STR:
        return None
    found, left = use(lo, found, right), use(lo, left, node.left)
    if left.type != STR:
        lo.body.refuse(node, f"'in' a string takes a string, not {left.type}")
    return texts.look(lo, "texts.contains", BOOL, found, left, node=node)


def length(lo: Lowering, node: ast.expr) -> Val | None:
    """len(s); None where that is no string."""
    if names.is_parameter(lo, node):
        return None
    found = expressions.any_value(lo, node)
    if not isinstance(found, Val) or found.type != STR:
        return None
    return texts.look(lo, "texts.length", INT, use(lo, found, node), node=node)
