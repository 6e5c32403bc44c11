"""Who may come in: what a stream does with rows that cannot be events, and with times that nobody believes.

    on_bad   "reject"   such a row becomes an outcome `rejected`, and the others run
             "fail"     it fails its batch, and nothing of that is applied
    ahead    how far a ts may lie ahead: of the wall clock where ts is a datetime; where it is an int, of the highest
             that earlier batches brought. One further ahead would move the watermark, and all that follows would be
             late: it is treated as a row that cannot be an event

A verdict is taken once, when the row is first taken in. It is logged as an outcome, and a replay asks nobody again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.declare.model import EventDef, Program
from penstock.errors import InputError
from penstock.execute import bad_rows, intake
from penstock.execute.intake import EventBatch
from penstock.execute.order import times_of
from penstock.execute.request import Admission, set_back
from penstock.execute.source_files import SourceRows
from penstock.state.arrow import times


def admit(
    program: Program, batch: Mapping[Any, Any], rules: Admission, highest: int | None
) -> tuple[list[EventBatch], pa.Table | None]:
    """The batch by type of event, and its rejected rows as outcomes tell of them: transaction, ts, id, reason; None
    where there are none."""
    limit = rules.limit(program, highest)
    try:
        events = intake.events(program, batch)
    except InputError as error:
        if rules.on_bad == "fail":
            raise _of_first(program, batch, rules, limit) or error from error
    else:
        far = None if limit is None else next((one for one in events if times_of(one).max(initial=limit) > limit), None)
        if far is None:
            return events, None
        if rules.on_bad == "fail":
            error_of_source = _of_first(program, batch, rules, limit)
            if error_of_source is not None:
                raise error_of_source
            row = int(np.argmax(times_of(far)))
            assert far.event.order is not None
            ts = bad_rows.shown(far.table.column(far.event.order).chunk(0), row, far.event.type_of(far.event.order))
            raise InputError(f"event '{far.event.name}', row {row}: {rules.too_far(far.event, ts, program)}")
    sound, rejected = _split(program, batch, rules, limit)
    return intake.events(program, sound), rejected


def _of_first(program: Program, batch: Mapping[Any, Any], rules: Admission, limit: int | None) -> InputError | None:
    """What is said of the first bad row, if it is of a source that says where its rows are from: a topic's offsets."""
    sources = {who: given for who, given in batch.items() if isinstance(given, SourceRows) and given.where is not None}
    for who, given in sources.items():
        _, rejected = _split(program, {who: given}, rules, limit)
        if rejected.num_rows:
            event = intake.fitting(program, who, given.table)
            return InputError(f"event '{event.name}': {rejected.column('reason')[0]}")
    return None


def _split(
    program: Program, batch: Mapping[Any, Any], rules: Admission, limit: int | None
) -> tuple[dict[Any, Any], pa.Table]:
    """The batch without its bad rows, and these."""
    sound: dict[Any, Any] = {}
    rejected = [rejections(program, [])]
    for who, given in batch.items():
        data = given.table if isinstance(given, SourceRows) else intake.arrow(given, f"app '{program.name}'")
        event = intake.fitting(program, who, data)
        table = data.select([f.name for f in event.fields if f.name in data.column_names])
        bad = bad_rows.find(event, table)
        reasons = bad.reasons | _far(program, event, bad, rules, limit)
        if isinstance(given, SourceRows):
            rejected.append(_unreadable(program, event, given))
            if given.where is not None:
                reasons = {row: f"{reason} ({given.where(row)})" for row, reason in reasons.items()}
        rows = np.array(sorted(reasons), np.int64)
        sound[who] = _without(given, table, rows)
        if rows.size:
            at, whys = pa.array(rows), [reasons[row] for row in rows.tolist()]
            id = None if bad.id is None else bad.id.take(at)
            rejected.append(rejections(program, whys, event=event, ts=bad.ts.take(at), id=id))
    return sound, pa.concat_tables(rejected)


def _unreadable(program: Program, event: EventDef, given: SourceRows) -> pa.Table:
    """What a source could not make rows of: messages of a topic."""
    if given.unreadable is None:
        return rejections(program, [])
    read = {name: given.unreadable.column(name) for name in given.unreadable.column_names}
    return rejections(program, read.pop("reason").to_pylist(), event=event, **read)


def _without(given: Any, table: pa.Table, rows: Any) -> Any:
    """What was given without the bad rows of its table."""
    if not isinstance(given, SourceRows):
        return bad_rows.without(table, rows) if rows.size else given
    given = replace(given, unreadable=None)
    if not rows.size:
        return given
    # A log that names the files has to say which of their rows to leave out.
    refused = rows if given.files else None
    return replace(given, table=bad_rows.without(table, rows), refused=refused, where=None)


def given_up(program: Program, held: list[EventBatch]) -> pa.Table:
    """Events that waited beyond the high mark when it was set back, as rejected rows."""
    rejected = [rejections(program, [])]
    for one in held:
        event = one.event
        assert event.order is not None
        ts, type_ = one.column(event.order).combine_chunks(), event.type_of(event.order)
        reasons = [set_back(event, bad_rows.shown(ts, row, type_)) for row in range(len(ts))]
        id = one.column(event.id).combine_chunks() if event.id else None
        rejected.append(rejections(program, reasons, event=event, ts=ts, id=id))
    places = np.concatenate([np.zeros(0, np.int64), *(one.arrival for one in held)])
    return pa.concat_tables(rejected).take(pa.array(np.argsort(places, kind="stable")))


def _far(
    program: Program, event: EventDef, bad: bad_rows.BadRows, rules: Admission, limit: int | None
) -> dict[int, str]:
    """The rows whose only fault is their ts."""
    if limit is None:
        return {}
    assert event.order is not None
    known = bad.ts.is_valid().to_numpy(zero_copy_only=False)
    far = np.flatnonzero(known & (times(bad.ts.fill_null(0)) > limit)).tolist()
    type_ = event.type_of(event.order)
    return {
        row: rules.too_far(event, bad_rows.shown(bad.ts, row, type_), program) for row in far if row not in bad.reasons
    }


def rejections(
    program: Program, reasons: list[str], *, event: EventDef | None = None, ts: Any = None, id: Any = None
) -> pa.Table:
    """Rejected rows of one event, as outcomes tell of them."""
    schema, count = program.outcomes(), len(reasons)
    transaction = None if event is None else program.transaction_of(event)
    name = None if transaction is None else transaction.name
    known = {"transaction": pa.repeat(pa.scalar(name, pa.string()), count), "ts": ts, "id": id, "reason": reasons}
    names = [one for one in ("transaction", "ts", "id", "reason") if one in schema.names]
    columns = []
    for one in names:
        type_, values = schema.field(one).type, known[one]
        type_ = type_.value_type if pa.types.is_dictionary(type_) else type_
        columns.append(pa.nulls(count, type_) if values is None else _cast(values, type_))
    return pa.Table.from_arrays(columns, names=names)


def _cast(values: Any, type_: pa.DataType) -> pa.Array:
    return pa.array(values, type_) if isinstance(values, list) else values.cast(type_)
