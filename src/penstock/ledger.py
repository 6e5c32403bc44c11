"""The outcomes of calls by their ids, as long as their versions are retained."""

from __future__ import annotations

from collections import deque
from itertools import groupby, repeat
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.store.protocol import Store


class Known(NamedTuple):
    """What is known of an id."""

    version: int
    row: int  # of the version's outcomes
    fields: int | None  # that it was called with: execute/field_hashes.py

    def differs(self, fields: int) -> bool:
        return self.fields is not None and self.fields != fields


class Ledger:
    def __init__(self, store: Store) -> None:
        self._store = store
        # Event -> id -> (version, row, fields). None until it is first asked for.
        self._known: dict[str, dict[Any, tuple[int, int, int | None]]] | None = None
        self._outcomes: dict[int, pa.Table] = {}
        self._versions: deque[tuple[int, str, list[Any]]] = deque()  # oldest first
        self._pruned = 0  # the last version that was not there any more when it was read

    def of(self, event: str) -> dict[Any, tuple[int, int, int | None]]:
        """By id, the calls of an event of which something is known."""
        if self._known is None:
            self._known = {}
            self._pruned = self._store.oldest_version - 1
            for version, outcomes, calls in self._store.answered():
                self._add(version, outcomes, *map(list, zip(*calls, strict=True)))
        self._forget(self._store.version)
        return self._known.setdefault(event, {})

    def outcome(self, version: int, row: int) -> pa.Table:
        return self._outcomes[version].slice(row, 1)

    @property
    def floor(self) -> int:
        """Of calls up to this version nothing is known."""
        return max(self._store.version - self._store.retain, self._pruned, 0)

    def add(self, version: int, outcomes: pa.Table, calls: pa.Table | None) -> None:
        if self._known is None or calls is None:  # Who asks reads it from the store.
            return
        event, id, row, fields = (column.to_pylist() for column in calls.columns)
        self._add(version, outcomes, event, id, row, fields)

    def _add(
        self,
        version: int,
        outcomes: pa.Table,
        event: list[str],
        id: list[Any],
        row: list[int],
        fields: list[int | None],
    ) -> None:
        assert self._known is not None
        if 2 * len(row) < outcomes.num_rows:  # A batch has answered a few: the rest of it is not held for them.
            outcomes, row = outcomes.take(pa.array(row)), list(range(len(row)))
        start = 0
        for name, several in groupby(event):
            end = start + sum(1 for _ in several)
            calls = zip(repeat(version), row[start:end], fields[start:end], strict=False)
            self._known.setdefault(name, {}).update(zip(id[start:end], calls, strict=False))
            self._versions.append((version, name, id[start:end]))
            start = end
        self._outcomes[version] = outcomes
        self._forget(version)

    def _forget(self, version: int) -> None:
        assert self._known is not None
        oldest = version - self._store.retain
        while self._versions and self._versions[0][0] <= oldest:
            made, event, ids = self._versions.popleft()
            known = self._known[event]
            for id in ids:
                if id in known and known[id][0] == made:
                    del known[id]
            self._outcomes.pop(made, None)
