"""Outcomes as Parquet files: one a batch, named by its version, so that writing it twice leaves it once."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.commit.disk import sync_names
from penstock.errors import StateError


@dataclass(frozen=True, slots=True)
class OutcomeFiles:
    path: str

    def write(self, outcomes: pa.Table) -> None:
        """Write a batch's outcomes, unless they are there. A file appears whole, under its name, or not at all."""
        if outcomes.num_rows == 0:
            return
        version = outcomes.column("version")[0].as_py()
        final = Path(self.path) / f"version-{version:012d}.parquet"
        if final.exists():
            return
        making = final.with_name(f".{final.name}.tmp")  # readers pass over names that begin with a dot
        try:
            final.parent.mkdir(parents=True, exist_ok=True)
            with open(making, "wb") as file:
                _write(outcomes, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(making, final)
            sync_names(final.parent)
        except OSError as error:
            with suppress(OSError):
                making.unlink(missing_ok=True)
            raise StateError(
                f"outcomes of version {version} cannot be written to {self.path}: {error.strerror or error}; "
                "the state directory's log has them, and they are written when the query is started again"
            ) from error


def _write(outcomes: pa.Table, file: Any) -> None:
    """Half the work of write_table's defaults: few words repeat in columns of dictionaries, and they are written as
    they are; a ts is near the one before, and so is most often an id; statistics are kept where a reader may skip by
    them."""
    words = [f.name for f in outcomes.schema if pa.types.is_dictionary(f.type)]
    near = ["ts", *(f.name for f in outcomes.schema if f.name == "id" and pa.types.is_integer(f.type))]
    pq.write_table(
        outcomes,
        file,
        use_dictionary=[*words, "version"],
        column_encoding=dict.fromkeys(near, "DELTA_BINARY_PACKED"),
        write_statistics=["ts", "version"],
        store_schema=False,  # it would make readers of Arrow see dictionaries where others see strings
    )


def plain(outcomes: pa.Table) -> pa.Table:
    """Without dictionaries: as any reader of Arrow, Parquet or Spark takes it."""
    fields = [
        pa.field(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in outcomes.schema
    ]
    return outcomes.cast(pa.schema(fields))
