"""The law of a changed schema: what an app's reference takes over from that of the app before.

    records    a column by its name, or by the one that it had; a new one has its default
    windows    as they were, where they are in both
    held       the fields of today
    timers     likewise
    clock      goes on, and with it what was called and what is late

Nothing runs, and no check is asked. It works on plain values, and shares nothing with what does so on disk (store/).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.declare.model import EventDef, TableDef
from penstock.errors import InputError
from penstock.execute.uncompiled import Key, Row
from penstock.execute.values import convert, lift, lower


def records(table: TableDef, before: TableDef, rows: Mapping[Key, Row], renamed: Mapping[str, str]) -> dict[Key, Row]:
    """renamed: what "Account.amount" is called now."""
    now = {c.name: renamed.get(f"{table.name}.{c.name}", c.name) for c in before.columns}
    out = {}
    for key, row in rows.items():
        values = {now[name]: value for name, value in row.items()}
        for column, value in [*zip(table.keys, key, strict=True), *((c, values.get(c.name)) for c in table.values)]:
            _refuse_stranger(f"table '{table.name}': {column.name}", lower(value), column.type)
        out[key] = {c.name: _as(values[c.name], c.type) if c.name in values else lift(c.default) for c in table.values}
    return out


def fields(event: EventDef, values: Mapping[str, Any]) -> dict[str, Any]:
    for field in event.fields:
        _refuse_stranger(f"event '{event.name}': {field.name}", values.get(field.name), field.type)
    return {f.name: _plain(values[f.name], f.type) if f.name in values else f.left_out for f in event.fields}


def timer(event: EventDef, values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of an event that waits for a time: whoever emits None where it may not be aborts, so none does it later."""
    found = fields(event, values)
    for field in event.fields:
        if found[field.name] is None and not field.nullable:
            raise InputError(f"event '{event.name}': {field.name} of a timer is None, and may not be any more")
    return found


def _refuse_stranger(what: str, value: Any, type_: Any) -> None:
    for one in value if isinstance(value, list) else [value]:
        if type_.all_members and one is not None and one not in type_.all_members:
            raise InputError(f"{what} is {one!r}, which is no member any more")


def _plain(value: Any, type_: Any) -> Any:
    return value if value is None or type_.item is not None else lower(_as(lift(value), type_))


def _as(value: Any, type_: Any) -> Any:
    return None if value is None else convert(lift(lower(value)), type_)
