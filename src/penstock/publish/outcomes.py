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
from penstock.execute.native import Result
from penstock.execute.order import LATE, Ordered
from penstock.state.arrow import one_chunk, to_arrow
from penstock.state.strings import Strings

STATUS = pa.array(["committed", "aborted", "late"], pa.string())


class Outcomes:
    """How a program's outcomes look; what does not change from batch to batch is made once."""

    def __init__(self, program: Program, reasons: tuple[str, ...]) -> None:
        self.program = program
        self.schema = program.outcomes()
        self._id_type = program.id_type()
        self._transactions = pa.array([t.name for t in program.transactions], pa.string())
        self._reasons = pa.array(reasons, pa.string())
        # Kind of event -> its transaction's number.
        events = [e.name for e in program.events]
        self._number = np.zeros(max(len(events), 1), np.int32)
        for k, transaction in enumerate(program.transactions):
            self._number[events.index(transaction.event.name)] = k

    def table(self, batch: Ordered, result: Result, strings: Strings, version: int) -> pa.Table:
        n, kind = batch.count, batch.kind
        aborted = result.code != 0
        status = aborted.astype(np.int32)
        committed = ~aborted
        if batch.late is not None:
            kind = kind & (LATE - 1)
            status[batch.late] = 2
            committed &= ~batch.late
        columns = [
            _text(self._number.take(kind), self._transactions),
            _numbers(batch.ts, self.schema.field(1).type),
            *([] if self._id_type is None else [self._ids(batch)]),
            _text(status, STATUS),
            _text(result.code - 1, self._reasons, aborted),
            _numbers(np.full(n, version, np.int64), pa.int64()),
        ]
        for (_, type_), (values, given) in zip(self.program.returns, result.fields, strict=True):
            valid = given & committed
            columns.append(to_arrow(values, type_, strings, None if valid.all() else valid))
        return pa.Table.from_arrays(columns, schema=self.schema)

    def _ids(self, batch: Ordered) -> pa.Array:
        assert self._id_type is not None
        kind = self._id_type.arrow()
        parts = []
        for arrived in batch.arrived:
            id_ = arrived.event.id
            given = one_chunk(arrived.column(id_)).cast(kind) if id_ else pa.nulls(arrived.table.num_rows, kind)
            parts.append(given)
        every = pa.concat_arrays(parts) if parts else pa.nulls(0, kind)
        return every if batch.place is None else every.take(pa.array(batch.place))


def _numbers(values: Any, type_: pa.DataType, bits: pa.Buffer | None = None) -> pa.Array:
    return pa.Array.from_buffers(type_, values.size, [bits, pa.py_buffer(np.ascontiguousarray(values))])


def _text(numbers: Any, texts: pa.Array, valid: Any = None) -> pa.Array:
    """Texts by their numbers, which are int32; null where valid is given and false."""
    bits = None if valid is None or valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.DictionaryArray.from_arrays(_numbers(numbers, TEXT.index_type, bits), texts, safe=False)
