"""Cut: all tables as of one version, which stays while the reader goes on. It costs what changes while it is open."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa

from penstock.declare.model import TableDef
from penstock.declare.objects import Table
from penstock.errors import InputError, StateError
from penstock.replica.before import Before
from penstock.replica.keys import key_columns
from penstock.replica.keys import keys as columns_of
from penstock.replica.state import State
from penstock.state.view import View


class Cut:
    """Made by `reader.cut()`; any thread may read it until it is closed."""

    def __init__(self, lock: AbstractContextManager[Any], state: State, version: int, before: Before) -> None:
        """before: pinned for this cut."""
        self._lock, self._state, self._version = lock, state, version
        self._before: Before | None = before
        self._copied: dict[str, pa.Table] = {}

    @property
    def version(self) -> int:
        return self._version

    @property
    def tables(self) -> dict[str, TableDef]:
        """The tables, and their columns, as of this version."""
        return dict(self._state.definitions)

    def get(self, table: Table | str, key: Any) -> dict[str, Any] | None:
        """The record with this key (a tuple where the key is of several columns); None where there is none."""
        with self._lock:
            return self._state.one(self._name(table), key, self._open())

    def get_many(self, table: Table | str, keys: Sequence[Any]) -> list[dict[str, Any] | None]:
        """The records with these keys, in their order."""
        definition = self._definition(table)
        wanted = columns_of(definition, keys)
        with self._lock:
            return self._state.many(definition.name, wanted, self._open())

    def get_arrow(self, table: Table | str, keys: pa.Array | pa.Table) -> tuple[pa.Table, Any]:
        """The records with these keys that there are, in their order; and of which keys there is one, as bools. keys:
        an array, or a table that has the key columns."""
        definition = self._definition(table)
        wanted = key_columns(definition, keys)
        with self._lock:
            return self._state.arrow(definition.name, wanted, self._open())

    def table(self, table: Table | str) -> pa.Table:
        """All records of a table."""
        name = self._definition(table).name
        if name not in self._copied:
            self._copied[name] = self._state.table(self._lock, name, self._open())
        return self._copied[name]

    def sql(self, query: str) -> pa.Table:
        """DuckDB over all tables: one query that only reads."""
        return View(self.version, {name: self.table(name) for name in self._state.definitions}).sql(query)

    def close(self) -> None:
        with self._lock:
            if self._before is not None:
                self._state.unpin(self._before)
                self._before = None

    def __enter__(self) -> Cut:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_before", None) is not None:
            self.close()

    def _open(self) -> Before:
        if self._before is None:
            raise StateError(f"the cut of version {self.version} is closed; take another one: reader.cut()")
        return self._before

    def _name(self, table: Table | str) -> str:
        if isinstance(table, str) and table in self._state.records:
            return table
        return self._definition(table).name

    def _definition(self, table: Table | str) -> TableDef:
        return definition_of(self._state, table, self.version)


def definition_of(state: State, table: Table | str, version: int) -> TableDef:
    name = table.definition.name if isinstance(table, Table) else table
    found = state.definitions.get(name) if isinstance(name, str) else None
    if found is None:
        names = ", ".join(state.definitions) or "none"
        raise InputError(f"app '{state.app}' has no table {name!r} in version {version}; it has {names}")
    return found
