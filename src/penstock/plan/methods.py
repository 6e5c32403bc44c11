"""What a body may ask of a value by a name behind a dot: one row each, as plan/builtins.py has for functions.

    e.at.hour       an attribute: the kernel (execute/dates.py) gets the value
    e.at.date()     a method without arguments, likewise
    e.at.replace()  a method of another shape has a `lower` of its own

Which of these Python has and a body has not is in INSTEAD, with what to write for it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from penstock.declare.body import MISSING
from penstock.declare.types import BOOL, DATE, DATETIME, FLOAT, INT, STR, TIMEDELTA, Type
from penstock.plan import expressions, making_texts, making_times, names
from penstock.plan.nullable import use
from penstock.plan.values import Val

if TYPE_CHECKING:
    from penstock.plan.lower import Lowering


@dataclass(frozen=True, slots=True)
class Method:
    type: Type
    name: str
    gives: Type = INT
    kernel: str = ""
    called: bool = False  # t.date(); otherwise an attribute
    lower: Callable[[Lowering, Val, ast.Call], Val] | None = None

    @property
    def shown(self) -> str:
        return f"{self.name}()" if self.called else self.name


def find(type_: Type, name: str) -> Method | None:
    return next((row for row in METHODS if row.type == type_ and row.name == name), None)


def attribute(lo: Lowering, owner: Val, node: ast.Attribute) -> Val:
    """t.hour"""
    owner = use(lo, owner, node.value)
    row = find(owner.type, node.attr)
    if row is None:
        refuse(lo, owner.type, node)
    if row.called:
        lo.body.refuse(node, f"'{node.attr}' is a method; call it: {ast.unparse(node)}()")
    return lo.value("call", row.gives, owner, node=node, name=row.kernel, const=False)


def of_value(lo: Lowering, node: ast.Call) -> Val | None:
    """t.date(); None where what stands before the dot is no value."""
    if not isinstance(node.func, ast.Attribute) or names.is_parameter(lo, node.func.value):
        return None
    found = names.static(lo, node.func.value)
    if found is not MISSING and not names.is_constant(found):
        return None
    owner = expressions.any_value(lo, node.func.value)
    if not isinstance(owner, Val) or not any(row.type == owner.type for row in METHODS):
        return None
    return _call(lo, owner, node.func, node)


def _call(lo: Lowering, owner: Val, function: ast.Attribute, node: ast.Call) -> Val:
    owner = use(lo, owner, function.value)
    row = find(owner.type, function.attr)
    if row is None:
        refuse(lo, owner.type, function)
    if not row.called:
        lo.body.refuse(node, f"'{row.name}' is a value, not a method; write {ast.unparse(function)}")
    if row.lower is not None:
        return row.lower(lo, owner, node)
    if node.args or node.keywords:
        lo.body.refuse(node, f"{row.shown} takes nothing")
    return lo.value("call", row.gives, owner, node=node, name=row.kernel, const=False)


def refuse(lo: Lowering, type_: Type, node: ast.Attribute) -> NoReturn:
    """A name that values of this type have not, in a body."""
    shown = ", ".join(row.shown for row in METHODS if row.type == type_)
    if not shown:
        lo.body.refuse(node, f"this is {type_}, which has no columns")
    instead = INSTEAD.get((type_, node.attr))
    more = f"; {instead}" if instead else ""
    lo.body.refuse(node, f"'{node.attr}' of a {type_} cannot be compiled{more}; a {type_} has {shown}")


def _rows() -> list[Method]:
    out = []
    for type_, of in ((DATETIME, "_of"), (DATE, "")):
        out += [Method(type_, name, INT, f"dates.{name}{of}") for name in ("year", "month", "day")]
        out += [Method(type_, name, INT, f"dates.{name}{of}", called=True) for name in ("weekday", "isoweekday")]
        out.append(Method(type_, "toordinal", INT, f"dates.ordinal{of}", called=True))
        out.append(Method(type_, "replace", type_, called=True, lower=making_times.replace))
    out += [Method(DATETIME, name, INT, f"dates.{name}") for name in ("hour", "minute", "second", "microsecond")]
    out += [
        Method(DATETIME, "date", DATE, "dates.date", called=True),
        Method(DATETIME, "timestamp", FLOAT, "dates.total_seconds", called=True),
        Method(TIMEDELTA, "days", INT, "dates.days"),
        Method(TIMEDELTA, "seconds", INT, "dates.seconds"),
        Method(TIMEDELTA, "microseconds", INT, "dates.microsecond"),
        Method(TIMEDELTA, "total_seconds", FLOAT, "dates.total_seconds", called=True),
    ]
    return out


def _of_strings() -> list[Method]:
    looks = [Method(STR, name, BOOL, called=True, lower=making_texts.method) for name in ("startswith", "endswith")]
    makes = ("lower", "upper", "strip", "lstrip", "rstrip")
    return looks + [Method(STR, name, STR, called=True, lower=making_texts.method) for name in makes]


METHODS = (*_rows(), *_of_strings())
_AS_TEXT = "give the time itself, and write it as text where outcomes are read"
INSTEAD = {
    (DATETIME, "time"): "subtract its day: t - t.replace(hour=0, minute=0, second=0, microsecond=0)",
    (DATETIME, "astimezone"): "times are UTC; add an offset: t + timedelta(hours=1)",
    (DATETIME, "isoformat"): _AS_TEXT,
    (DATETIME, "strftime"): _AS_TEXT,
    (DATE, "isoformat"): _AS_TEXT,
    (DATE, "strftime"): _AS_TEXT,
    (TIMEDELTA, "hours"): "write s // timedelta(hours=1)",
    (TIMEDELTA, "minutes"): "write s // timedelta(minutes=1)",
    (STR, "format"): 'write f"{s}-{n}"',
    (STR, "join"): "write a + b, or an f-string",
}
