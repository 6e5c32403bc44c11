"""The schemas of a directory, each from the version on that made it.

    penstock.json    the first one
    log              a commit whose header has "schema": {"was": …, "now": …, "renamed": …, "steps": […]}
    snapshots        the one that they are of, as the commit that made it may be pruned

    version   0 … 6    7           8 … 11    12          13 …
              first    its change            a change
    at(9)              this one

A load belongs to the version before it, and a change is a version of its own: so a version has one schema.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from penstock.commit.scan import Entry, Scan
from penstock.plan.migration import Migration
from penstock.plan.schema import Schema
from penstock.store.segment import SCHEMA


class Schemas:
    def __init__(self, found: Scan, identity: Mapping[str, Any]) -> None:
        first = Schema.read(dict(identity))
        self._changes: dict[int, Migration] = {}  # by the version that each makes
        known: dict[int, Schema] = {}
        for manifest in found.sound.values():
            known[manifest.version] = Schema.read(manifest.header[SCHEMA]) if SCHEMA in manifest.header else first
        for entry in found.segments.values():
            if isinstance(entry, Entry) and entry.schema is not None:
                change = Migration.read(entry.schema)
                self._changes[entry.version] = change
                known[entry.version - 1], known[entry.version] = change.was, change.now
        self._known = dict(sorted(known.items())) or {0: first}
        self._versions = list(self._known)

    def at(self, version: int) -> Schema:
        """Of a version: that of the nearest one before it that is known, or else of the first."""
        place = bisect_right(self._versions, version)
        return self._known[self._versions[max(place - 1, 0)]]

    @property
    def newest(self) -> Schema:
        return self._known[self._versions[-1]]

    @property
    def last(self) -> int:
        """The version that made the newest one, or a later one."""
        return self._versions[-1]

    def gone(self, table: str) -> int | None:
        """The last version in which a table was dropped."""
        found = [v for v, one in self._changes.items() if table in one.was.tables and table not in one.now.tables]
        return max(found, default=None)

    def since(self, table: str, version: int) -> int:
        """From which version on a table of this one has had the columns that it has in it."""
        changed = [v for v, one in self._changes.items() if v <= version and _differs(one, table)]
        return max(changed, default=0)

    def changed(self, table: str, after: int) -> int | None:
        """The first version after this one in which the table has other columns."""
        return min((v for v, one in self._changes.items() if v > after and _differs(one, table)), default=None)

    def names(self, table: str, start: int, end: int) -> dict[str, str]:
        """What the columns that a table has in version `start` are called in version `end`, behind it; those that have
        gone are left out."""
        names = {name: name for name in self.at(start).tables.get(table, {})}
        for version, change in sorted(self._changes.items()):
            if start < version <= end:
                renamed, there = change.renamed.get(table, {}), change.now.tables.get(table, {})
                names = {old: new for old, name in names.items() if (new := renamed.get(name, name)) in there}
        return names

    def follow(self, table: str, rows: pa.Table, start: int, end: int) -> pa.Table:
        """Rows of version `start` by the names that their columns have in version `end`."""
        names = self.names(table, start, end)
        kept = [name for name in rows.column_names if name in names]
        return rows.select(kept).rename_columns([names[name] for name in kept])


def _differs(change: Migration, table: str) -> bool:
    return change.was.tables.get(table) != change.now.tables.get(table)
