"""Values that may be None: those of nullable fields and columns, and None itself.

Such a value is two in the plan: the value, and why there is none, an int: 0 where there is one, else the number of the
reason by which a use of it aborts. What is None lies as the zero of its type, everywhere: so that it is false, and the
same wherever it is kept. A column keeps whether it is None in a lane of its own, beside the column's.

    e.note               %3 = is_null note, %4 = field note
                         %5 = select(%3, "", %4)                the value
                         %6 = select(%3, null note, 0)          why
    e.note is None       %7 = ne(%6, 0)
    e.note < "b"         --  use(%6)                            aborts `null note`

It may be assigned, chosen, compared with == and !=, tested, stored where None may be, and returned. Every other
operation uses it.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.declare.limits import EPOCH
from penstock.declare.types import BOOL, INT, Type
from penstock.plan.values import NONE, Val

if TYPE_CHECKING:
    from penstock.plan.lower import Lowering

# What lies where there is none, of types that have no value that is false.
_ZEROS: dict[str, Any] = {
    "datetime": EPOCH,
    "date": EPOCH.date(),
}


def zero_of(type_: Type) -> Any:
    """The zero of a type, as constants of a plan are written."""
    return _ZEROS.get(type_.kind, type_.traits.nothing)


def none(lo: Lowering, reason: str = "null") -> Val:
    """None as it is written; it takes the type of what it meets."""
    return Val(lo.const(0, INT).id, NONE, why=_reason(lo, reason))


def _reason(lo: Lowering, text: str) -> int:
    return lo.emit("reason", (), INT, name=text, guard=None)


def given(lo: Lowering, found: Val, is_none: Val, name: str) -> Val:
    """A value of a field or column, and whether it is None. It need not lie as zero yet."""
    value = lo.value("select", found.type, is_none, lo.const(zero_of(found.type), found.type), found, guard=None)
    return Val(value.id, found.type, why=_why(lo, is_none, name))


def kept(lo: Lowering, found: Val, is_none: Val, name: str) -> Val:
    """The same of one that lies as zero."""
    return Val(found.id, found.type, why=_why(lo, is_none, name))


def _why(lo: Lowering, is_none: Val, name: str) -> int:
    reason, nothing = _reason(lo, f"null {name}"), lo.const(0, INT)
    return lo.emit("select", (is_none.id, reason, nothing.id), INT, guard=None)


def why(lo: Lowering, found: Val) -> int:
    return lo.const(0, INT).id if found.why is None else found.why


def is_none(lo: Lowering, found: Val) -> Val:
    if found.why is None:
        return lo.const(False, BOOL)
    return lo.value("ne", BOOL, Val(found.why, INT), lo.const(0, INT))


def use(lo: Lowering, found: Val, node: ast.AST) -> Val:
    """The value; the transaction aborts where there is none."""
    if found.why is None:
        return found
    if found.type == NONE:
        lo.body.refuse(
            node,
            "None is not a value here; it may be assigned, returned, stored where None may be, and asked for with "
            "`is None`",
        )
    lo.emit("use", (found.why,), node=node, name=_named(node))
    return replace(found, why=None)


def _named(node: ast.AST) -> str:
    """What is used, for those who read a plan."""
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return "…"


def typed(lo: Lowering, found: Val, type_: Type) -> Val:
    """None, as one of a type; anything else is itself."""
    if found.type != NONE:
        return found
    return Val(lo.const(zero_of(type_), type_).id, type_, why=found.why)


def equal(lo: Lowering, same: Val, a: Val, b: Val) -> Val:
    """Whether a == b, if `same` says that of what lies there: None equals None alone."""
    if a.why is None or b.why is None:
        both = lo.value("not", BOOL, is_none(lo, b if a.why is None else a), guard=None)
    else:
        both = lo.value("eq", BOOL, is_none(lo, a), is_none(lo, b), guard=None)
    return lo.value("and", BOOL, same, both, guard=None)
