"""The source of arithmetic with datetimes (us), dates (days) and timedeltas (us)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.declare.limits import DAY
from penstock.declare.types import DATE, DATETIME, Type
from penstock.execute.codegen.source import Source, unfolded
from penstock.plan.ir import Op

if TYPE_CHECKING:
    from penstock.execute.codegen.emitter import Emitter

_DIVISIONS = {"floordiv": "floor_div", "mod": "floor_mod", "div": "true_div"}


def arithmetic(em: Emitter, out: Source, op: Op, v: str, args: list[str], types: list[Type]) -> None:
    a, b = args
    if op.code in _DIVISIONS:
        # Every timedelta has its opposite, so that no quotient overflows.
        em.abort(out, f"{b} == 0", "division by zero")
        out.line(f"{v} = k_.{_DIVISIONS[op.code]}({a}, {b})")
        return
    if types == [DATETIME, DATETIME]:
        out.line(f"{v} = {unfolded(a)} - {b}")
        return
    if types == [DATE, DATE]:
        out.line(f"{v} = ({unfolded(a)} - {b}) * {DAY}")
        return
    if DATE in types:
        # As in Python, a date moves by the whole days of a timedelta, rounded down.
        a, b = (x if t == DATE else f"k_.floor_div({x}, {DAY})" for x, t in zip(args, types, strict=True))
    else:
        em.abort(out, f"k_.{op.code}_lost({a}, {b})", "overflow")
    out.line(f"{v} = {unfolded(a)} {op.traits.sign} {b}")
    assert op.type is not None
    low, high = op.type.traits.limits
    em.abort(out, f"{v} < {low} or {v} > {high}", "overflow")
