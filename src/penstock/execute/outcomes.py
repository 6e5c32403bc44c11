"""Outcomes: one row for each event, in the order in which the events ran.

    transaction  ts  [id]  status     reason              version  returned fields, as declared
    transfer     1   t1    committed  null                1        6.00
    transfer     2   t2    aborted    insufficient funds  1        null

`id` is there if any event of the app declares one. A field that a transaction does not return,
or that was undone, is null. An app that emits has a row for each event that ran, whose ts and id are those of the event
at its root, and a column `step` behind them; with steps="roots" what was caused and has committed has none.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.declare.model import TEXT, Program, is_none
from penstock.execute import duplicates, order
from penstock.execute.flow_run import Fired, Output
from penstock.execute.native import Result
from penstock.execute.order import PASSED, OrderedBatch
from penstock.execute.request import KeptSteps
from penstock.execute.statuses import ABORTED, COMMITTED, DUPLICATE, LATE, REJECTED, STATUSES
from penstock.state.arrow import to_arrow
from penstock.state.jit import kernel
from penstock.state.strings import Strings

_INT32, _INT64 = pa.int32(), pa.int64()
STATUS = pa.array(STATUSES, pa.string())
_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class BatchOutcomes:
    """What became of a batch. All its events count, also those whose rows are left out."""

    table: pa.Table
    counts: list[int]  # of events, by how they ended: 0 or an abort's code
    late: int
    duplicate: int = 0
    emitted: dict[str, pa.Table] = field(default_factory=dict)  # outputs, by event
    arrived: Any = None  # the rows of the batch's own events; None: each row is one
    rejected: int = 0  # rows, behind all others

    @property
    def events(self) -> int:
        return sum(self.counts) + self.rejected

    @property
    def committed(self) -> int:
        return self.counts[0] - self.late - self.duplicate

    @property
    def ran(self) -> pa.Table:
        """The rows of what was an event."""
        return self.table.slice(0, self.table.num_rows - self.rejected) if self.rejected else self.table


@kernel
def _tell(
    kind: Any, code: Any, numbers: Any, version: Any, firsts: Any, out: Any, versions: Any, bits: Any, counts: Any
) -> Any:
    """Of each event its transaction, status and reason, as places among their texts; bits: which have a reason; counts:
    of codes; firsts: the versions of duplicates' first ones, empty where there are none. Gives how many are late, and
    how many duplicates. One loop, since a small batch feels every call."""
    passed, duplicate = 0, 0
    for i in range(kind.size):
        is_passed, aborted = kind[i] >= PASSED, code[i] != 0
        out[0, i] = numbers[kind[i] & (PASSED - 1)]
        out[1, i] = LATE if is_passed else ABORTED if aborted else COMMITTED
        out[2, i] = code[i] - 1
        versions[i] = version
        bits[i >> 3] |= aborted << (i & 7)
        counts[code[i]] += 1
        passed += is_passed
        if firsts.size and firsts[i] != 0:
            out[1, i] = DUPLICATE
            versions[i] = firsts[i]
            duplicate += 1
    return passed - duplicate, duplicate


@kernel
def _keep(given: Any, code: Any) -> Any:
    """A field is given where its event was not undone; gives how often it is."""
    count = 0
    for i in range(given.size):
        given[i] = given[i] and code[i] == 0
        count += given[i]
    return count


@kernel
def _tell_of(told: Any, given: Any, code: Any, values: Any, out: Any) -> Any:
    """What aborts have given of a field, to where it is not given by a return; gives how often."""
    count = 0
    for i in range(given.size):
        if given[i] and code[i] != 0:
            values[i] = told[i]
            out[i] = True
            count += 1
    return count


class Outcomes:
    """How a program's outcomes look; what does not change from batch to batch is made once."""

    def __init__(self, program: Program, reasons: tuple[str, ...], steps: KeptSteps = "all") -> None:
        self.program, self._steps = program, steps
        self.schema = program.outcomes()
        self._ts_type, self._id_type = self.schema.field(1).type, program.id_type()
        self._transactions = pa.array([t.name for t in program.transactions], pa.string())
        self._reasons = pa.array(reasons, pa.string())
        self._arrive = np.array([event.order is not None for event in program.events], np.bool_)
        # Kind of event -> its transaction's number.
        self._numbers = np.zeros(max(len(program.events), 1), np.int32)
        for number, transaction in enumerate(program.transactions):
            self._numbers[program.kind(transaction.event.name)] = number

    def table(self, batch: OrderedBatch, result: Result, strings: Strings, version: int) -> BatchOutcomes:
        steps = result.steps
        kind, ts, ids = batch.kind, batch.ts, None if self._id_type is None else order.ids(batch, self._id_type)
        firsts = _NONE if batch.firsts is None else duplicates.versions(batch.firsts, version)
        root: Any = None
        fired = None
        if steps is not None:
            kind, root, fired = steps.kind, steps.root, result.fired
            if fired is not None:  # behind the batch's events
                root = np.where(root < 0, ts.size - 1 - root, root)
                ts = np.concatenate([ts, fired.at])
                firsts = np.concatenate([firsts, np.zeros_like(fired.at)]) if firsts.size else firsts
                ids = None if ids is None else pa.concat_arrays([ids, self._ids(fired, strings)])
            ts, ids = ts[root], None if ids is None else ids.take(pa.array(root))
            firsts = firsts[root] if firsts.size else firsts
        n = kind.size
        texts, versions = np.empty((3, n), np.int32), np.empty(n, np.int64)
        bits, counts = np.zeros((n + 7) // 8, np.uint8), np.zeros(1 + len(self._reasons), np.int64)
        late, duplicate = _tell(kind, result.code, self._numbers, version, firsts, texts, versions, bits, counts)
        ended = counts.tolist()
        about = [self._times(batch, ts, root), *([] if ids is None else [ids])]
        about += [] if steps is None else [_lane(_INT32, steps.step)]
        columns = [
            _text(texts[0], self._transactions),
            *about,
            _text(texts[1], STATUS),
            _text(texts[2], self._reasons, bits, ended[0]),
            _lane(_INT64, versions),
        ]
        of_aborts = dict(zip(self.program.abort_fields, result.fields[len(self.program.returns) :], strict=True))
        for (name, type_), (values, given) in zip(self.program.returns, result.fields, strict=False):
            count = _keep(given, result.code)
            if name in of_aborts:
                count += _tell_of(*of_aborts[name], result.code, values, given)
            columns.append(to_arrow(values, type_, strings, None if count == n else given))
        emitted = {name: self._output(name, output, about, strings, version) for name, output in result.outputs.items()}
        table = pa.Table.from_arrays(columns, schema=self.schema)
        if steps is None:
            return BatchOutcomes(table, ended, late, duplicate, emitted)
        first = steps.step == 0
        arrived = first if fired is None else first & (root < batch.count)
        if self._steps == "roots":
            kept = first | (result.code != 0) | self._arrive[kind & (PASSED - 1)]
            table, arrived = table.filter(pa.array(kept)), arrived[kept]
        return BatchOutcomes(table, ended, late, duplicate, emitted, np.flatnonzero(arrived))

    def with_rejected(self, ran: BatchOutcomes, rejected: pa.Table, version: int) -> BatchOutcomes:
        """The same, with a row behind them for each that was rejected (admission.py)."""
        n = rejected.num_rows
        known = {name: rejected.column(name).cast(self.schema.field(name).type) for name in rejected.column_names}
        known["status"] = _text(np.full(n, REJECTED, np.int32), STATUS)
        known["version"] = _lane(_INT64, np.full(n, version, np.int64))
        if "step" in self.schema.names:
            known["step"] = _lane(_INT32, np.zeros(n, np.int32))
        columns = [known.get(name, pa.nulls(n, self.schema.field(name).type)) for name in self.schema.names]
        rows = pa.Table.from_arrays(columns, schema=self.schema)
        table = pa.concat_tables([ran.table, rows]).unify_dictionaries().combine_chunks()
        arrived = np.arange(ran.table.num_rows) if ran.arrived is None else ran.arrived
        return replace(ran, table=table, arrived=arrived, rejected=n)

    def _times(self, batch: OrderedBatch, ts: Any, root: Any) -> pa.Array:
        """Null where a call came before there was a clock."""
        if not batch.timeless:
            return _lane(self._ts_type, ts)
        has = (np.arange(ts.size) if root is None else root) >= batch.timeless
        bits = pa.py_buffer(np.packbits(has, bitorder="little"))
        return pa.Array.from_buffers(self._ts_type, ts.size, [bits, pa.py_buffer(ts)])

    def _output(self, name: str, output: Output, about: list[pa.Array], strings: Strings, version: int) -> pa.Table:
        event = self.program.event(name)
        assert event is not None
        rows = pa.array(output.rows)
        columns = [column.take(rows) for column in about]
        columns.append(pa.array(np.full(len(rows), version, np.int64)))
        for f in event.fields:
            given = ~output.lanes[is_none(f.name)] if f.nullable else None
            columns.append(to_arrow(output.lanes[f.name], f.type, strings, given))
        return pa.Table.from_arrays(columns, schema=self.program.output(event))

    def _ids(self, fired: Fired, strings: Strings) -> pa.Array:
        assert self._id_type is not None
        return to_arrow(fired.id, self._id_type, strings, fired.named)


def _lane(type_: pa.DataType, values: Any) -> pa.Array:
    return pa.Array.from_buffers(type_, values.size, [None, pa.py_buffer(values)], 0)


def _text(places: Any, texts: pa.Array, bits: Any = None, nulls: int = 0) -> pa.Array:
    """Texts by their places; null where bits are given and 0."""
    valid = pa.py_buffer(bits) if nulls else None
    return pa.DictionaryArray.from_buffers(TEXT, places.size, [valid, pa.py_buffer(places)], texts, nulls)
