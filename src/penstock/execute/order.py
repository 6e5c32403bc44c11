"""A batch in (ts, id) order: for each place, the kind of event and its row.

Most batches come sorted, or nearly; a batch that is not is sorted by radix on ts, which is stable and
needs few passes for the times of one batch. Ties are then put in order of id, then arrival.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.declare.model import Program
from penstock.execute.intake import Arrived
from penstock.state.arrow import one_chunk, times
from penstock.state.jit import kernel


@dataclass(frozen=True, slots=True)
class Ordered:
    """The events of a batch in the order in which they run."""

    arrived: tuple[Arrived, ...]
    kind: Any  # uint8: which event of the program
    pos: Any  # int64: which row of its table
    ts: Any  # int64
    place: Any  # int64: which row of all tables, one after the other; None where that is the order already
    late: Any = None  # bool: these come too late to run; None where none does

    @property
    def count(self) -> int:
        return int(self.pos.size)


_RADIX_BITS = 11
# Added to the kind of an event that is late: no transaction has that kind, so the kernel passes over it.
LATE = 128
_NO_TIMES = np.zeros(0, np.int64)


@kernel
def _is_sorted(ts: Any) -> Any:
    for i in range(1, ts.size):
        if ts[i] < ts[i - 1]:
            return False
    return True


@kernel
def _radix(ts: Any) -> Any:
    """A stable argsort of int64."""
    n = ts.size
    low, high = ts[0], ts[0]
    for i in range(n):
        low = min(low, ts[i])
        high = max(high, ts[i])
    span = np.uint64(high) - np.uint64(low)
    order = np.arange(n)
    other = np.empty(n, np.int64)
    keys = np.empty(n, np.uint64)
    keys_other = np.empty(n, np.uint64)
    for i in range(n):
        keys[i] = np.uint64(ts[i]) - np.uint64(low)
    size = 1 << _RADIX_BITS
    mask = np.uint64(size - 1)
    counts = np.empty(size + 1, np.int64)
    shift = np.uint64(0)
    while shift < np.uint64(64) and span >> shift != np.uint64(0):
        counts[:] = 0
        for i in range(n):
            counts[np.int64((keys[i] >> shift) & mask) + 1] += 1
        for b in range(size):
            counts[b + 1] += counts[b]
        for i in range(n):
            digit = np.int64((keys[i] >> shift) & mask)
            other[counts[digit]] = order[i]
            keys_other[counts[digit]] = keys[i]
            counts[digit] += 1
        order, other = other, order
        keys, keys_other = keys_other, keys
        shift += np.uint64(_RADIX_BITS)
    return order


@kernel
def _kinds(order: Any, starts: Any, kinds: Any, kind: Any, pos: Any) -> None:
    for i in range(order.size):
        t = 0
        while t + 1 < kinds.size and order[i] >= starts[t + 1]:
            t += 1
        kind[i] = kinds[t]
        pos[i] = order[i] - starts[t]


@kernel
def _merge(ts: Any, starts: Any, stops: Any) -> Any:
    """A stable argsort of runs that are sorted each."""
    n, runs = ts.size, starts.size
    out = np.empty(n, np.int64)
    at = starts.copy()
    for i in range(n):
        best, best_ts = -1, np.int64(0)
        for r in range(runs):
            if at[r] < stops[r] and (best < 0 or ts[at[r]] < best_ts):
                best, best_ts = r, ts[at[r]]
        out[i] = at[best]
        at[best] += 1
    return out


@kernel
def _merge_two(ts: Any, middle: Any) -> Any:
    """A stable argsort of two sorted runs, without a branch that would be guessed wrong half the time."""
    n = ts.size
    out = np.empty(n, np.int64)
    a, b, i = 0, middle, 0
    while a < middle and b < n:
        second = ts[b] < ts[a]
        out[i] = b if second else a
        b += second
        a += not second
        i += 1
    while a < middle:
        out[i] = a
        a += 1
        i += 1
    while b < n:
        out[i] = b
        b += 1
        i += 1
    return out


def _argsort(ts: Any, starts: list[int], ends: list[int]) -> Any:
    """The order of ts, stable; None where it is in order. starts, ends: of each table's rows."""
    if _is_sorted(ts):
        return None
    if len(starts) == 1 or not all(_is_sorted(ts[a:b]) for a, b in zip(starts, ends, strict=True)):
        return _radix(ts)
    if len(starts) == 2:
        return _merge_two(ts, starts[1])
    return _merge(ts, np.array(starts, np.int64), np.array(ends, np.int64))


def order(program: Program, arrived: list[Arrived], late: list[Any] | None = None) -> Ordered:
    """late: for each of `arrived`, which of its rows are late; None for none."""
    marks = _marks(arrived, late)
    arrived = [a for a in arrived if a.table.num_rows]
    columns = [times(a.column(a.event.order)) for a in arrived]
    ts = columns[0] if len(columns) == 1 else np.concatenate([_NO_TIMES, *columns])
    ends = list(accumulate(c.size for c in columns))
    starts = [0, *ends[:-1]]
    arrival = None if _in_turn(arrived, starts) else np.concatenate([a.arrival for a in arrived])
    place = _ties(arrived, ts, _argsort(ts, starts, ends), arrival)
    kinds = [program.events.index(a.event) for a in arrived]
    n = ts.size
    if len(arrived) <= 1:
        kind = np.full(n, kinds[0] if kinds else 0, np.uint8)
        pos = np.arange(n) if place is None else place
    else:
        kind, pos = np.empty(n, np.uint8), np.empty(n, np.int64)
        ordered = np.arange(n) if place is None else place
        _kinds(ordered, np.array(starts, np.int64), np.array(kinds, np.uint8), kind, pos)
    if place is not None:
        ts, marks = ts[place], None if marks is None else marks[place]
    if marks is not None:
        kind[marks] |= LATE
    return Ordered(tuple(arrived), kind, pos, ts, place, marks)


def _in_turn(arrived: list[Arrived], starts: list[int]) -> bool:
    """Whether the tables' rows, one table after the other, lie in the order in which they arrived."""
    return all(
        a.arrival[0] == start and a.arrival[-1] == start + a.arrival.size - 1
        for a, start in zip(arrived, starts, strict=False)
    )


def _marks(arrived: list[Arrived], late: list[Any] | None) -> Any:
    """The late rows of all tables, one after the other."""
    if late is None or all(one is None for one in late):
        return None
    none = [np.zeros(a.table.num_rows, np.bool_) for a in arrived]
    return np.concatenate([n if one is None else one for n, one in zip(none, late, strict=True)])


def _ties(arrived: list[Arrived], ts: Any, place: Any, arrival: Any) -> Any:
    """Put events of one ts in order of (has an id, id, arrival)."""
    if arrival is None and not any(a.event.id for a in arrived):
        return place  # radix is stable, and rows lie in arrival order
    ordered = np.arange(ts.size) if place is None else place
    times = ts[ordered]
    same = np.flatnonzero(times[1:] == times[:-1])
    if same.size == 0:
        return place
    tied = np.unique(np.concatenate([same, same + 1]))  # places in the order that share their ts with a neighbour
    rows = ordered[tied]
    keys = {"ts": times[tied], "id": _ids(arrived, rows), "arrival": rows if arrival is None else arrival[rows]}
    table = pa.table(keys)
    sort_keys = [(name, "ascending", "at_start") for name in ("ts", "id", "arrival")]
    inside = pc.sort_indices(table, sort_keys=sort_keys).to_numpy()
    out = ordered.copy()
    out[tied] = rows[inside]
    return out


def _ids(arrived: list[Arrived], rows: Any) -> pa.Array:
    """The ids of these rows of all tables, null for events without one."""
    kind = next((a.table.schema.field(a.event.id).type for a in arrived if a.event.id), pa.int64())
    kind = pa.string() if pa.types.is_dictionary(kind) else kind
    parts = []
    for a in arrived:
        if a.event.id:
            parts.append(one_chunk(a.column(a.event.id)).cast(kind))
        else:
            parts.append(pa.nulls(a.table.num_rows, kind))
    return pa.concat_arrays(parts).take(pa.array(rows))


def titles(program: Program, batch: Ordered) -> list[str]:
    """Each event as a person would write it, in order."""
    tables = {program.events.index(a.event): a for a in batch.arrived}
    out = []
    for kind, row in zip(batch.kind.tolist(), batch.pos.tolist(), strict=True):
        arrived = tables[kind & ~LATE]
        values = arrived.table.slice(row, 1).to_pylist()[0]
        out.append(f"{arrived.event.name}({', '.join(f'{k}={v}' for k, v in values.items())})")
    return out
