"""View: every table as of one version, which no later batch can change."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.state.sql import read


@dataclass(frozen=True, slots=True)
class View:
    version: int
    tables: dict[str, pa.Table]

    def sql(self, query: str, *, allow_files: bool = False) -> pa.Table:
        """DuckDB over the tables, by their names: one query that only reads. allow_files: all that DuckDB can do."""
        return read(self.tables, query, allow_files=allow_files)
