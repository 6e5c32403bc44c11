"""Outcomes: one row for each event, in the order in which the events ran.

    transaction  ts  [id]  status     reason              version  returned fields, as declared
    transfer     1   t1    committed  null                1        6.00
    transfer     2   t2    aborted    insufficient funds  1        null

`id` is there if any event of the app declares one. A field that a transaction does not return,
or that was undone, is null.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.declare.model import TEXT, Program
from penstock.declare.types import INT
from penstock.execute.native import Result
from penstock.execute.order import LATE, Ordered
from penstock.state.arrow import one_chunk, to_arrow
from penstock.state.strings import Strings

STATUS = pa.array(["committed", "aborted", "late"], pa.string())


def outcomes(
    program: Program, reasons: tuple[str, ...], batch: Ordered, result: Result, strings: Strings, version: int
) -> pa.Table:
    n = batch.count
    aborted = result.code != 0
    status = aborted.astype(np.int32)
    committed = ~aborted
    if batch.late is not None:
        status[batch.late] = 2
        committed &= ~batch.late
    names = [t.name for t in program.transactions]
    events = [e.name for e in program.events]
    number = np.zeros(max(len(events), 1), np.int32)
    for k, transaction in enumerate(program.transactions):
        number[events.index(transaction.event.name)] = k
    columns: dict[str, Any] = {
        "transaction": _text(number[batch.kind & (LATE - 1)], names),
        "ts": pa.Array.from_buffers(
            (program.order_type() or INT).arrow(), n, [None, pa.py_buffer(np.ascontiguousarray(batch.ts))]
        ),
        "status": _text(status, STATUS),
        "reason": _text(result.code - 1, list(reasons), aborted),
        "version": pa.array(np.full(n, version, np.int64)),
    }
    if program.id_type() is not None:
        columns["id"] = _ids(program, batch)
    for (name, type_), (values, given) in zip(program.returns, result.fields, strict=True):
        valid = given & committed
        columns[name] = to_arrow(values, type_, strings, None if valid.all() else valid)
    schema = program.outcomes()
    return pa.table([columns[f.name] for f in schema], schema=schema)


def _text(numbers: Any, texts: Any, valid: Any = None) -> pa.Array:
    bits = None if valid is None or valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    indices = pa.Array.from_buffers(
        pa.int32(), numbers.size, [bits, pa.py_buffer(np.ascontiguousarray(numbers, np.int32))]
    )
    dictionary = texts if isinstance(texts, pa.Array) else pa.array(texts, pa.string())
    assert TEXT.index_type == pa.int32()
    return pa.DictionaryArray.from_arrays(indices, dictionary, safe=False)


def _ids(program: Program, batch: Ordered) -> pa.Array:
    type_ = program.id_type()
    assert type_ is not None
    parts = []
    for arrived in batch.arrived:
        id_ = arrived.event.id
        parts.append(
            one_chunk(arrived.table.column(id_)).cast(type_.arrow())
            if id_
            else pa.nulls(arrived.table.num_rows, type_.arrow())
        )
    every = pa.concat_arrays(parts) if parts else pa.nulls(0, type_.arrow())
    return every if batch.place is None else every.take(pa.array(batch.place))
