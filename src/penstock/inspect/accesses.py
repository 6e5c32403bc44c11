"""Records that tell who reads and writes them: a table of the reference over one of an engine.

Rows      looks like the dict that the reference keeps of a table; a record is fetched when it is first asked for
Access    one record, as it was before a step, and as that left it
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.declare.model import TableDef
from penstock.execute.loading import records
from penstock.execute.values import lower
from penstock.state.tables import Tables

Key = tuple[Any, ...]
Row = dict[str, Any]
_UNKNOWN = object()


@dataclass
class Access:
    table: str
    key: Key
    before: Row | None  # None: there was none
    reads: bool = False
    writes: bool = False


class Recorder:
    """The accesses since it was last taken from."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, Key], Access] = {}
        self.scans: dict[str, None] = {}  # tables of which all records were looked at
        self.on = True

    def note(self, table: str, key: Key, before: Row | None, *, writes: bool) -> None:
        if not self.on:
            return
        found = self._found.get((table, key))
        if found is None:
            found = self._found[table, key] = Access(table, key, before)
        if writes:
            found.writes = True
        else:
            found.reads = True

    def take(self) -> tuple[list[Access], list[str]]:
        found, scans = list(self._found.values()), list(self.scans)
        self._found.clear()
        self.scans.clear()
        return found, scans


class Rows(dict[Key, Row]):
    """A table. What is not asked for stays in the engine's memory, so a large one costs nothing."""

    def __init__(self, definition: TableDef, tables: Tables, recorder: Recorder) -> None:
        super().__init__()
        self._definition, self._tables, self._recorder = definition, tables, recorder
        self._gone: set[Key] = set()  # looked for, or deleted: not there
        self._whole = False

    def plain(self, key: Key) -> Row | None:
        """As it is now; nobody notes that."""
        found = dict.get(self, key)
        if found is not None or key in self._gone or self._whole:
            return found
        table = self._tables[self._definition.name]
        keys = pa.table(
            {
                c.name: pa.array([lower(part)], c.type.arrow())
                for c, part in zip(self._definition.keys, key, strict=True)
            }
        )
        place = table.rows_of(table.keys_of(keys, self._tables.strings))
        if place[0] < 0:
            self._gone.add(key)
            return None
        ((_, row),) = records(self._definition, table.arrow(place, self._tables.strings))
        super().__setitem__(key, row)
        return row

    def all(self) -> None:
        """Fetches what has not been asked for."""
        if self._whole:
            return
        for key, row in records(self._definition, self._tables.arrow_of(self._definition.name)):
            if key not in self._gone and not dict.__contains__(self, key):
                super().__setitem__(key, row)
        self._whole = True

    def _read(self, key: Key) -> Row | None:
        found = self.plain(key)
        self._recorder.note(self._definition.name, key, found, writes=False)
        return found

    def get(self, key: Key, default: Any = None) -> Any:
        found = self._read(key)
        return default if found is None else found

    def __getitem__(self, key: Key) -> Row:
        found = self._read(key)
        if found is None:
            raise KeyError(key)
        return found

    def __contains__(self, key: object) -> bool:
        assert isinstance(key, tuple)
        return self._read(key) is not None

    def __setitem__(self, key: Key, row: Row) -> None:
        self._recorder.note(self._definition.name, key, self.plain(key), writes=True)
        self._gone.discard(key)
        super().__setitem__(key, row)

    def __delitem__(self, key: Key) -> None:
        self.pop(key)

    def pop(self, key: Key, default: Any = None) -> Any:
        found = self.plain(key)
        if found is not None:
            self._recorder.note(self._definition.name, key, found, writes=True)
            super().pop(key, None)
            self._gone.add(key)
        return default if found is None else found

    def __iter__(self) -> Iterator[Key]:
        self._recorder.scans[self._definition.name] = None
        self.all()
        return super().__iter__()

    def __len__(self) -> int:
        self.all()
        return super().__len__()
