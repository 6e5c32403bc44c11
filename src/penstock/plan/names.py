"""Where expressions end: constants, what a name outside the body stands for, and fields of the event.

A name is looked up when the transaction is declared. What it stands for then is part of the plan.
"""

from __future__ import annotations

import ast
import datetime
import enum
import types
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from penstock.declare import objects
from penstock.declare.app import OUTCOME_COLUMNS
from penstock.declare.body import MISSING
from penstock.declare.kinds import COLUMNS
from penstock.declare.limits import LONGEST
from penstock.declare.model import Field
from penstock.declare.types import (
    BOOL,
    DATE,
    DATETIME,
    FLOAT,
    INT,
    INT_MAX,
    INT_MIN,
    NOT_TEXT,
    STR,
    TIMEDELTA,
    Type,
    is_text,
    plain,
    to_python,
)
from penstock.plan import nullable
from penstock.plan.values import EventRef, MemberRef, Val, decimal_type, in_body, scale_of, unscaled

if TYPE_CHECKING:
    from penstock.plan.lower import Lowering

_CONSTANTS = tuple(row.python for row in COLUMNS)
ANNOTATED = (INT, FLOAT, BOOL, STR, DATETIME, DATE, TIMEDELTA)


def constant(lo: Lowering, found: Any, node: ast.AST) -> Val:
    found = plain(found)
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
            return lo.const(text(lo, found, node), STR)
        case Decimal():
            return decimal_constant(lo, found, node)
        case datetime.datetime() | datetime.date() | datetime.timedelta():
            if isinstance(found, datetime.timedelta) and abs(found) > LONGEST:
                lo.body.refuse(node, f"{found!r} is longer than {LONGEST.days} days")
            type_ = next(one for one in (DATETIME, DATE, TIMEDELTA) if isinstance(found, one.traits.python))
            return lo.const(to_python(found, type_, where=lo.body.label), type_)
    lo.body.refuse(node, f"a constant of type {type(found).__name__} cannot be compiled")


def text(lo: Lowering, found: str, node: ast.AST) -> str:
    """A constant string, as outcomes and tables can hold it."""
    plain = found + ""  # the text itself: str() of an enum would give its name
    if not is_text(plain):
        lo.body.refuse(node, f"{plain!r} {NOT_TEXT}")
    return plain


def outcome_field(lo: Lowering, name: str, node: ast.AST) -> str:
    """The name of a field that outcomes get."""
    if not name:
        lo.body.refuse(node, "a returned field needs a name")
    text(lo, name, node)
    # Readers of the outcomes (SQL, Spark) do not tell upper case from lower.
    if name.lower() in OUTCOME_COLUMNS:
        lo.body.refuse(node, f"'{name}' is a column that every outcome has already; choose another name")
    return name


def decimal_constant(lo: Lowering, found: Decimal, node: ast.AST) -> Val:
    if not found.is_finite():
        lo.body.refuse(node, f"{found} is not a finite decimal")
    scale = scale_of(found)
    if scale > 18 or abs(unscaled(found, scale)) >= 10**18:
        lo.body.refuse(node, f"{found} has more than 18 digits")
    return lo.const(unscaled(found, scale), decimal_type(scale), literal=found)


def is_constant(found: Any) -> bool:
    return isinstance(plain(found), _CONSTANTS)


def global_value(lo: Lowering, found: Any, name: str, node: ast.AST) -> Val:
    if found is MISSING:
        lo.body.refuse(node, f"'{name}' is not defined")
    if found is None:
        return nullable.none(lo)
    if is_constant(found):
        return constant(lo, found, node)
    *most, last = (one.__name__ for one in _CONSTANTS)
    lo.body.refuse(
        node,
        f"'{name}' ({type(found).__name__}) is not a value that can be compiled; "
        f"use {', '.join(most)} or {last} constants",
    )


def annotated(lo: Lowering, node: ast.expr) -> Type | None:
    """The type of a name that is annotated as `int | None`, if it is one whose annotation says all of it."""
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr)):
        return None
    parts = [part for part in (node.left, node.right) if not (isinstance(part, ast.Constant) and part.value is None)]
    found = static(lo, parts[0]) if len(parts) == 1 else MISSING
    return next((one for one in ANNOTATED if one.traits.python is found), None)


def table_of(lo: Lowering, node: ast.expr) -> Any:
    """The table that an expression names, or None."""
    found = static(lo, node)
    if not isinstance(found, objects.Table):
        return None
    if lo.tables is not None and found.definition not in lo.tables:
        lo.body.refuse(node, f"table '{found.definition.name}' is declared in another app; declare it in this one")
    return found.definition


def static(lo: Lowering, node: ast.expr) -> Any:
    """What a dotted name outside the body stands for, or MISSING."""
    match node:
        case ast.Name(id=name) if name not in lo.locals and name != lo.body.parameter:
            return lo.body.lookup(name)
        case ast.Attribute(value=base, attr=attr):
            found = static(lo, base)
            if isinstance(found, types.ModuleType | type | types.SimpleNamespace):
                return getattr(found, attr, MISSING)
            if isinstance(found, enum.Enum) and attr == "value":
                return found.value
    return MISSING


def is_parameter(lo: Lowering, node: ast.expr) -> bool:
    """Whether it is what the body takes: an event, several of them, or the record that a check looks at."""
    return isinstance(node, ast.Name) and node.id == lo.body.parameter


def is_members(lo: Lowering, node: ast.expr) -> bool:
    """Whether it is the list of events that a transaction takes."""
    return lo.members is not None and is_parameter(lo, node)


def event(lo: Lowering, node: ast.expr) -> tuple[Val, ...] | None:
    """Of an event: which member it is, where a transaction takes several; None where it is no event."""
    if not isinstance(node, ast.Name) or lo.event is None:
        return None
    found = lo.env.get(node.id)
    if isinstance(found, MemberRef):
        return (found.member,)
    if isinstance(found, EventRef):
        return ()
    if not lo.is_event(node):
        return None
    if lo.members is not None:
        lo.body.refuse(node, f"'{node.id}' is a list of events; loop over it, and name the fields of each: for t in …")
    return ()


def field(lo: Lowering, node: ast.Attribute, which: tuple[Val, ...]) -> Val:
    """which: as `event` gives it."""
    assert lo.event is not None
    found = lo.event.field(node.attr)
    if found is None:
        names = ", ".join(f.name for f in lo.event.fields)
        lo.body.refuse(node, f"event '{lo.event.name}' has no field '{node.attr}'; it has {names}")
    if found.type.item is not None:
        lo.body.refuse(node, f"'{node.attr}' is a list; loop over it, index it, or take its len() or sum()")
    may_be_null = node.attr not in (lo.event.order, lo.event.id) and not found.nullable
    given = lo.value("field", in_body(found.type), *which, node=node, name=node.attr, const=may_be_null)
    if not found.nullable:
        return given
    return nullable.given(lo, given, lo.value("is_null", BOOL, *which, node=node, name=node.attr), node.attr)


def default(lo: Lowering, field: Field) -> Val:
    """What an event holds of a field that it is made without."""
    if field.default is None:
        return nullable.none(lo)
    if field.type.kind == "decimal":
        return lo.const(unscaled(field.default, field.type.scale), field.type)
    return lo.const(field.default, field.type)


def list_of(lo: Lowering, node: ast.Attribute, which: tuple[Val, ...]) -> Val | None:
    """A list field; None where the field is no list. which: as `event` gives it."""
    assert lo.event is not None
    found = lo.event.field(node.attr)
    if found is None or found.type.item is None:
        return None
    return lo.value("list", found.type, *which, node=node, name=node.attr, const=True)
