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

from penstock.declare.model import MAX_EVENTS, Program
from penstock.declare.types import Type
from penstock.execute.intake import EventBatch
from penstock.state.ages import NEVER
from penstock.state.arrow import one_chunk, times
from penstock.state.jit import kernel


@dataclass(frozen=True, slots=True)
class Members:
    """Which events of an ordered batch are one transaction (atomic_batches.py)."""

    count: (
        Any  # int64: how many events run at a place: 1; of an atomic batch all at its last one's, and 0 at the others
    )
    before: Any  # int64: of an event in an atomic batch, the place of the one of its type before it


@dataclass(frozen=True, slots=True)
class OrderedBatch:
    """The events of a batch in the order in which they run."""

    arrived: tuple[EventBatch, ...]
    kind: Any  # uint8: which event of the program; PASSED is added for those that do not run
    pos: Any  # int64: which row of its table
    ts: Any  # int64
    place: Any  # int64: which row of all tables, one after the other; None where that is the order already
    clock: int | None = None  # the highest ts that had run before
    timeless: int = 0  # how many of the first have no ts: calls that came before there was a clock
    until: int | None = None  # where the clock is set by hand: timers run up to here behind the last event
    members: Members | None = None  # of an app with atomic batches of events from outside
    firsts: Any = (
        None  # int64: of each duplicate, which the first one is (duplicates.py); 0 elsewhere; None: none is one
    )
    new_ids: tuple[Any, ...] = ()  # what is to be remembered when it has run (duplicates.py)

    @property
    def count(self) -> int:
        return int(self.pos.size)

    @property
    def clock_after(self) -> int | None:
        """The highest ts that has run behind it."""
        ran = [int(self.ts[self.timeless :].max())] if self.count > self.timeless else []
        return max([*ran, *(one for one in (self.clock, self.until) if one is not None)], default=None)


_RADIX_BITS = 11
# Added to the kind of an event that is late, or a duplicate: no transaction has that kind, so kernels pass over it.
PASSED = MAX_EVENTS + 1
_NO_ROWS = np.zeros(0, np.int64)


@kernel
def _is_sorted(ts: Any, start: Any, stop: Any) -> Any:
    for i in range(start + 1, stop):
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
def _merge(ts: Any, ends: Any) -> Any:
    """A stable argsort of runs that are sorted each, and end here."""
    n, runs = ts.size, ends.size
    out = np.empty(n, np.int64)
    at = np.zeros(runs, np.int64)
    at[1:] = ends[:-1]
    for i in range(n):
        best, best_ts = -1, np.int64(0)
        for r in range(runs):
            if at[r] < ends[r] and (best < 0 or ts[at[r]] < best_ts):
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


@kernel
def _argsort(ts: Any, ends: Any) -> Any:
    """The order of ts, stable; empty where it is in order already. ends: of each table's rows."""
    if _is_sorted(ts, 0, ts.size):
        return np.empty(0, np.int64)
    start = 0
    for end in ends:
        if not _is_sorted(ts, start, end):
            return _radix(ts)
        start = end
    return _merge_two(ts, ends[0]) if ends.size == 2 else _merge(ts, ends)


@kernel
def _lay_out(given: Any, place: Any, ends: Any, kinds: Any, kind: Any, pos: Any, ts: Any) -> None:
    """The kind of each event, its row and its time, by its place among the rows of all tables; empty: as they lie."""
    for i in range(given.size):
        at = place[i] if place.size else i
        start, t = 0, 0
        while at >= ends[t]:
            start = ends[t]
            t += 1
        kind[i], pos[i], ts[i] = kinds[t], at - start, given[at]


def order(
    program: Program,
    arrived: list[EventBatch],
    late: list[Any] | None = None,
    clock: int | None = None,
    until: int | None = None,
) -> OrderedBatch:
    """late: for each of `arrived`, which of its rows are late; None for none. clock: the highest ts that has run.
    until: what the clock is set to behind the last event."""
    marks = _marks(arrived, late)
    arrived = [a for a in arrived if a.table.num_rows]
    if not arrived:
        return OrderedBatch((), np.zeros(0, np.uint8), _NO_ROWS, _NO_ROWS, None, clock, until=until)
    columns = [times_of(a) for a in arrived]
    given = columns[0] if len(columns) == 1 else np.concatenate(columns)
    n, ends = given.size, np.array(list(accumulate(map(len, columns))))
    place = _argsort(given, ends)
    if any(a.event.id for a in arrived) or not _in_turn(arrived):
        place = _by_id(arrived, given, place)
    kind, pos, ts = np.empty(n, np.uint8), np.empty(n, np.int64), np.empty(n, np.int64)
    _lay_out(given, place, ends, np.array([program.kind(a.event.name) for a in arrived], np.uint8), kind, pos, ts)
    if marks is not None:
        kind[marks[place] if place.size else marks] |= PASSED
    return OrderedBatch(tuple(arrived), kind, pos, ts, place if place.size else None, clock, until=until)


def clocks(batch: OrderedBatch) -> Any:
    """The clock at each event: the highest ts that has run, its own included. Late events do not run, and are below.
    Where it is set by hand, that is behind the last event. Behind all, how many of the first have none: it is NEVER
    there."""
    ts = batch.ts if batch.until is None else np.append(batch.ts, batch.until)
    out = np.full(ts.size + 1, NEVER, np.int64)
    now = out[batch.timeless : -1]
    np.maximum.accumulate(ts[batch.timeless :], out=now)
    if batch.clock is not None:
        np.maximum(now, batch.clock, out=now)
    out[-1] = batch.timeless
    return out


def clocks_of(clocks: Any, places: Any) -> Any:
    """Those of some events of a batch, by their places, as of a batch of their own."""
    return np.append(clocks[places], np.searchsorted(places, clocks[-1]))


def ids(batch: OrderedBatch, type_: Type) -> pa.Array:
    """The id of each event, null for those without one."""
    kind = type_.arrow()
    parts = []
    for arrived in batch.arrived:
        id_ = arrived.event.id
        given = one_chunk(arrived.column(id_)).cast(kind) if id_ else pa.nulls(arrived.table.num_rows, kind)
        parts.append(given)
    every = pa.concat_arrays(parts) if parts else pa.nulls(0, kind)
    return every if batch.place is None else every.take(pa.array(batch.place))


def times_of(events: EventBatch) -> Any:
    """Each event's place in time; int64."""
    assert events.event.order is not None
    return times(events.column(events.event.order))


def _in_turn(arrived: list[EventBatch]) -> bool:
    """Whether the tables' rows, one table after the other, lie in the order in which they arrived."""
    start = 0
    for a in arrived:
        if a.arrival[0] != start or a.arrival[-1] != start + a.arrival.size - 1:
            return False
        start += a.arrival.size
    return True


def _marks(arrived: list[EventBatch], late: list[Any] | None) -> Any:
    """The late rows of all tables, one after the other."""
    if late is None or all(one is None for one in late):
        return None
    none = [np.zeros(a.table.num_rows, np.bool_) for a in arrived]
    return np.concatenate([n if one is None else one for n, one in zip(none, late, strict=True)])


def _by_id(arrived: list[EventBatch], ts: Any, place: Any) -> Any:
    """Put events of one ts in order of (has an id, id, arrival). They are already if none has an id and rows lie in the
    order in which they arrived, for sorting was stable."""
    ordered = place if place.size else np.arange(ts.size)
    in_order = ts[ordered]
    same = np.flatnonzero(in_order[1:] == in_order[:-1])
    if same.size == 0:
        return place
    tied = np.unique(np.concatenate([same, same + 1]))  # places in the order that share their ts with a neighbour
    rows = ordered[tied]
    arrival = np.concatenate([a.arrival for a in arrived])[rows]
    table = pa.table({"ts": in_order[tied], "id": _ids(arrived, rows), "arrival": arrival})
    sort_keys = [(name, "ascending", "at_start") for name in ("ts", "id", "arrival")]
    inside = pc.sort_indices(table, sort_keys=sort_keys).to_numpy()
    out = ordered.copy()
    out[tied] = rows[inside]
    return out


def _ids(arrived: list[EventBatch], rows: Any) -> pa.Array:
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


def titles(program: Program, batch: OrderedBatch) -> list[str]:
    """Each event as a person would write it, in order."""
    tables = {program.kind(a.event.name): a for a in batch.arrived}
    out = []
    for kind, row in zip(batch.kind.tolist(), batch.pos.tolist(), strict=True):
        arrived = tables[kind & ~PASSED]
        values = arrived.table.slice(row, 1).to_pylist()[0]
        out.append(f"{arrived.event.name}({', '.join(f'{k}={v}' for k, v in values.items())})")
    return out
