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
from penstock.execute.uncompiled import Key, Row
from penstock.execute.values import convert, lift, lower


def records(table: TableDef, before: TableDef, rows: Mapping[Key, Row], renamed: Mapping[str, str]) -> dict[Key, Row]:
    """renamed: what "Account.amount" is called now."""
    now = {c.name: renamed.get(f"{table.name}.{c.name}", c.name) for c in before.columns}
    out = {}
    for key, row in rows.items():
        values = {now[name]: value for name, value in row.items()}
        out[key] = {c.name: _as(values[c.name], c.type) if c.name in values else lift(c.default) for c in table.values}
    return out


def fields(event: EventDef, values: Mapping[str, Any]) -> dict[str, Any]:
    return {f.name: _plain(values[f.name], f.type) if f.name in values else f.left_out for f in event.fields}


def _plain(value: Any, type_: Any) -> Any:
    return value if value is None or type_.item is not None else lower(_as(lift(value), type_))


def _as(value: Any, type_: Any) -> Any:
    return None if value is None else convert(lift(lower(value)), type_)
