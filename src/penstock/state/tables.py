"""All tables and windows of an app in memory, the ids that have run, and the strings they share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.declare.model import Program
from penstock.plan.ir import WindowPlan
from penstock.state.strings import Strings
from penstock.state.table import DIRTY, ROWS, TableState
from penstock.state.timers import TimerHeap
from penstock.state.unique_ids import UniqueIds
from penstock.state.view import View
from penstock.state.window import WindowState

# Making the pool anew costs a pass over every string column; below this many strings it is not worth it.
_COMPACT_ABOVE = 1 << 20
# Likewise for the bytes of them: bodies may make long ones.
_COMPACT_ABOVE_BYTES = 1 << 26

Parts = tuple[tuple[str, str, str], ...]  # a name, the table, which of its arrays


class Tables:
    def __init__(self, program: Program, windows: Sequence[WindowPlan] = ()) -> None:
        self.by_name = {t.name: TableState(t) for t in program.stored}
        self._declared = [self.by_name[t.name] for t in program.tables]
        self.timers = TimerHeap(program, self.by_name)
        self.ids = {event.name: UniqueIds(event) for event in program.unique}
        self.windows = {w.table.name: WindowState(w) for w in windows}
        self._all = {**self.by_name, **self.windows}
        self.strings = Strings()
        self._parts: tuple[Parts, int, dict[str, Any]] = (), -1, {}
        self._compact_at, self._compact_at_bytes = _COMPACT_ABOVE, _COMPACT_ABOVE_BYTES

    def __getitem__(self, name: str) -> TableState:
        return self._all[name]

    def parts(self, wanted: Parts) -> dict[str, Any]:
        """Name -> array, for what kernels want. Kept until a table puts other arrays in place: every batch asks."""
        made = sum([table.made for table in self._all.values()])
        if self._parts[0] is not wanted or self._parts[1] != made:
            self._parts = wanted, made, {name: self._all[of].part(part) for name, of, part in wanted}
        return self._parts[2]

    def arrow(self) -> dict[str, pa.Table]:
        """Every table, copied; those of timers with them."""
        return {name: self.arrow_of(name) for name in self.by_name}

    def arrow_of(self, name: str) -> pa.Table:
        table = self.by_name[name]
        return table.arrow(table.live_rows(), self.strings)

    def view(self, version: int) -> View:
        """What users see: the tables that they declared."""
        return View(version, {table.definition.name: self.arrow_of(table.definition.name) for table in self._declared})

    def changes(self) -> dict[str, tuple[pa.Table, pa.Table]]:
        """What the running batch changed: records as they are now, and the keys of deleted ones."""
        out = {}
        for name, table in self.by_name.items():
            written, deleted = table.dirty_rows()
            if written.size or deleted.size:
                keys = table.arrow(deleted, self.strings, keys_only=True)
                out[name] = (table.arrow(written, self.strings), keys)
        return out

    def ages(self) -> dict[str, pa.Table]:
        """When the records that `arrow` gives were written, of tables whose records have a ttl."""
        return {name: table.ages(table.live_rows()) for name, table in self._with_ttl()}

    def changed_ages(self) -> dict[str, pa.Table]:
        """Likewise of the written ones of `changes`."""
        return {name: table.ages(table.dirty_rows()[0]) for name, table in self._with_ttl()}

    def _with_ttl(self) -> list[tuple[str, TableState]]:
        return [(name, table) for name, table in self.by_name.items() if table.definition.ttl is not None]

    def expire(self, clock: int | None, batch: int) -> None:
        """The records that a batch leaves behind their time, by the clock after it, die in it."""
        if clock is not None:
            for _, table in self._with_ttl():
                table.expire(clock, batch)

    def dirty_count(self) -> int:
        """Records that the running batch has written or deleted; timers are no records to users."""
        return sum(int(table.meta[DIRTY]) for table in self._declared)

    def apply(self, name: str, written: pa.Table, deleted: pa.Table, batch: int, at: Any) -> None:
        """Changes that a log holds."""
        table = self.by_name[name]
        table.drop(deleted, self.strings)
        table.put(written, self.strings, batch, at)
        self.timers.stale = True

    def end_batch(self) -> None:
        for table in self._all.values():
            table.end_batch()
        for ids in self.ids.values():
            ids.end_batch()
        if self.strings.count > self._compact_at or self.strings.size > self._compact_at_bytes:
            self.compact()

    def compact(self) -> None:
        """Forget strings that no record holds: missed keys and overwritten values would pile up otherwise."""
        lanes = [lane for table in self._all.values() for lane in _string_lanes(table)]
        lanes += [lane for window in self.windows.values() for lane in window.string_lanes()]
        lanes += [lane for ids in self.ids.values() for lane in ids.string_lanes()]
        used = np.zeros(self.strings.count, np.bool_)
        for lane in lanes:
            used[lane] = True
        old = np.flatnonzero(used)
        fresh = Strings()
        renumbered = np.zeros(self.strings.count, np.int64)
        renumbered[old] = fresh.intern(self.strings.arrow(old))
        for lane in lanes:
            lane[:] = renumbered[lane]
        self.strings = fresh
        for ids in self.ids.values():
            ids.reindex()
        for table in self._all.values():
            table.forget_indexes()
            if any(c.type.kind == "str" for c in table.definition.keys):
                table.reindex()
        self._compact_at = max(_COMPACT_ABOVE, 4 * fresh.count)
        self._compact_at_bytes = max(_COMPACT_ABOVE_BYTES, 4 * fresh.size)


def _string_lanes(table: TableState) -> list[Any]:
    """The numbers of strings in its records; what is written to them is written there."""
    keys = [table.stored[k] for k, c in enumerate(table.definition.keys) if c.type.kind == "str"]
    values = [a for a, c in zip(table.columns, table.definition.lanes, strict=True) if c.type.kind == "str"]
    return [lane[: table.meta[ROWS]] for lane in (*keys, *values)]
