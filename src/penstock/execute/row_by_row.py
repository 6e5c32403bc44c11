"""The law of admission: each row by itself. One that intake refuses alone, or whose ts is too far ahead, is no event.

It says the same as admission.py, but of a cell at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from penstock.declare.limits import EPOCH, MICROSECOND
from penstock.declare.model import EventDef, Program
from penstock.errors import InputError
from penstock.execute import bad_rows, intake
from penstock.execute.casting import column
from penstock.execute.request import Admission
from penstock.execute.source_files import SourceRows

Rejected = dict[str, Any]  # transaction, ts, id, reason


def admit(
    program: Program, batch: Mapping[Any, Any], rules: Admission, highest: int | None
) -> tuple[dict[Any, pa.Table], list[Rejected]]:
    """The rows that are events, and what is said of the others, in order of arrival."""
    limit = rules.limit(program, highest)
    good, out = dict[Any, pa.Table](), list[Rejected]()
    for who, given in batch.items():
        data = given.table if isinstance(given, SourceRows) else given
        event, rows = intake.fitting(program, who, data), [data.slice(0, 0)]
        transaction = program.transaction_of(event)
        assert transaction is not None
        for i in range(data.num_rows):
            row = data.slice(i, 1)
            told = {name: _read(event, name, row) for name in (event.order, event.id) if name is not None}
            ts, id = (None if name is None else told[name] for name in (event.order, event.id))
            reason = _reason(program, event, row, told, rules, limit)
            if reason is None:
                rows.append(row)
            else:
                out.append({"transaction": transaction.name, "ts": ts, "id": id, "reason": reason})
        good[who] = pa.concat_tables(rows)
    return good, out


def _reason(
    program: Program, event: EventDef, row: pa.Table, told: dict[str, Any], rules: Admission, limit: int | None
) -> str | None:
    """Why the row is no event; None where it is one."""
    for f in (f for f in event.fields if f.name in row.column_names):
        cell = row.column(f.name).combine_chunks()
        cell = cell.dictionary_decode() if pa.types.is_dictionary(cell.type) else cell
        try:
            column(pa.chunked_array([cell]), f.type, where="")
        except InputError:
            return bad_rows.refusal(f, cell, 0)
        if f.name in (event.order, event.id) and told[f.name] is None:
            return bad_rows.no_value(f)
    assert event.order is not None
    ts = told[event.order]
    number = (ts - EPOCH) // MICROSECOND if hasattr(ts, "year") else ts
    if limit is None or number <= limit:
        intake.events(program, {event.name: row})  # and so it is taken
        return None
    type_ = event.type_of(event.order)
    shown = bad_rows.shown(pa.array([ts], type_.arrow()), 0, type_)
    return rules.too_far(event, shown, program)


def _read(event: EventDef, name: str, row: pa.Table) -> Any:
    """The field, null where it cannot be read."""
    try:
        return column(row.column(name), event.type_of(name), where="")[0].as_py()
    except InputError:
        return None
