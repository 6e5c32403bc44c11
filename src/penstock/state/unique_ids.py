"""The ids of an event that have run, and which events of a batch are duplicates (`ps.id(unique=…)`).

    row           id, ts, the clock as it ran, and in which version; id and ts of the event that was the first one
    generation    the rows of those that ran while the clock was in one span of time; an index from id and era to row
    era           which span of time a ts lies in

A row is good until the clock has come to a span after its own. So at most the two newest generations hold good ones:
to forget is to drop an older one whole, and no row is deleted by itself. Of an id and an era at most one row is good,
since two events of one era are less than a span apart. So to judge an event is to look for its era, the one before and
the one behind, as far as a generation has rows of them. In order, that is one look into each. Only what has run under a
smaller span may have several that are good: a generation of such rows is `crowded`, and all of them are looked at.

Judging changes nothing: what has run is remembered when it has run.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.declare.model import EventDef
from penstock.declare.types import INT
from penstock.state.ages import expired
from penstock.state.arrow import from_arrow, to_arrow
from penstock.state.hashing import ONE, TWO, combine, first, mix
from penstock.state.jit import kernel
from penstock.state.prefetch import BLOCK, prefetch
from penstock.state.strings import Strings, longer

_FIRST_CAPACITY = 1024
_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1


class Rows(NamedTuple):
    """A generation, as kernels meet it."""

    slots: Any  # pairs (tag, row) as those of a table's index; row -1: empty
    ids: Any
    ts: Any
    clock: Any
    version: Any


class Generation:
    def __init__(self, capacity: int = _FIRST_CAPACITY) -> None:
        self.count = 0
        self.oldest, self.newest = _HIGHEST, _LOWEST  # eras that there are rows of
        self.crowded = False  # whether of an id and an era several may be good
        self.rows = Rows(_no_slots(capacity), *(np.zeros(capacity, np.int64) for _ in range(4)))

    def add(self, ids: Any, ts: Any, clock: Any, version: Any, span: int) -> None:
        """Rows in the order in which they ran; what is not good any more of the same id and era is overwritten."""
        need = self.count + ids.size
        if need > self.rows.ids.size:
            size = max(need, 2 * self.rows.ids.size)
            self.rows = Rows(_no_slots(size), *(longer(lane, size) for lane in self.rows[1:]))
            self.reindex(span)
        self.count, crowded = _add(self.rows, self.count, ids, ts, clock, version, span)
        self.crowded = self.crowded or crowded
        eras = ts // span
        self.oldest, self.newest = min(self.oldest, int(eras.min())), max(self.newest, int(eras.max()))

    def reindex(self, span: int) -> None:
        self.rows.slots[1::2] = -1
        _index(self.rows, self.count, span)


class UniqueIds:
    """Those of one event."""

    def __init__(self, event: EventDef) -> None:
        assert event.span is not None and event.id is not None
        self.event, self.type, self.span = event.name, event.type_of(event.id), event.span
        self._generations: dict[int, Generation] = {}
        self._new: list[tuple[Any, Any, Any]] = []  # by the running batch: ids, ts, clock

    def __len__(self) -> int:
        """Rows, the ones that are not good any more among them."""
        return sum(one.count for one in self._generations.values())

    def judge(self, ids: Any, ts: Any, clock: Any) -> Any:
        """Of events in the order in which they run, with the clock at each, the version of the first one where it is a
        duplicate; -1 - n, where the n-th of these is the first one; 0 elsewhere."""
        newest = max(self._generations, default=0)
        a, b = (self._generations.get(number) or _NOTHING for number in (newest, newest - 1))
        bounds = np.array([a.oldest, a.newest, b.oldest, b.newest])
        return _judge(a.rows, b.rows, bounds, a.crowded or b.crowded, self.span, ids, ts, clock)

    def remember(self, ids: Any, ts: Any, clock: Any, version: Any, until: int) -> None:
        """These have run, and the clock is at `until` behind them. version: of all, or of each."""
        good = (until - clock).view(np.uint64) < self.span  # they may be further apart than int64 counts
        if not good.all():
            ids, ts, clock = ids[good], ts[good], clock[good]
            version = version if isinstance(version, int) else version[good]
        versions = np.full(ids.size, version) if isinstance(version, int) else version
        now = until // self.span
        numbers = clock // self.span
        for number in (now - 1, now):
            some = numbers == number
            if some.all() and some.size:
                self._generation(number).add(ids, ts, clock, versions, self.span)
            elif some.any():
                self._generation(number).add(ids[some], ts[some], clock[some], versions[some], self.span)
        self._generations = {number: one for number, one in self._generations.items() if number >= now - 1}
        self._new.append((ids, ts, clock))

    def set_back(self, clock: int, to: int, span: int | None = None) -> None:
        """The clock was set back: what is remembered by then is remembered for a span from there on. span: by which it
        is remembered, if that is another one by now."""
        lanes = self._lanes()
        good = (clock - lanes[2]).view(np.uint64) < (self.span if span is None else span)
        ids, ts, clocks, versions = (lane[good] for lane in lanes)
        self._generations = {}
        if ids.size:
            self.remember(ids, ts, np.minimum(clocks, to), versions, to)
        self.end_batch()

    def _lanes(self) -> list[Any]:
        """All rows: ids, ts, clock, version."""
        found = [one for _, one in sorted(self._generations.items())]
        return [np.concatenate([_NONE, *(one.rows[k][: one.count] for one in found)]) for k in range(1, 5)]

    def _generation(self, number: int) -> Generation:
        if number not in self._generations:
            # As many will come as in the one before: it need not grow, which is to make its index anew.
            before = self._generations.get(number - 1, _NOTHING)
            self._generations[number] = Generation(max(before.count, _FIRST_CAPACITY))
        return self._generations[number]

    def end_batch(self) -> None:
        self._new = []

    # -- strings ----------------------------------------------------------------------------

    def string_lanes(self) -> list[Any]:
        if self.type.kind != "str":
            return []
        return [one.rows.ids[: one.count] for one in self._generations.values()]

    def reindex(self) -> None:
        """Strings have other numbers now."""
        if self.type.kind == "str":
            for one in self._generations.values():
                one.reindex(self.span)

    # -- in and out as Arrow ----------------------------------------------------------------

    def changes(self, strings: Strings) -> pa.Table:
        """What the running batch has remembered."""
        ids, ts, clock = (np.concatenate([_NONE, *(one[k] for one in self._new)]) for k in range(3))
        columns = {"id": to_arrow(ids, self.type, strings), "ts": to_arrow(ts, INT, strings)}
        if not np.array_equal(ts, clock):  # it is the same where events come in order
            columns["clock"] = to_arrow(clock, INT, strings)
        return pa.table(columns)

    def whole(self, strings: Strings) -> pa.Table:
        """All of it."""
        types = (("id", self.type), ("ts", INT), ("clock", INT), ("version", INT))
        columns = zip(types, self._lanes(), strict=True)
        return pa.table({name: to_arrow(lane, type_, strings) for (name, type_), lane in columns})

    def take(self, table: pa.Table, strings: Strings, version: int) -> None:
        """What a log or a snapshot has. Ids of another type are none of those that may come now."""
        if not table.num_rows or table.schema.field("id").type != self.type.arrow():
            return
        ids, ts = from_arrow(table.column("id"), self.type, strings), from_arrow(table.column("ts"), INT, strings)
        clock = from_arrow(table.column("clock"), INT, strings) if "clock" in table.column_names else ts
        versions = from_arrow(table.column("version"), INT, strings) if "version" in table.column_names else version
        self.remember(ids, ts, clock, versions, int(clock.max()))


def _no_slots(capacity: int) -> Any:
    """At most half full, so that probes stay short."""
    size = 16
    while size < 2 * capacity:
        size *= 2
    slots = np.zeros(2 * size, np.int64)
    slots[1::2] = -1
    return slots


_NONE = np.zeros(0, np.int64)
_NOTHING = Generation()


@kernel
def _tag(id_: Any, era: Any) -> Any:
    return combine(combine(np.int64(0), id_), era)


@kernel
def _near(a: Any, b: Any, span: Any) -> Any:
    """Whether two times are less than a span apart; they may be further apart than int64 counts."""
    return np.uint64(max(a, b)) - np.uint64(min(a, b)) < np.uint64(span)


@kernel
def _good(rows: Any, id_: Any, era: Any, tag: Any, crowded: Any, span: Any, ts: Any, clock: Any) -> Any:
    """The row of the first one, where this generation has it; else -1. Of several, that of the lowest ts."""
    mask = np.uint64(rows.slots.size - 1)
    h = first(tag, rows.slots)
    found = np.int64(-1)
    while True:
        row = rows.slots[h + ONE]
        if row == -1:
            return found
        if rows.slots[h] == tag and rows.ids[row] == id_ and rows.ts[row] // span == era:
            if (
                _near(rows.ts[row], ts, span)
                and not expired(rows.clock[row], clock, span)
                and (found == -1 or rows.ts[row] < rows.ts[found])
            ):
                found = row
            if not crowded:
                return found
        h = (h + TWO) & mask


@kernel
def _judge(a: Any, b: Any, bounds: Any, crowded: Any, span: Any, ids: Any, ts: Any, clock: Any) -> Any:
    """a, b: the two newest generations; bounds: the eras that each has."""
    n = ids.size
    out = np.zeros(n, np.int64)
    size = 16
    while size < 2 * n:
        size *= 2
    mask = np.uint64(size - 1)
    own = np.full(size, -1, np.int64)  # by id and era, the last place in this batch that is none's duplicate
    eras, tags = np.empty(n, np.int64), np.empty(n, np.int64)
    oldest, newest = _HIGHEST, _LOWEST
    for block in range(0, n, BLOCK):
        end = min(block + BLOCK, n)
        for i in range(block, end):
            eras[i] = ts[i] // span
            tags[i] = _tag(ids[i], eras[i])
            prefetch(own, mix(tags[i]) & mask)
            prefetch(a.slots, first(tags[i], a.slots))
            if bounds[3] == eras[i] - 1:
                prefetch(b.slots, first(_tag(ids[i], eras[i] - 1), b.slots))
        for i in range(block, end):
            era = eras[i]
            for step in range(-1, 2):
                near = era + step
                tag = tags[i] if near == era else _tag(ids[i], near)
                if oldest <= near <= newest:
                    h = mix(tag) & mask
                    while own[h] >= 0 and (ids[own[h]] != ids[i] or eras[own[h]] != near):
                        h = (h + ONE) & mask
                    place = own[h]
                    if place >= 0 and _near(ts[place], ts[i], span) and not expired(clock[place], clock[i], span):
                        out[i] = -1 - place
                        break
                row = np.int64(-1)
                if bounds[0] <= near <= bounds[1]:
                    row = _good(a, ids[i], near, tag, crowded, span, ts[i], clock[i])
                    if row >= 0:
                        out[i] = a.version[row]
                if (row < 0 or crowded) and bounds[2] <= near <= bounds[3]:
                    other = _good(b, ids[i], near, tag, crowded, span, ts[i], clock[i])
                    if other >= 0 and (row < 0 or b.ts[other] < a.ts[row]):
                        out[i] = b.version[other]
                if out[i] != 0:
                    break
            if out[i] == 0:
                h = mix(tags[i]) & mask
                while own[h] >= 0 and (ids[own[h]] != ids[i] or eras[own[h]] != era):
                    h = (h + ONE) & mask
                own[h] = i
                oldest, newest = min(oldest, era), max(newest, era)
    return out


@kernel
def _add(rows: Any, count: Any, ids: Any, ts: Any, clock: Any, version: Any, span: Any) -> Any:
    """There is room. Gives how many rows there are, and whether of an id and an era several may be good."""
    n = ids.size
    tags = np.empty(n, np.int64)
    mask = np.uint64(rows.slots.size - 1)
    crowded = False
    for block in range(0, n, BLOCK):
        end = min(block + BLOCK, n)
        for i in range(block, end):
            tags[i] = _tag(ids[i], ts[i] // span)
            prefetch(rows.slots, first(tags[i], rows.slots))
        for i in range(block, end):
            h = first(tags[i], rows.slots)
            while True:
                row = rows.slots[h + ONE]
                if row < 0:
                    row = count
                    count += 1
                    rows.slots[h] = tags[i]
                    rows.slots[h + ONE] = row
                    break
                if rows.slots[h] == tags[i] and rows.ids[row] == ids[i] and rows.ts[row] // span == ts[i] // span:
                    if expired(rows.clock[row], clock[i], span):
                        break
                    crowded = True
                h = (h + TWO) & mask
            rows.ids[row], rows.ts[row], rows.clock[row], rows.version[row] = ids[i], ts[i], clock[i], version[i]
    return count, crowded


@kernel
def _index(rows: Any, count: Any, span: Any) -> None:
    """Fill the empty slots."""
    mask = np.uint64(rows.slots.size - 1)
    for row in range(count):
        tag = _tag(rows.ids[row], rows.ts[row] // span)
        h = first(tag, rows.slots)
        while rows.slots[h + ONE] != -1:
            h = (h + TWO) & mask
        rows.slots[h] = tag
        rows.slots[h + ONE] = row
