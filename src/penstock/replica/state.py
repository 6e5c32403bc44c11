"""The tables of a directory in memory, as one commit after the other leaves them; and as cuts see them.

    go_on     what a commit did. What takes long is done before, so that nobody waits for it. A large commit, and one
              beside cuts, goes a piece at a time: what it changes is kept (before.py), and whoever reads between two
              pieces sees the version before it, whole
    pin       what is there now stays to be read

Its owner's lock is held around all that is done here; `go_on` and `table` take it themselves, for a piece at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.commit import Snapshot
from penstock.declare.model import Program, TableDef
from penstock.plan.schema import Schema
from penstock.replica.before import Before
from penstock.replica.changes import Changes
from penstock.replica.records import Records
from penstock.state.arrow import one_below_another
from penstock.state.hashing import most
from penstock.state.tables import Tables

Lock = AbstractContextManager[Any]

# Rows that are changed, and copied, while nobody else may read: some milliseconds.
_PIECE = 1 << 11
_COPIED = 1 << 16
# Likewise, where all else has been done before.
_AT_ONCE = 1 << 17
# Below these a copy is not worth it.
_STRINGS_MAX, _BYTES_MAX = 1 << 20, 1 << 26


class State:
    def __init__(self, app: str, definitions: Sequence[TableDef]) -> None:
        self.app, self.definitions = app, {table.name: table for table in definitions}
        self._tables = Tables(Program(app, tuple(definitions)))
        self.records = {table.name: Records(self._tables, table) for table in definitions}
        self._befores: list[Before] = []  # of open cuts, oldest first
        self._moved = False  # since the newest of them
        self.newest: Before | None = None  # what readers of the newest version ask first, while a commit is applied
        self._strings_max, self._bytes_max = _STRINGS_MAX, _BYTES_MAX

    @classmethod
    def of(cls, app: str, schema: Schema, snapshot: Snapshot | None, where: str) -> State:
        state = cls(app, schema.definitions(where))
        for name, records in state.records.items() if snapshot is not None else ():
            if snapshot is not None and name in snapshot.tables:
                records.fill(snapshot.tables[name])
        return state

    def apply(self, changes: Changes) -> None:
        """What a commit did that left the schema as it is; where nobody reads yet."""
        for records, change, rows in self._known(changes):
            self._change(records, change, *self._split(records, change, rows))

    def go_on(
        self, changes: Changes, lock: Lock, then: Callable[[], None], torn: Callable[[BaseException], None]
    ) -> None:
        """The same beside readers. `then` makes it the newest; where it fails half-way `torn` is told, before anybody
        may look."""
        several = self._known(changes)
        count = sum(rows.num_rows for _, _, rows in several)
        if _PIECE < count <= _AT_ONCE and not self._befores and self._fits(several):
            split = [(records, change, self._split(records, change, rows)) for records, change, rows in several]
            with lock, _telling(torn):
                if not self._befores:  # nobody has taken a cut meanwhile
                    for records, change, (keys, lanes) in split:
                        self._change(records, change, keys, lanes)
                    self._moved = True
                    then()
                    return
        if count > _PIECE:
            with lock:
                self.newest = Before()
            for records, change, rows in several:
                for start in range(0, rows.num_rows, _PIECE):
                    with lock, _telling(torn):
                        self._change(records, change, *self._split(records, change, rows.slice(start, _PIECE)))
            several = []
        with lock, _telling(torn):
            for records, change, rows in several:
                self._change(records, change, *self._split(records, change, rows))
            self._moved, self.newest = True, None
            then()

    def _known(self, changes: Changes) -> list[tuple[Records, str, pa.Table]]:
        tables = ((self.records[name], found) for name, found in changes.tables.items() if name in self.records)
        return [(records, change, rows) for records, found in tables for change, rows in found]

    def _split(self, records: Records, change: str, rows: pa.Table) -> tuple[Any, list[Any]]:
        return (records.words(rows), []) if change == "deleted" else records.split(rows)

    def _change(self, records: Records, change: str, keys: Any, lanes: list[Any]) -> None:
        if self._befores:
            self._befores[-1].keep(records, keys)
        if self.newest is not None:  # if that is the same, it has them by now
            self.newest.keep(records, keys)
        if change == "deleted":
            records.drop_at(keys)
        else:
            records.put_lanes(keys, lanes)

    def _fits(self, several: list[tuple[Records, str, pa.Table]]) -> bool:
        """Whether nothing has to put other arrays in the place of some: the pool of strings is shared."""
        strings = self._tables.strings
        texts = [records.texts(rows) for records, _, rows in several]
        count, size = (sum(each) for each in zip(*texts, strict=True)) if texts else (0, 0)
        return (
            all(records.fits(rows) for records, _, rows in several)
            and strings.count + count + 1 < min(strings.starts.size, most(strings.slots.size))
            and strings.size + size <= strings.data.size
        )

    def is_cramped(self, changes: Changes) -> bool:
        """Whether what a commit does may have to put other arrays in the place of large ones, which takes long."""
        several = self._known(changes)
        return self._tables.strings.count + sum(map(len, self.records.values())) > _COPIED and not self._fits(several)

    @property
    def is_wasteful(self) -> bool:
        """Whether most of its strings may be of records that are gone."""
        return self._tables.strings.count > self._strings_max or self._tables.strings.size > self._bytes_max

    def _set_limits(self) -> None:
        strings = self._tables.strings
        self._strings_max = max(_STRINGS_MAX, 4 * strings.count)
        self._bytes_max = max(_BYTES_MAX, 4 * strings.size)

    def copied(self, changes: Changes | None = None) -> State:
        """The same without strings that no record holds, and with room for what a commit does. Cuts stay with this one,
        which does not change any more."""
        after = State(self.app, tuple(self.definitions.values()))
        for name, records in self.records.items():
            after.records[name].fill(records.arrow_of_all())
        after._set_limits()
        for records, _, rows in [] if changes is None else self._known(changes):
            after.records[records.definition.name].make_room(rows)
        return after

    def migrated(self, changes: Changes, where: str) -> State:
        """Another one, of the schema that a commit changes this one's to. This one does not change any more."""
        assert changes.schema is not None
        after = State(self.app, changes.schema.now.definitions(where))
        for name, records in after.records.items():
            if name in changes.tables:
                for change, rows in changes.tables[name]:
                    after._change(records, change, *after._split(records, change, rows))
            elif name in self.records and name not in changes.schema.restated:
                records.fill(self.records[name].arrow_of_all())
        return after

    # -- cuts -------------------------------------------------------------------------------

    def pin(self) -> Before:
        """From now on what is there now stays to be read, until it is unpinned."""
        if self.newest is not None:  # it has what has changed already
            if not self._befores or self._befores[-1] is not self.newest:
                self._befores.append(self.newest)
        elif not self._befores or self._moved:
            self._befores.append(Before())
        self._moved = False
        self._befores[-1].cuts += 1
        return self._befores[-1]

    def unpin(self, before: Before) -> None:
        before.cuts -= 1
        if before.cuts:
            return
        place = self._befores.index(before)
        if place:
            self._befores[place - 1].absorb(before)
        if place == len(self._befores) - 1:
            self._moved = True  # since the one before it
        del self._befores[place]

    def _since(self, before: Before | None) -> list[Before]:
        if before is None:
            return []
        if before is self.newest:
            return [before]
        return self._befores[self._befores.index(before) :]

    # -- reading ----------------------------------------------------------------------------

    def one(self, name: str, key: Any, before: Before | None) -> dict[str, Any] | None:
        """The record with a key as a user gives it, as it was when it was pinned; None where there was none."""
        records = self.records[name]
        if before is not None:
            words = None
            for each in self._since(before):
                kept = each.kept.get(name)
                if kept is not None:
                    words = records.words_of(key) if words is None else words
                    if (row := int(kept.there.rows_at(words)[0])) >= 0:
                        return kept.there.record(row)
                    if kept.absent.rows_at(words)[0] >= 0:
                        return None
        row = records.row_of(key)
        return records.record(row) if row >= 0 else None

    def several(self, name: str, keys: pa.Table, before: Before | None) -> tuple[list[tuple[Records, Any]], Any, Any]:
        """Where the records with these keys are: sources with their rows; of each key that has one, its place among all
        of these; and of which keys there is one."""
        records = self.records[name]
        words = records.words(keys)
        rows = records.rows_at(words)
        found = rows >= 0
        sources, place, behind = [(records, rows[found])], np.cumsum(found) - 1, int(found.sum())
        for each in reversed(self._since(before)):  # the oldest that knows a key is right
            kept = each.kept.get(name)
            if kept is None:
                continue
            there = (rows := kept.there.rows_at(words)) >= 0
            found = (found | there) & ~(kept.absent.rows_at(words) >= 0)
            sources.append((kept.there, rows[there]))
            place = np.where(there, behind + np.cumsum(there) - 1, place)
            behind += int(there.sum())
        return sources, place[found], found

    def arrow(self, name: str, keys: pa.Table, before: Before | None) -> tuple[pa.Table, Any]:
        """The records with these keys that there are, in their order, and of which keys there is one."""
        sources, place, found = self.several(name, keys, before)
        pieces = [records.arrow(rows) for records, rows in sources]
        return pieces[0] if len(pieces) == 1 else pa.concat_tables(pieces).take(pa.array(place)), found

    def many(self, name: str, keys: pa.Table, before: Before | None) -> list[dict[str, Any] | None]:
        """The record with each of these keys, in their order."""
        sources, place, found = self.several(name, keys, before)
        records = [record for several, rows in sources for record in several.records(rows)]
        if found.all() and len(sources) == 1:
            return records  # type: ignore[return-value]
        places = iter(place.tolist())
        return [records[next(places)] if there else None for there in found.tolist()]

    def table(self, lock: Lock, name: str, before: Before) -> pa.Table:
        """All records of a table, as they were when it was pinned. It may change meanwhile: what does so is kept."""
        pieces, start = [self.definitions[name].arrow().empty_table()], 0
        while True:
            with lock:
                if start >= self.records[name].used:
                    break
                pieces.append(self.records[name].live(start, start + _COPIED))
            start += _COPIED
        rows = one_below_another(pieces)
        with lock:
            for each in reversed(self._since(before)):
                if name in each.kept:
                    rows = each.kept[name].over(rows)
        return rows


@contextmanager
def _telling(torn: Callable[[BaseException], None]) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        torn(error)
        raise
