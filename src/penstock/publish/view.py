"""View: every table as of one version, which no later batch can change."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class View:
    version: int
    tables: dict[str, pa.Table]

    def sql(self, query: str) -> pa.Table:
        """DuckDB over the tables, by their names."""
        import duckdb  # a process that only runs batches needs none

        with duckdb.connect() as connection:
            for name, table in self.tables.items():
                connection.register(name, table)
            return connection.sql(query).to_arrow_table()
