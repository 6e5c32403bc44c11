"""What a commit did to the tables, as the log tells it.

    written     records as a batch left them          loaded     rows of a load
    deleted     keys of records that it deleted       migrated   all records of a table, in the columns of a new schema

A batch that was logged as its input tells nothing of that: its transactions have to run again (replayed.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.commit import Segment
from penstock.plan.migration import Migration
from penstock.store.segment import DELETED, LOAD, RESTATED, SCHEMA, WRITTEN, part

# Deletions first, as the writer applies them.
KINDS = (("migrated", RESTATED), ("deleted", DELETED), ("written", WRITTEN), ("loaded", LOAD))

# A table's changes: of which kind, and records or, of deleted ones, their keys.
TableChanges = list[tuple[str, pa.Table]]


@dataclass(frozen=True, slots=True)
class Changes:
    """Of one commit."""

    version: int
    tables: dict[str, TableChanges]
    schema: Migration | None = None  # the version is a change of it


def is_input(segment: Segment) -> bool:
    """Whether it is a batch that was logged as its input."""
    return segment.header["kind"] == "batch" and segment.header["log"] != "changes"


def changes_in(segment: Segment, table: str) -> Iterator[tuple[str, pa.Table]]:
    for change, kind in KINDS:
        rows = segment.parts.get(part(kind, table))
        if rows is not None and rows.num_rows:
            yield change, rows


def changes_of(segment: Segment) -> Changes:
    names = {name.partition(":")[2] for name in segment.parts}
    tables = {name: found for name in names if (found := list(changes_in(segment, name)))}
    note = segment.header.get(SCHEMA)
    return Changes(segment.header["version"], tables, None if note is None else Migration.read(note))


class PartsBesides:
    """Parts that need not be read: of other tables than this one, of windows, of what is no table. None: all tables."""

    def __init__(self, table: str | None = None) -> None:
        self._table = table

    def __contains__(self, name: object) -> bool:
        kind, _, of = str(name).partition(":")
        return kind not in (WRITTEN, DELETED, LOAD, RESTATED) or self._table not in (None, of)
