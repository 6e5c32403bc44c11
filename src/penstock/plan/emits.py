"""`ps.emit(Counted(contestant=e.contestant))` in a body; and with at=, a timer."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from penstock.declare.model import EventDef, timers_of
from penstock.declare.objects import EventType
from penstock.plan import names, times
from penstock.plan.nullable import is_none, use
from penstock.plan.numbers import to_type
from penstock.plan.values import Val

if TYPE_CHECKING:
    from penstock.plan.lower import Lowering

_FORM = "ps.emit takes an event that is made there: ps.emit(Counted(contestant=e.contestant))"


def lower(lo: Lowering, node: ast.Call) -> None:
    from penstock.plan.expressions import nullable_value

    if lo.event is None:
        lo.body.refuse(node, "a check only looks at its record; emit in a transaction")
    when = next((keyword.value for keyword in node.keywords if keyword.arg == "at"), None)
    others = len(node.keywords) - (when is not None)
    if len(node.args) != 1 or others or not isinstance(node.args[0], ast.Call):
        lo.body.refuse(node, _FORM)
    made = node.args[0]
    event = _event(lo, made)
    if made.args or any(keyword.arg is None for keyword in made.keywords):
        lo.body.refuse(made, f"{event.name} takes its fields by name: {event.name}({_shape(event)})")
    given: dict[str, Val] = {}
    for keyword in made.keywords:
        assert keyword.arg is not None
        if event.field(keyword.arg) is None:
            known = ", ".join(f.name for f in event.fields) or "none"
            lo.body.refuse(made, f"event '{event.name}' has no field '{keyword.arg}'; it has {known}")
        given[keyword.arg] = nullable_value(lo, keyword.value)
    for f in event.fields:
        if f.name not in given and not f.required:
            given[f.name] = names.default(lo, f)
    missing = [f.name for f in event.fields if f.name not in given]
    if missing:
        lo.body.refuse(made, f"{event.name} is emitted without its field '{missing[0]}'; give it a value")
    at = None if when is None else _at(lo, when)
    # Python evaluates every argument before the call; conversion belongs to the call.
    values = [
        to_type(lo, given[f.name], f.type, made, f"field '{f.name}' of event '{event.name}'", nullable=f.nullable)
        for f in event.fields
    ]
    values += [is_none(lo, one) for one, f in zip(values, event.fields, strict=True) if f.nullable]
    at = None if at is None else use(lo, at, made)
    if at is None:
        lo.emit("emit", tuple(v.id for v in values), name=event.name, node=node)
    else:
        args = (*(v.id for v in values), at.id)
        lo.emit("timer", args, name=event.name, table=timers_of(event.name), node=node)


def _at(lo: Lowering, node: ast.expr) -> Val:
    """When a timer runs: a value of the type that ts has in this app."""
    from penstock.plan.expressions import nullable_value

    type_ = times.order_type(lo, node, "at= is")
    if isinstance(node, ast.Constant) and node.value is None:
        lo.body.refuse(node, f"at=None is no time; give {type_}, or leave out at=: the event then runs in this round")
    at = nullable_value(lo, node)
    if at.type != type_:
        lo.body.refuse(node, f"at= is of the type of ts, which is {type_} in this app, not {at.type}")
    return at


def _event(lo: Lowering, made: ast.Call) -> EventDef:
    found = names.static(lo, made.func)
    if not isinstance(found, EventType):
        lo.body.refuse(made, _FORM)
    event = found.definition
    if event not in lo.events:
        lo.body.refuse(made, f"event '{event.name}' is declared in another app; declare it in this one")
    if event.order is not None:
        lo.body.refuse(
            made,
            f"event '{event.name}' comes from outside, for '{event.order}' is its ps.order(); emit an event that has "
            "none: it runs at the time of the event that caused it",
        )
    lists = [f.name for f in event.fields if f.type.item is not None]
    if lists:
        lo.body.refuse(
            made, f"'{lists[0]}' of event '{event.name}' is a list, which cannot be emitted; emit one event an item"
        )
    return event


def _shape(event: EventDef) -> str:
    return ", ".join(f"{f.name}=…" for f in event.fields)
