"""All tables and windows of an app in memory, the ids that have run, and the strings they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.declare.model import Program, TableDef
from penstock.plan.ir import WindowPlan
from penstock.state.mirror import Cut
from penstock.state.strings import Strings
from penstock.state.table import DIRTY, ROWS, TableState, without_ages
from penstock.state.timers import TimerHeap
from penstock.state.unique_ids import UniqueIds
from penstock.state.view import View
from penstock.state.window import WindowState

# Making the pool anew costs a pass over every string column; below this many strings it is not worth it.
_COMPACT_ABOVE = 1 << 20
# Likewise for the bytes of them: bodies may make long ones.
_COMPACT_ABOVE_BYTES = 1 << 26

Parts = tuple[tuple[str, str, str], ...]  # a name, the table, which of its arrays


@dataclass(frozen=True, slots=True)
class TablesCut:
    """Tables as of one moment. They are read off it without holding up who writes, by any thread."""

    names: list[str]
    _small: dict[str, pa.Table]
    _ages: dict[str, pa.Table]  # of small ones
    _large: dict[str, tuple[TableDef, Cut]]

    def want(self, wanted: bool = True) -> None:
        """Whether anybody will read it; called by who holds the gate, as cuts are made."""
        for _, cut in self._large.values():
            cut.wanted = wanted

    def read(self) -> tuple[dict[str, pa.Table], dict[str, pa.Table]]:
        """The tables, and when their records were written, where these have a ttl."""
        found, ages = dict(self._small), dict(self._ages)
        for name, (definition, cut) in self._large.items():
            found[name], at = without_ages(definition, cut.table())
            if at is not None:
                ages[name] = at
        return {name: found[name] for name in self.names}, ages


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

    def cut(self, *, whole: bool = False) -> TablesCut | None:
        """What users see, as it is now; None as long as large tables are not copied, of which some more is with each
        call. The copy is made by and by, so that nobody holds up who writes. whole: all of it at once."""
        return self._cut([table.definition.name for table in self._declared], keep=True, whole=whole)

    def cut_if_asked(self) -> TablesCut | None:
        """Likewise, before a batch runs that may be taken back; None where nobody has looked at large tables yet, and
        where there are none: small ones are quickly read from the disk. It costs little unless it is wanted."""
        large = [table for table in self._declared if table.is_large()]
        if not large or not all(table.mirror is not None and table.mirror.whole for table in large):
            return None
        cut = self.cut()
        assert cut is not None
        cut.want(False)
        return cut

    def cut_of_all(self, *, whole: bool = False) -> TablesCut | None:
        """Likewise every table, those of timers with them."""
        return self._cut([*self.by_name], keep=False, whole=whole)

    def _cut(self, names: list[str], *, keep: bool, whole: bool) -> TablesCut | None:
        large = [self.by_name[name] for name in names if self.by_name[name].is_large()]
        copied = [table.mirrored(self.strings, whole=whole) for table in large]
        if not all(copied):
            return None
        small: dict[str, pa.Table] = {}
        ages: dict[str, pa.Table] = {}
        cuts: dict[str, tuple[TableDef, Cut]] = {}
        for name in names:
            table = self.by_name[name]
            if table.mirror is not None and table.is_large():
                cuts[name] = table.definition, table.mirror.cut(keep=keep)
                continue
            rows = table.live_rows()
            small[name] = table.arrow(rows, self.strings)
            if table.definition.ttl is not None:
                ages[name] = table.ages(rows)
        return TablesCut(names, small, ages, cuts)

    def changes(self) -> dict[str, tuple[pa.Table, pa.Table]]:
        """What the running batch changed: records as they are now, and the keys of deleted ones."""
        out = {}
        for name, table in self.by_name.items():
            if not table.meta[DIRTY]:
                continue
            keys = table.arrow(table.changed().deleted, self.strings, keys_only=True)
            out[name] = (table.arrow_of_written(self.strings), keys)
        return out

    def ages(self) -> dict[str, pa.Table]:
        """When the records that `arrow` gives were written, of tables whose records have a ttl."""
        return {name: table.ages(table.live_rows()) for name, table in self._with_ttl()}

    def changed_ages(self) -> dict[str, pa.Table]:
        """Likewise of the written ones of `changes`."""
        return {name: table.ages(table.changed().written) for name, table in self._with_ttl()}

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
        if self._has_many_strings():
            self.compact()

    def loaded(self) -> None:
        """Behind a load, and once a directory has been read: most strings are held, and the first batch need not look
        for those that are not."""
        if not self._has_many_strings():
            return
        held = np.flatnonzero(self._held_strings())
        starts = self.strings.starts
        self._compact_at = max(self._compact_at, 4 * held.size)
        self._compact_at_bytes = max(self._compact_at_bytes, 4 * int((starts[held + 1] - starts[held]).sum()))
        if self._has_many_strings():
            self.compact()

    def _has_many_strings(self) -> bool:
        return self.strings.count > self._compact_at or self.strings.size > self._compact_at_bytes

    def _string_lanes(self) -> list[Any]:
        lanes = [lane for table in self._all.values() for lane in _string_lanes(table)]
        lanes += [lane for window in self.windows.values() for lane in window.string_lanes()]
        lanes += [lane for ids in self.ids.values() for lane in ids.string_lanes()]
        return lanes

    def _held_strings(self) -> Any:
        """By number, whether a record holds it."""
        held = np.zeros(self.strings.count, np.bool_)
        for lane in self._string_lanes():
            held[lane] = True
        return held

    def compact(self) -> None:
        """Forget strings that no record holds: missed keys and overwritten values would pile up otherwise."""
        lanes, old = self._string_lanes(), np.flatnonzero(self._held_strings())
        fresh = Strings()
        renumbered = np.zeros(self.strings.count, np.int64)
        renumbered[old] = fresh.intern(self.strings.arrow(old))
        for lane in lanes:
            lane[:] = renumbered[lane]
        self.strings = fresh
        for ids in self.ids.values():
            ids.reindex()
        for table in self.by_name.values():
            if table.mirror is not None:
                table.mirror.renumber(renumbered, fresh)
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
