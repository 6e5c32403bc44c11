"""Lists in a body: a list field of the event, a name of one, a slice of one; and items by their place.

e.xs           list xs
e.xs[1:3]      slice(list xs, 1, 3)       the same items, fewer of them
e.xs[-1]       index(list xs, -1)         aborts `index out of range`
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from penstock.declare.types import INT, INT_MAX
from penstock.plan import expressions, names
from penstock.plan.ir import MEMBER
from penstock.plan.nullable import use
from penstock.plan.values import ListRef, Val, in_body

if TYPE_CHECKING:
    from penstock.plan.lower import Lowering


def found(lo: Lowering, node: ast.expr) -> ListRef | None:
    """The list that an expression names; None where it names none."""
    match node:
        case ast.Name(id=name) if isinstance(bound := lo.env.get(name), ListRef):
            return bound
        case ast.Name() if names.is_members(lo, node):
            assert lo.members is not None
            return ListRef(lo.members)
        case ast.Attribute(value=base) if (which := names.event(lo, base)) is not None:
            made = names.list_of(lo, node, which)
            return None if made is None else ListRef(made)
        case ast.Subscript(value=base, slice=ast.Slice() as cut) if (of := found(lo, base)) is not None:
            return ListRef(_slice(lo, of.value, cut, node))
    return None


def needed(lo: Lowering, node: ast.expr) -> Val:
    """The list that an expression has to name."""
    of = found(lo, node)
    if of is None:
        lo.body.refuse(node, "this must be a list field of the event")
    return of.value


def item(lo: Lowering, of: ListRef, node: ast.Subscript) -> Val:
    """`e.xs[i]`."""
    _refuse_members(lo, of.value, node)
    place = expressions.value(lo, node.slice)
    if place.type != INT:
        lo.body.refuse(node, f"a list is indexed by an int, not {place.type}")
    assert of.value.type.item is not None
    return lo.value("index", in_body(of.value.type.item), of.value, place, node=node)


def _slice(lo: Lowering, of: Val, cut: ast.Slice, node: ast.AST) -> Val:
    _refuse_members(lo, of, node)
    if cut.step is not None:
        lo.body.refuse(node, "a slice with a step cannot be compiled; loop over range(start, stop, step), and index")
    ends = [
        lo.const(default, INT) if given is None else expressions.nullable_value(lo, given)
        for given, default in ((cut.lower, 0), (cut.upper, INT_MAX))
    ]
    ends = [use(lo, end, node) for end in ends]
    for end in ends:
        if end.type != INT:
            lo.body.refuse(node, f"a slice is from int to int, not {end.type}")
    return lo.value("slice", of.type, of, *ends, node=node)


def _refuse_members(lo: Lowering, of: Val, node: ast.AST) -> None:
    if of.type.item == MEMBER:
        lo.body.refuse(node, "a list of events is looped over whole; keep what you need of one in names")
