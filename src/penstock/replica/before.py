"""Records as they were in a version, of those that have changed since: what keeps a cut on its version while the tables
go on.

    cut of version 7 ── Before 7 ── Before 9 ── the tables, at version 12
    cut of version 9 ───────────────┘

Before a commit changes records, the newest of these keeps them as they are, unless it has them already: so it holds
what changed between its version and the next one's. Who reads version 7 asks 7, then 9, then the tables; the first that
knows a key is right. A cut that closes leaves what the one before it has not got to that one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.declare.model import Program, TableDef
from penstock.state.ages import NEVER
from penstock.state.tables import Tables


class Before:
    def __init__(self, app: str, definitions: Sequence[TableDef]) -> None:
        self.cuts = 0  # that stand on it
        self._there = Tables(Program(app, tuple(definitions)))
        self._absent = Tables(Program(app, tuple(TableDef(t.name, t.keys) for t in definitions)))

    def keep(self, tables: Tables, name: str, keys: pa.Table) -> None:
        """The records with these keys, each once, as they are in the tables: there, or absent."""
        there, absent = self.rows_of(name, keys)
        unknown = (there < 0) & (absent < 0)
        if not unknown.any():
            return
        keys = keys if unknown.all() else keys.filter(pa.array(unknown))
        state = tables[name]
        rows = state.rows_of(state.keys_of(keys, tables.strings))
        self._add(name, state.arrow(rows[rows >= 0], tables.strings), keys.filter(pa.array(rows < 0)))

    def absorb(self, later: Before) -> None:
        """What a later one holds, and this one does not."""
        for name in later._there.by_name:
            for found, is_absent in ((later._there, False), (later._absent, True)):
                rows = found.arrow_of(name)
                there, absent = self.rows_of(name, rows)
                new = rows.filter(pa.array((there < 0) & (absent < 0)))
                nothing = self._there[name].definition.arrow().empty_table()
                self._add(name, nothing if is_absent else new, new if is_absent else None)

    def _add(self, name: str, records: pa.Table, absent: pa.Table | None) -> None:
        no_keys = self._absent[name].definition.arrow().empty_table()
        self._there.apply(name, records, no_keys, 0, NEVER)
        if absent is not None:
            self._absent.apply(name, absent, no_keys, 0, NEVER)

    def __len__(self) -> int:
        """Records that are kept."""
        return sum(len(table) for tables in (self._there, self._absent) for table in tables.by_name.values())

    def rows_of(self, name: str, keys: pa.Table) -> tuple[Any, Any]:
        """Of each key, where it is among the records that were there, and among those that were absent; or -1."""
        if not len(self):
            none = np.full(keys.num_rows, -1, np.int64)
            return none, none
        there, absent = self._there[name], self._absent[name]
        return (
            there.rows_of(there.keys_of(keys, self._there.strings)),
            absent.rows_of(absent.keys_of(keys, self._absent.strings)),
        )

    def records(self, name: str, rows: Any) -> pa.Table:
        return self._there[name].arrow(rows, self._there.strings, ordered=True)

    def over(self, name: str, rows: pa.Table) -> pa.Table:
        """A table with what is kept in the place of what it has of it."""
        there, absent = self.rows_of(name, rows)
        known = (there >= 0) | (absent >= 0)
        kept = self._there.arrow_of(name)
        if known.any():
            rows = rows.filter(pa.array(~known))
        return pa.concat_tables([rows, kept]) if kept.num_rows else rows
