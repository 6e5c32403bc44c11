"""What a version says of calls: which of its rows answer whom. Its commit keeps that, so it holds after a crash."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.declare.model import TEXT, Program
from penstock.execute.called import has_ts
from penstock.execute.field_hashes import field_hashes
from penstock.execute.intake import EventBatch
from penstock.execute.outcomes import BatchOutcomes
from penstock.state.arrow import times
from penstock.store.stream import StreamState, WaitingCall


class Answers(NamedTuple):
    """What a version says of calls."""

    rows: pa.Table  # the outcomes of those that made it, in their order
    noted: pa.Table | None  # of all that it answers and that have an id: event, id, row of its outcomes, fields
    waited: list[tuple[WaitingCall, int]]  # calls that an earlier version took, and their rows


def answers_of(
    program: Program,
    called: list[EventBatch] | None,
    merged: list[EventBatch],
    stream: StreamState,
    outcomes: BatchOutcomes,
    before: StreamState,
) -> tuple[Answers, StreamState]:
    """What a batch that has run says of calls, and the stream without those that waited for it. called: where it is a
    version of calls, these; merged: by type of event. before: the stream that the version before left."""
    if called is not None:
        rows, told = roots(outcomes)
        return Answers(told, _noted(called, merged, rows), []), stream
    mark = before.buffer.highest
    given_up = {one for one in before.waiting if mark is not None and one.ts > mark}  # watermark.py
    found = [(one, _row_of(program, one, outcomes, rejected=one in given_up)) for one in stream.waiting]
    waited = [(one, row) for one, row in found if row is not None]
    noted = [
        _calls(one.event, pa.array([one.id]), [row], pa.array([one.fields], pa.uint64()))
        for one, row in waited
        if one.id is not None
    ]
    answers = Answers(outcomes.table.slice(0, 0), _below(noted), waited)
    return answers, stream._replace(waiting=tuple(one for one, row in found if row is None))


def roots(outcomes: BatchOutcomes) -> tuple[Any, pa.Table]:
    """The rows of the events that were called, in order: their numbers, and what is in them."""
    table, rows = outcomes.table, outcomes.arrived
    return (np.arange(table.num_rows), table) if rows is None else (rows, table.take(pa.array(rows)))


def _noted(called: list[EventBatch], merged: list[EventBatch], rows: Any) -> pa.Table | None:
    brought = np.repeat([has_ts(one) for one in called], [one.table.num_rows for one in called])
    found = []
    for batch in merged:
        event = batch.event
        if event.id is not None:
            given = None if event.order is None else {event.order: brought[batch.arrival]}
            fields = pa.array(field_hashes(batch.table, given))
            found.append(_calls(event.name, batch.column(event.id), rows[batch.arrival], fields))
    return _below(found)


def _calls(event: str, ids: Any, rows: Any, fields: pa.Array) -> pa.Table:
    ids = ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids
    ids = ids.cast(ids.type.value_type) if pa.types.is_dictionary(ids.type) else ids
    events = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(ids), np.int32)), pa.array([event]))
    columns = {"event": events.cast(TEXT), "id": ids, "row": pa.array(rows, pa.int32()), "fields": fields}
    return pa.table(columns)


def _below(calls: list[pa.Table]) -> pa.Table | None:
    return pa.concat_tables(calls).unify_dictionaries() if calls else None


def _row_of(program: Program, call: WaitingCall, every: BatchOutcomes, *, rejected: bool) -> int | None:
    """The row of the outcomes that is this call's; None where it has not run. rejected: it is among those that were."""
    first = every.ran.num_rows if rejected else 0
    outcomes = every.table.slice(first) if rejected else every.ran
    event = program.event(call.event)
    transaction = None if event is None else program.transaction_of(event)
    assert transaction is not None
    found = np.flatnonzero(times(outcomes.column("ts")) == call.ts)
    seen = 0
    for row, one in zip(found.tolist(), outcomes.take(pa.array(found)).to_pylist(), strict=True):
        if one["transaction"] == transaction.name and one.get("id") == call.id and not one.get("step"):
            if seen == call.place:
                return first + int(row)
            seen += 1
    return None
