"""Arithmetic of datetimes, dates and timedeltas: which may meet, and what comes out; and the clock."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from penstock.declare.types import DATE, DATETIME, FLOAT, INT, TIMEDELTA, Type
from penstock.plan.values import Val

if TYPE_CHECKING:
    from penstock.plan.lower import Lowering

TIMES = (DATETIME, DATE, TIMEDELTA)
# (operation, left, right) -> result.
RESULTS: dict[tuple[str, Type, Type], Type] = {
    ("add", TIMEDELTA, TIMEDELTA): TIMEDELTA,
    ("sub", TIMEDELTA, TIMEDELTA): TIMEDELTA,
    ("mul", TIMEDELTA, INT): TIMEDELTA,
    ("mul", INT, TIMEDELTA): TIMEDELTA,
    ("floordiv", TIMEDELTA, INT): TIMEDELTA,
    ("floordiv", TIMEDELTA, TIMEDELTA): INT,
    ("mod", TIMEDELTA, TIMEDELTA): TIMEDELTA,
    ("div", TIMEDELTA, TIMEDELTA): FLOAT,
}
for _place in (DATETIME, DATE):
    RESULTS |= {
        ("sub", _place, _place): TIMEDELTA,
        ("sub", _place, TIMEDELTA): _place,
        ("add", _place, TIMEDELTA): _place,
        ("add", TIMEDELTA, _place): _place,
    }


def arithmetic(lo: Lowering, code: str, sign: str, a: Val, b: Val, node: ast.AST) -> Val:
    """An operation of which one side, at least, is a time."""
    result = RESULTS.get((code, a.type, b.type))
    if result is None:
        hint = "; use //, which gives whole microseconds" if (code, a.type, b.type) == ("div", TIMEDELTA, INT) else ""
        lo.body.refuse(node, f"'{sign}' does not take {a.type} and {b.type}{hint}")
    return lo.value(code, result, a, b, node=node)


def now(lo: Lowering, node: ast.Call) -> Val:
    """ps.now(): of the type that ts has in this app."""
    if lo.event is None:
        lo.body.refuse(node, "a check only looks at its record; look at the clock in a transaction, and store it")
    if node.args or node.keywords:
        lo.body.refuse(node, "ps.now takes nothing; add to what it gives")
    return lo.value("now", order_type(lo, node, "ps.now() is"), node=node, const=lo.event.order is None)


def order_type(lo: Lowering, node: ast.AST, what: str) -> Type:
    """The type that ts has in this app."""
    ordered = next((event for event in lo.events if event.order is not None), None)
    if ordered is None or ordered.order is None:
        lo.body.refuse(node, f"{what} of the type of ts, and no event with a ps.order() is declared before this")
    return ordered.type_of(ordered.order)
