"""Records as they were in a version, of those that have changed since: what keeps a cut on its version while the tables
go on.

    cut of version 7 ── Before 7 ── Before 9 ── the tables, at version 12
    cut of version 9 ───────────────┘

Before a commit changes records, the newest of these keeps them as they are, unless it has them already: so it holds
what changed between its version and the next one's. Who reads version 7 asks 7, then 9, then the tables; the first that
knows a key is right. A cut that closes leaves what the one before it has not got to that one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.declare.model import Program, TableDef
from penstock.replica.records import Records
from penstock.state.tables import Tables


class Before:
    """Costs nothing until something is kept."""

    def __init__(self) -> None:
        self.cuts = 0  # that stand on it
        self.kept: dict[str, Kept] = {}

    def keep(self, records: Records, keys: Any) -> None:
        """The records with these keys, each once, as they are: there, or absent."""
        name = records.definition.name
        if name not in self.kept:
            self.kept[name] = Kept.beside(records)
        kept = self.kept[name]
        keys = keys[:, ~kept.knows(keys)]
        if keys.size:
            rows = records.rows_at(keys)
            there = rows >= 0
            kept.there.put_lanes(keys[:, there], records.lanes(rows[there]))
            kept.absent.put_lanes(keys[:, ~there], [])

    def absorb(self, later: Before) -> None:
        """What a later one holds, and this one does not."""
        for name, other in later.kept.items():
            kept = self.kept.setdefault(name, other)
            if kept is not other:
                for mine, theirs in zip(kept, other, strict=True):
                    rows = np.flatnonzero(~kept.knows(theirs.keys()))
                    mine.put_lanes(theirs.keys()[:, rows], theirs.lanes(rows))


class Kept(NamedTuple):
    """Of one table: records that were there, and keys of which there was none. Their strings are those of the table."""

    there: Records
    absent: Records

    @classmethod
    def beside(cls, records: Records) -> Kept:
        table = records.definition
        return cls(*(_beside(records, one) for one in (table, TableDef(table.name, table.keys))))

    def knows(self, keys: Any) -> Any:
        """Of each key, whether it is here."""
        return (self.there.rows_at(keys) >= 0) | (self.absent.rows_at(keys) >= 0)

    def over(self, rows: pa.Table) -> pa.Table:
        """A table with what is here in the place of what it has of it."""
        known = self.knows(self.there.words(rows))
        rows = rows.filter(pa.array(~known)) if known.any() else rows
        return pa.concat_tables([rows, self.there.arrow_of_all()])


def _beside(records: Records, table: TableDef) -> Records:
    tables = Tables(Program("", (table,)))
    tables.strings = records.strings
    return Records(tables, table)
