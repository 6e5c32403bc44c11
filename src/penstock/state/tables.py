"""All tables and windows of an app in memory, and the strings they share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.declare.model import Program
from penstock.plan.ir import WindowPlan
from penstock.state.strings import Strings
from penstock.state.table import DIRTY, ROWS, TableState
from penstock.state.window import WindowState

# Making the pool anew costs a pass over every string column; below this many strings it is not worth it.
_COMPACT_ABOVE = 1 << 20

Parts = tuple[tuple[str, str, str], ...]  # a name, the table, which of its arrays


class Tables:
    def __init__(self, program: Program, windows: Sequence[WindowPlan] = ()) -> None:
        self.by_name = {t.name: TableState(t) for t in program.tables}
        self.windows = {w.table.name: WindowState(w) for w in windows}
        self._all = {**self.by_name, **self.windows}
        self.strings = Strings()
        self._parts: tuple[Parts, int, dict[str, Any]] = (), -1, {}
        self._compact_at = _COMPACT_ABOVE

    def __getitem__(self, name: str) -> TableState:
        return self._all[name]

    def parts(self, wanted: Parts) -> dict[str, Any]:
        """Name -> array, for what kernels want. Kept until a table puts other arrays in place: every batch asks."""
        made = sum([table.made for table in self._all.values()])
        if self._parts[0] is not wanted or self._parts[1] != made:
            self._parts = wanted, made, {name: self._all[of].part(part) for name, of, part in wanted}
        return self._parts[2]

    def arrow(self) -> dict[str, pa.Table]:
        """Every table, copied."""
        return {name: table.arrow(table.live_rows(), self.strings) for name, table in self.by_name.items()}

    def changes(self) -> dict[str, tuple[pa.Table, pa.Table]]:
        """What the running batch changed: records as they are now, and the keys of deleted ones."""
        out = {}
        for name, table in self.by_name.items():
            written, deleted = table.dirty_rows()
            if written.size or deleted.size:
                keys = table.arrow(deleted, self.strings, keys_only=True)
                out[name] = (table.arrow(written, self.strings), keys)
        return out

    def dirty_count(self) -> int:
        """Records that the running batch has written or deleted."""
        return sum(int(table.meta[DIRTY]) for table in self.by_name.values())

    def apply(self, name: str, written: pa.Table, deleted: pa.Table, batch: int) -> None:
        """Changes that a log holds."""
        table = self.by_name[name]
        table.drop(deleted, self.strings)
        table.put(written, self.strings, batch)

    def end_batch(self) -> None:
        for table in self._all.values():
            table.end_batch()
        if self.strings.count > self._compact_at:
            self.compact()

    def compact(self) -> None:
        """Forget strings that no record holds: missed keys and overwritten values would pile up otherwise."""
        lanes = [lane for table in self._all.values() for lane in _string_lanes(table)]
        lanes += [lane for window in self.windows.values() for lane in window.string_lanes()]
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
        for table in self._all.values():
            if any(c.type.kind == "str" for c in table.definition.keys):
                table.reindex()
        self._compact_at = max(_COMPACT_ABOVE, 4 * fresh.count)


def _string_lanes(table: TableState) -> list[Any]:
    """The numbers of strings in its records; what is written to them is written there."""
    keys = [table.stored[k] for k, c in enumerate(table.definition.keys) if c.type.kind == "str"]
    values = [a for a, c in zip(table.columns, table.definition.values, strict=True) if c.type.kind == "str"]
    return [lane[: table.meta[ROWS]] for lane in (*keys, *values)]
