"""The tables of a directory in memory, as one commit after the other leaves them; and as cuts see them.

Its owner holds a lock around whatever is done here, but for `table`, which takes it for a piece at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.commit import Snapshot
from penstock.declare.model import Program, TableDef
from penstock.plan.schema import Schema
from penstock.replica.before import Before
from penstock.replica.changes import Changes, TableChanges
from penstock.state.ages import NEVER
from penstock.state.arrow import one_below_another
from penstock.state.tables import Tables

# Rows that are copied while nobody else may read or write: about a millisecond.
_PIECE = 1 << 16


class State:
    def __init__(self, app: str, definitions: Sequence[TableDef]) -> None:
        self.app, self.definitions = app, {table.name: table for table in definitions}
        self.tables = Tables(Program(app, tuple(definitions)))
        self._befores: list[Before] = []  # of open cuts, oldest first
        self._moved = False  # since the newest of them

    @classmethod
    def of(cls, app: str, schema: Schema, snapshot: Snapshot | None, where: str) -> State:
        state = cls(app, schema.definitions(where))
        for name, table in state.definitions.items() if snapshot is not None else ():
            rows = snapshot.tables.get(name) if snapshot is not None else None
            if rows is not None:
                state.tables.apply(name, rows, _no_keys(table), 0, NEVER)
        return state

    def apply(self, changes: Changes) -> None:
        """What a commit did that left the schema as it is."""
        for name, several in changes.tables.items():
            if name in self.definitions:
                self._apply(name, several)
        self.tables.end_batch()
        self._moved = True

    def _apply(self, name: str, several: TableChanges) -> None:
        table = self.definitions[name]
        for change, rows in several:
            if self._befores:
                self._befores[-1].keep(self.tables, name, rows.select([c.name for c in table.keys]))
            if change == "deleted":
                self.tables.apply(name, table.arrow().empty_table(), rows, 0, NEVER)
            else:
                self.tables.apply(name, rows, _no_keys(table), 0, NEVER)

    def migrated(self, changes: Changes, where: str) -> State:
        """Another one, of the schema that a commit changes this one's to. This one does not change any more."""
        assert changes.schema is not None
        after = State(self.app, changes.schema.now.definitions(where))
        for name, table in after.definitions.items():
            if name in changes.tables:
                after._apply(name, changes.tables[name])
            elif name in self.definitions and name not in changes.schema.restated:
                after.tables.apply(name, self.tables.arrow_of(name), _no_keys(table), 0, NEVER)
        return after

    # -- cuts -------------------------------------------------------------------------------

    def pin(self) -> Before:
        """From now on what is there now stays to be read, until it is unpinned."""
        if not self._befores or self._moved:
            self._befores.append(Before(self.app, tuple(self.definitions.values())))
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
        return [] if before is None else self._befores[self._befores.index(before) :]

    # -- reading ----------------------------------------------------------------------------

    def records(self, name: str, keys: pa.Table, before: Before | None = None) -> tuple[pa.Table, Any]:
        """The records with these keys that there are, in their order, and of which keys there is one."""
        state, strings = self.tables[name], self.tables.strings
        rows = state.rows_of(state.keys_of(keys, strings))
        pieces, place = [state.arrow(rows[rows >= 0], strings, ordered=True)], np.cumsum(rows >= 0) - 1
        found = rows >= 0
        for kept in reversed(self._since(before)):  # the oldest that knows a key is right
            there, absent = kept.rows_of(name, keys)
            found = np.where(absent >= 0, False, found | (there >= 0))
            if (there >= 0).any():
                behind = sum(piece.num_rows for piece in pieces)
                pieces.append(kept.records(name, there[there >= 0]))
                place = np.where(there >= 0, behind + np.cumsum(there >= 0) - 1, place)
        if len(pieces) == 1 and found.sum() == pieces[0].num_rows:
            return pieces[0], found
        return pa.concat_tables(pieces).take(pa.array(place[found])), found

    def table(self, lock: AbstractContextManager[Any], name: str, before: Before) -> pa.Table:
        """All records of a table, as they were when it was pinned. It may change meanwhile: what does so is kept."""
        pieces, start = [self.definitions[name].arrow().empty_table()], 0
        while True:
            with lock:
                state = self.tables[name]
                if start >= state.used:
                    break
                pieces.append(state.arrow(state.live_rows(start, start + _PIECE), self.tables.strings))
                start += _PIECE
        rows = one_below_another(pieces)
        with lock:
            for kept in reversed(self._since(before)):
                rows = kept.over(name, rows)
        return rows


def _no_keys(table: TableDef) -> pa.Table:
    return pa.schema([c.arrow for c in table.keys]).empty_table()
