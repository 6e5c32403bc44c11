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

    def keep(self, records: Records, keys: pa.Table) -> None:
        """The records with these keys, each once, as they are: there, or absent."""
        name = records.definition.name
        if name not in self.kept:
            self.kept[name] = Kept.of(records.definition)
        kept = self.kept[name]
        unknown = ~kept.knows(keys)
        if not unknown.any():
            return
        keys = keys if unknown.all() else keys.filter(pa.array(unknown))
        rows = records.rows_of(keys)
        kept.add(records.arrow(rows[rows >= 0]), keys.filter(pa.array(rows < 0)))

    def absorb(self, later: Before) -> None:
        """What a later one holds, and this one does not."""
        for name, other in later.kept.items():
            kept = self.kept.setdefault(name, other)
            if kept is not other:
                there, absent = (each.arrow_of_all() for each in (other.there, other.absent))
                there, absent = (rows.filter(pa.array(~kept.knows(rows))) for rows in (there, absent))
                kept.add(there, absent)


class Kept(NamedTuple):
    """Of one table: records that were there, and keys of which there was none."""

    there: Records
    absent: Records

    @classmethod
    def of(cls, table: TableDef) -> Kept:
        keys = TableDef(table.name, table.keys)
        return cls(*(Records(Tables(Program("", (one,))), one) for one in (table, keys)))

    def add(self, records: pa.Table, absent: pa.Table) -> None:
        self.there.put(records)
        self.absent.put(absent)

    def knows(self, keys: pa.Table) -> Any:
        """Of each key, whether it is here."""
        if not len(self.there) and not len(self.absent):
            return np.zeros(keys.num_rows, np.bool_)
        return (self.there.rows_of(keys) >= 0) | (self.absent.rows_of(keys) >= 0)

    def over(self, rows: pa.Table) -> pa.Table:
        """A table with what is here in the place of what it has of it."""
        known = self.knows(rows)
        rows = rows.filter(pa.array(~known)) if known.any() else rows
        return pa.concat_tables([rows, self.there.arrow_of_all()])
