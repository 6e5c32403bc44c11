"""Times that a body makes by their names: datetime(…), date(…) and timedelta(…), and t.replace(…)."""

from __future__ import annotations

import ast
import datetime
import types
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from penstock.declare.body import MISSING
from penstock.declare.limits import LONGEST
from penstock.declare.types import DATETIME, INT, TIMEDELTA
from penstock.plan import expressions, names
from penstock.plan.nullable import use
from penstock.plan.values import Val

if TYPE_CHECKING:
    from penstock.plan.lower import Lowering

# What timedelta takes, in Python's order, and one of each.
UNITS = {
    name: datetime.timedelta(**{name: 1})
    for name in ("days", "seconds", "microseconds", "milliseconds", "minutes", "hours", "weeks")
}
_PARTS = ("year", "month", "day", "hour", "minute", "second", "microsecond")


_NOW = "ps.now() is the clock"
_FROM_TEXT = "send the time itself, not as text"
_OF_SECONDS = "write datetime(1970, 1, 1) + timedelta(seconds=n)"
_INSTEAD: dict[Any, str] = {
    datetime.datetime.combine: "write datetime(1970, 1, 1) + (day - date(1970, 1, 1)), and add a timedelta",
    datetime.datetime.fromtimestamp: _OF_SECONDS,
    datetime.datetime.utcfromtimestamp: _OF_SECONDS,
    datetime.date.fromtimestamp: "write (datetime(1970, 1, 1) + timedelta(seconds=n)).date()",
    datetime.datetime.fromordinal: "write datetime(1, 1, 1) + timedelta(days=n - 1)",
    datetime.date.fromordinal: "write date(1, 1, 1) + timedelta(days=n - 1)",
    datetime.datetime.now: _NOW,
    datetime.datetime.utcnow: _NOW,
    datetime.datetime.today: _NOW,
    datetime.date.today: "ps.now() is the clock, and ps.now().date() its day",
    datetime.datetime.strptime: _FROM_TEXT,
    datetime.datetime.fromisoformat: _FROM_TEXT,
    datetime.date.fromisoformat: _FROM_TEXT,
}


def instead(function: Any) -> str:
    """What to write instead of a function that makes a time, which a body has not."""
    return _INSTEAD.get(function, "") if isinstance(function, types.BuiltinMethodType) else ""


def span(lo: Lowering, node: ast.Call) -> Val:
    """timedelta(minutes=5): its arguments are constants, or ints, by place or by name."""
    names_ = [*UNITS][: len(node.args)] + [one.arg or "" for one in node.keywords]
    given = [*node.args, *(one.value for one in node.keywords)]
    if len(names_) < len(given) or len(set(names_)) < len(names_) or not set(names_) <= set(UNITS):
        lo.body.refuse(node, f"timedelta takes {_listed(UNITS)}")
    parts = {name: _number(lo, one) for name, one in zip(names_, given, strict=True)}
    if MISSING in parts.values():
        return _sum(lo, dict(zip(names_, given, strict=True)), node)
    try:
        # No part is out of range by itself, even where another would bring it back.
        if datetime.timedelta(**{name: abs(part) for name, part in parts.items()}) <= LONGEST:
            return names.constant(lo, datetime.timedelta(**parts), node)
    except (ValueError, OverflowError):
        pass
    lo.body.refuse(node, f"this timedelta is longer than {LONGEST.days} days")


def _sum(lo: Lowering, parts: dict[str, ast.expr], node: ast.Call) -> Val:
    """n * timedelta(minutes=1) + …: of each part in turn, as they are written, once all are evaluated."""
    given = {name: expressions.nullable_value(lo, one) for name, one in parts.items()}
    total: Val | None = None
    for name, one in given.items():
        found = use(lo, one, parts[name])
        if found.type != INT:
            lo.body.refuse(parts[name], f"timedelta takes constant numbers and ints, not {found.type}")
        part = lo.value("mul", TIMEDELTA, found, lo.const(UNITS[name], TIMEDELTA), node=node)
        total = part if total is None else lo.value("add", TIMEDELTA, total, part, node=node)
    assert total is not None
    return total


def place(lo: Lowering, node: ast.Call) -> Val:
    """datetime(2026, 1, 1), date(2026, 1, 1): constants; a datetime without a zone is in UTC."""
    made = names.static(lo, node.func)
    takes = ("year", "month", "day") if made is datetime.date else (*_PARTS, "tzinfo")
    named = {one.arg or "": one.value for one in node.keywords}
    several = dict(zip(takes, node.args, strict=False)) | named
    if len(several) < len(node.args) + len(node.keywords) or not set(several) <= set(takes):
        lo.body.refuse(node, f"{made.__name__} takes {_listed(takes)}")
    parts = {}
    for name, one in several.items():
        found = names.static(lo, one) if name == "tzinfo" else _number(lo, one)
        if found is MISSING or isinstance(found, float):
            moved = "add to one: datetime(1970, 1, 1) + timedelta(seconds=n)"
            if made is datetime.date:
                moved = "add to one: date(1970, 1, 1) + timedelta(days=n)"
            lo.body.refuse(node, f"{made.__name__}: {name} is no constant int; {moved}")
        parts[name] = found
    try:
        return names.constant(lo, made(**parts), node)
    except (TypeError, ValueError, OverflowError) as error:
        lo.body.refuse(node, f"{made.__name__}: {error}")


def replace(lo: Lowering, owner: Val, node: ast.Call) -> Val:
    """t.replace(minute=0): by constants, and so that there is such a time whatever t is."""
    takes = _PARTS if owner.type == DATETIME else _PARTS[:3]
    parts: dict[str, Any] = {}
    for one in node.keywords:
        if one.arg is None or one.arg not in takes or one.arg in parts:
            break
        found = _number(lo, one.value)
        if found is MISSING or isinstance(found, float):
            lo.body.refuse(
                node,
                f"replace: {one.arg} is a constant int; for another, add to what it gives: "
                f"t.replace({one.arg}={0 if one.arg in _PARTS[3:] else 1}) + timedelta(…)",
            )
        parts[one.arg] = found
    if node.args or not parts or len(parts) < len(node.keywords):
        lo.body.refuse(node, f"replace takes {_listed(takes)} by name")
    if ("year" in parts or "month" in parts) and "day" not in parts:
        lo.body.refuse(node, "replace: not every month has every day; give the day too: t.replace(month=1, day=1)")
    try:
        datetime.datetime(2001, 2, 1).replace(**parts)
    except (ValueError, OverflowError) as error:
        lo.body.refuse(node, f"replace: {error}; the day is 1 to 28, so that every month has it")
    given = [lo.const(parts.get(name, -1), INT) for name in takes]
    kernel = "dates.replace_of" if owner.type == DATETIME else "dates.replace"
    return lo.value("call", owner.type, owner, *given, node=node, name=kernel, const=False)


def _listed(several: Iterable[str]) -> str:
    *most, last = several
    return f"{', '.join(most)} and {last}"


def _number(lo: Lowering, node: ast.expr) -> Any:
    """A constant number; MISSING where it is something else."""
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            found = _number(lo, inner)
            return MISSING if found is MISSING else -found
        case ast.Constant(value=found):
            pass
        case _:
            found = names.static(lo, node)
    if isinstance(found, bool) or not isinstance(found, int | float):
        return MISSING
    return found
