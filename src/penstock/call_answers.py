"""What a version says of calls: which of its rows answer whom. Its commit keeps that, so it holds after a crash."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.declare.model import Program
from penstock.execute.called import one_row
from penstock.execute.intake import EventBatch
from penstock.execute.outcomes import BatchOutcomes
from penstock.state.arrow import times
from penstock.store.stream import StreamState, WaitingCall

Key = tuple[str, Any]  # an event's name, and the id that it was called with
Outcome = dict[str, Any]


class Answer(NamedTuple):
    """What a version says of a call."""

    key: Key | None
    row: int  # of the version's outcomes
    outcome: Outcome
    waited: WaitingCall | None  # a call that an earlier version took


def answers_of(
    program: Program,
    called: list[EventBatch] | None,
    stream: StreamState,
    outcomes: BatchOutcomes,
    before: StreamState,
) -> tuple[list[Answer], StreamState]:
    """What a batch that has run says of calls, and the stream without those that waited for it. called: where it is a
    version of calls, these. before: the stream that the version before left."""
    if called is not None:
        rows, told = roots(outcomes)
        keys = [_key(one) for one in called]
        return [Answer(key, row, one, None) for key, row, one in zip(keys, rows, told, strict=True)], stream
    mark = before.buffer.highest
    given_up = {one for one in before.waiting if mark is not None and one.ts > mark}  # watermark.py
    found = [(one, _row_of(program, one, outcomes, rejected=one in given_up)) for one in stream.waiting]
    answers = [
        Answer(None if one.id is None else (one.event, one.id), row, outcomes.table.slice(row, 1).to_pylist()[0], one)
        for one, row in found
        if row is not None
    ]
    return answers, stream._replace(waiting=tuple(one for one, row in found if row is None))


def notes_of(cause: str | None, answers: list[Answer]) -> dict[str, Any]:
    """What the commit of a version says of calls: see store/segment.py."""
    notes: dict[str, Any] = {} if cause is None else {"cause": cause}
    kept = [[*one.key, one.row] for one in answers if one.key is not None]
    return notes | {"calls": kept} if kept else notes


def roots(outcomes: BatchOutcomes) -> tuple[list[int], list[Outcome]]:
    """The rows of the events that were called, in order; and these rows."""
    table, rows = outcomes.table, outcomes.arrived
    if rows is None:
        return list(range(table.num_rows)), table.to_pylist()
    return rows.tolist(), table.take(pa.array(rows)).to_pylist()


def _key(call: EventBatch) -> Key | None:
    return None if call.event.id is None else (call.event.name, one_row(call, call.event.id))


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
