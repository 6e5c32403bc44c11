"""Expressions of a body, lowered to operations, in Python's order of evaluation.

Every function takes the Lowering it adds to. `value` gives a Val, `record` a RecordRef,
`any_value` either, `condition` a bool Val by Python's truth, `found` whatever an expression may be.
"""

from __future__ import annotations

import ast
import enum
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.declare.body import MISSING
from penstock.declare.types import BOOL, INT, STR
from penstock.plan import calls, constants, lists, making_texts, methods, names, records, refusals, windows
from penstock.plan.nullable import is_none, none, use
from penstock.plan.numbers import arithmetic, compare, negate
from penstock.plan.values import (
    NONE,
    EventRef,
    Found,
    ListRef,
    MemberRef,
    RecordRef,
    SelfRef,
    Several,
    Stated,
    Unassigned,
    Val,
    WindowRef,
    WindowRow,
)

if TYPE_CHECKING:
    from penstock.plan.lower import Lowering


def found(lo: Lowering, node: ast.expr) -> Found:
    """A value, a record, a window, a list, an event, or several of these."""
    match node:
        case ast.Tuple(elts=elts):
            return Several(tuple(found(lo, one) for one in elts))
        case ast.Name(id=name) if isinstance(bound := lo.env.get(name), EventRef | MemberRef | SelfRef | Several):
            return bound
        case ast.Name(id=name) if name == lo.body.parameter and lo.table is not None:
            return SelfRef()
        case ast.Name() if lo.is_event(node) and lo.members is None:
            return EventRef()
        case ast.Call() if (made := calls.several(lo, node)) is not None:
            return made
    return lists.found(lo, node) or any_value(lo, node)


def any_value(lo: Lowering, node: ast.expr) -> Stated:
    """A value, a record, or a window."""
    match node:
        case ast.Name(id=name) if name in lo.env:
            binding = lo.env[name]
            if isinstance(binding, Unassigned):
                chosen = "; of a record that the loop chooses, keep the key in a name" if binding.in_loop else ""
                lo.body.refuse(
                    node,
                    f"'{name}' may be unassigned here; assign it on every path, before line {binding.line}{chosen}",
                )
            return _stated(lo, binding, node, f"'{name}'")
        case ast.Name(id=name) if name in lo.locals:
            lo.body.refuse(node, f"'{name}' may be unassigned here; assign it first")
        case ast.Subscript() if (table := names.table_of(lo, node.value)) is not None:
            return records.locate(lo, table, keys_of(lo, node.slice), node)
        case ast.Call(func=ast.Attribute(value=base, attr=method)) if (table := names.table_of(lo, base)) is not None:
            return records.method(lo, table, method, node)
        case ast.Call() if (made := calls.several(lo, node)) is not None:
            return _stated(lo, made, node, f"what {ast.unparse(node.func)} gives")
        case ast.IfExp():
            return _conditional(lo, node)
        case ast.Constant(value=None):
            return none(lo)
        case ast.Subscript() | ast.Name() | ast.Attribute() if (window := windows.ref(lo, node)) is not None:
            return window
    return _value(lo, node)


def _stated(lo: Lowering, found: Found, node: ast.expr, what: str) -> Stated:
    """What stands where a value or a record is wanted."""
    if isinstance(found, MemberRef | EventRef):
        lo.body.refuse(node, f"{what} is an event, not a value; name one of its fields")
    if isinstance(found, SelfRef):
        lo.body.refuse(node, f"{what} is a record, not a value; name one of its columns")
    if isinstance(found, ListRef):
        lo.body.refuse(node, f"{what} is a list; loop over it, index it, or take its len() or sum()")
    if isinstance(found, Several):
        names = ", ".join("abcdefgh"[: len(found.values)])
        lo.body.refuse(node, f"{what} is a tuple of {len(found.values)}; give each a name: {names} = …")
    return found


def value(lo: Lowering, node: ast.expr) -> Val:
    """A value that is used at once: the transaction aborts where it is None."""
    return use(lo, nullable_value(lo, node), node)


def nullable_value(lo: Lowering, node: ast.expr) -> Val:
    """A value, or None, for an operation that uses it when it has all that it takes, or need not."""
    found = any_value(lo, node)
    if isinstance(found, RecordRef):
        lo.body.refuse(node, f"a {found.table.name} record is not a value; name one of its columns")
    if isinstance(found, WindowRef):
        lo.body.refuse(node, f"window '{found.window.name}' is not a value; use len(…), a column's sum(), or a loop")
    if isinstance(found, WindowRow):
        lo.body.refuse(node, f"a row of window '{found.window.name}' is not a value; name one of its columns")
    return found


def record(lo: Lowering, node: ast.expr) -> RecordRef:
    return _only_record(lo, any_value(lo, node), node)


def _only_record(lo: Lowering, found: Stated, node: ast.expr) -> RecordRef:
    if isinstance(found, WindowRow):
        lo.body.refuse(node, f"rows of window '{found.window.name}' are only read")
    if isinstance(found, WindowRef):
        lo.body.refuse(node, f"window '{found.window.name}' takes rows by add(…), and shows them by a column's sum()")
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
    return truth(lo, nullable_value(lo, node), node)


def truth(lo: Lowering, found: Val, node: ast.AST) -> Val:
    if found.type == NONE:
        return lo.const(False, BOOL)
    nothing = found.type.traits.nothing
    if found.why is not None and nothing is None:
        return lo.value("not", BOOL, is_none(lo, found), node=node, guard=None)
    if found.type == BOOL:
        return found
    if nothing is None:
        lo.body.refuse(node, f"a {found.type} is always true; compare it with something")
    return lo.value("ne", BOOL, found, lo.const(nothing, found.type), node=node)


def _value(lo: Lowering, node: ast.expr) -> Val:
    match node:
        case ast.Constant():
            return names.constant(lo, node.value, node)
        case ast.Name(id=name):
            if name == lo.body.parameter:
                what = "name one of its fields" if lo.members is None else "loop over it: it is a list of events"
                lo.body.refuse(node, f"'{name}' is not a value; {what}")
            return names.global_value(lo, lo.body.lookup(name), name, node)
        case ast.Attribute():
            return _attribute(lo, node)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)) if (
            number is not True and number is not False
        ):
            return names.constant(lo, -number, node)
        case ast.UnaryOp(op=ast.USub()):
            return negate(lo, nullable_value(lo, node.operand), node)
        case ast.UnaryOp(op=ast.Not()) | ast.BoolOp():
            return _logic(lo, node)
        case ast.UnaryOp(op=op):
            lo.body.refuse(node, refusals.words(op))
        case ast.BinOp():
            return _binary(lo, node)
        case ast.Compare():
            return _compare(lo, node)
        case ast.Call():
            return calls.call(lo, node)
        case ast.JoinedStr():
            return making_texts.formatted(lo, node)
        case ast.Subscript() if (of := lists.found(lo, node.value)) is not None:
            if isinstance(node.slice, ast.Slice):
                lo.body.refuse(node, "a slice is a list; loop over it, or take its len() or sum()")
            return lists.item(lo, of, node)
        case ast.Subscript() if (found := constants.item(lo, node)) is not None:
            return found
        case ast.Subscript(slice=ast.Slice()):
            return making_texts.sliced(lo, node)
        case ast.Subscript():
            lo.body.refuse(node, _not_a_table(lo, node.value))
    lo.body.refuse(node, refusals.words(node))


def _binary(lo: Lowering, node: ast.BinOp) -> Val:
    """a + b + c + … nests to the left as deeply as it is long, so a loop goes along it."""
    several = [node]
    while isinstance(several[-1].left, ast.BinOp):
        several.append(several[-1].left)
    total = nullable_value(lo, several[-1].left)
    for one in reversed(several):
        total = arithmetic(lo, one.op, total, nullable_value(lo, one.right), one)
    return total


def _attribute(lo: Lowering, node: ast.Attribute) -> Val:
    if (part := windows.column_of(lo, node)) is not None:
        return part
    which = names.event(lo, node.value)
    if which is not None:
        return names.field(lo, node, which)
    found = names.static(lo, node)
    if found is not MISSING:
        return names.global_value(lo, found, ast.unparse(node), node)
    if _is_self(lo, node.value):
        return records.read_self(lo, node)
    owner = any_value(lo, node.value)
    if isinstance(owner, Val) and node.attr == "value" and owner.type in (STR, INT):  # of a member of an Enum
        return use(lo, owner, node.value)
    if isinstance(owner, Val):
        return methods.attribute(lo, owner, node)
    return records.read(lo, _only_record(lo, owner, node.value), node)


def _not_a_table(lo: Lowering, base: ast.expr) -> str:
    if isinstance(base, ast.Name) and base.id in lo.locals:
        return f"'{base.id}' is assigned in this body, so here it is not a table; use another name for it"
    if isinstance(base, ast.Name) and base.id != lo.body.parameter and lo.body.lookup(base.id) is MISSING:
        return f"'{base.id}' is not defined"
    return "only tables and lists of the event can be indexed: Account[k], e.xs[0]"


# -- records ------------------------------------------------------------------------------------


def refuse_event(lo: Lowering, target: ast.Attribute) -> None:
    """Neither an event nor the record that a check looks at can be changed."""
    if not isinstance(target.value, ast.Name):
        return
    bound = lo.env.get(target.value.id)
    if target.value.id == lo.body.parameter or isinstance(bound, MemberRef | EventRef | SelfRef):
        what = "an event cannot be changed" if lo.event is not None else "a check only looks; it cannot write"
        if lo.is_trigger:
            what = "a window is changed by add(…) alone"
        lo.body.refuse(target, what + "; use a local name")


def _is_self(lo: Lowering, node: ast.expr) -> bool:
    """Whether it is the record that a check looks at."""
    if lo.table is None or not isinstance(node, ast.Name):
        return False
    return node.id == lo.body.parameter or isinstance(lo.env.get(node.id), SelfRef)


def keys_of(lo: Lowering, node: ast.expr) -> list[Val]:
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    return [nullable_value(lo, part) for part in parts]


def write_column(lo: Lowering, target: ast.Attribute, new: Val) -> None:
    refuse_event(lo, target)
    if names.static(lo, target.value) is not MISSING:
        lo.body.refuse(target, "only columns of records can be changed; keep shared state in a table")
    records.write(lo, record(lo, target.value), target, new)


def write_record(lo: Lowering, found: RecordRef, target: ast.Attribute, new: Val) -> None:
    records.write(lo, found, target, new)


def delete(lo: Lowering, target: ast.expr) -> None:
    table = names.table_of(lo, target.value) if isinstance(target, ast.Subscript) else None
    if table is None:
        lo.body.refuse(target, "only records can be deleted: del Account[k]")
    assert isinstance(target, ast.Subscript)
    records.delete(lo, table, keys_of(lo, target.slice), target)


# -- logic --------------------------------------------------------------------------------------


def _logic(lo: Lowering, node: ast.expr) -> Val:
    """and, or, not where a value is wanted: Python gives an operand back, so they must be bools."""
    return _operand(lo, node) if isinstance(node, ast.BoolOp) else condition(lo, node)


def _operand(lo: Lowering, node: ast.BoolOp) -> Val:
    """`e.note or "none"`: the first operand that decides, or the last."""
    stop_on = isinstance(node.op, ast.Or)
    total = nullable_value(lo, node.values[0])
    path = lo.path
    for part in node.values[1:]:
        test = truth(lo, total, part)
        lo.path = lo.both(path, lo.negated(test.id) if stop_on else test.id)
        one = nullable_value(lo, part)
        lo.path = path
        if total.type == one.type == BOOL and total.why is None and one.why is None:
            total = lo.value("or" if stop_on else "and", BOOL, total, one, node=node, guard=None)
        elif stop_on:
            total = lo.select(
                node, "what 'or' gives", test, replace(total, why=None) if total.type != NONE else one, one
            )
        else:
            total = lo.select(node, "what 'and' gives", test, one, total)
    return total


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


def _conditional(lo: Lowering, node: ast.IfExp) -> Stated:
    test = condition(lo, node.test)
    path = lo.path
    arms = []
    for part, guard in ((node.body, test.id), (node.orelse, lo.negated(test.id))):
        lo.path = lo.both(path, guard)
        arms.append(any_value(lo, part))
    lo.path = path
    a, b = arms
    if isinstance(a, WindowRef | WindowRow) or isinstance(b, WindowRef | WindowRow):
        lo.body.refuse(node, "a window cannot be chosen by a condition; use an if, and two names")
    if isinstance(a, RecordRef) or isinstance(b, RecordRef):
        return lo.join_records(node, "this expression", test, a, b)
    return lo.select(node, "the two arms", test, a, b)


def _compare(lo: Lowering, node: ast.Compare) -> Val:
    if len(node.ops) == 1 and isinstance(node.ops[0], ast.In | ast.NotIn):
        return _membership(lo, node)
    path = lo.path
    left = nullable_value(lo, node.left)
    total: Val | None = None
    for op, part in zip(node.ops, node.comparators, strict=True):
        if total is not None:
            lo.path = lo.both(path, total.id)
        right = nullable_value(lo, part)
        one = (
            _is(lo, op, left, right, part, node)
            if isinstance(op, ast.Is | ast.IsNot)
            else compare(lo, op, left, right, node)
        )
        lo.path = path
        total = one if total is None else lo.value("and", BOOL, total, one, node=node, guard=None)
        left = right
    assert total is not None
    return total


def _is(lo: Lowering, op: ast.cmpop, left: Val, right: Val, part: ast.expr, node: ast.Compare) -> Val:
    """`x is None`, `x is Status.OPEN`, and their opposites. A member of an Enum is its value."""
    if isinstance(names.static(lo, part), enum.Enum):
        return compare(lo, ast.Eq() if isinstance(op, ast.Is) else ast.NotEq(), left, right, node)
    if right.type != NONE:
        return compare(lo, op, left, right, node)
    if left.why is None and isinstance(node.left, ast.Attribute):
        lo.body.refuse(
            node,
            f"'{node.left.attr}' is never None in a body: where a field is null, using it aborts; declare it with "
            "`| None` to ask",
        )
    found = is_none(lo, left)
    return found if isinstance(op, ast.Is) else lo.value("not", BOOL, found, node=node, guard=None)


def _membership(lo: Lowering, node: ast.Compare) -> Val:
    table = names.table_of(lo, node.comparators[0])
    if table is None and (asked := constants.contains(lo, node)) is not None:
        return asked
    if table is None:
        inside = making_texts.contains(lo, node)
        if inside is not None:
            return inside if isinstance(node.ops[0], ast.In) else lo.value("not", BOOL, inside, node=node, guard=None)
        lo.body.refuse(
            node, '\'in\' asks a table, or constants: k in Account, e.kind in ("card", "cash"); loop over a list'
        )
    found = records.contains(lo, table, keys_of(lo, node.left), node)
    if isinstance(node.ops[0], ast.NotIn):
        return lo.value("not", BOOL, found, node=node, guard=None)
    return found
