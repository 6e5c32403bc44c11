"""Outcomes as Parquet files: one a batch, named by its version, so that writing it twice leaves it once."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.commit import Disk
from penstock.errors import StateError


# Whoever the umask lets may read outcomes; the state directory is its owner's alone.
FILE_MODE, FOLDER_MODE = 0o666, 0o777


@dataclass(frozen=True, slots=True)
class OutcomeFiles:
    path: str
    disk: Disk = field(default_factory=Disk, repr=False, compare=False)

    def write(self, outcomes: pa.Table) -> None:
        """Write a batch's outcomes, unless they are there. A file appears whole, under its name, or not at all."""
        if outcomes.num_rows == 0:
            return
        version = outcomes.column("version")[0].as_py()
        disk, final = self.disk, Path(self.path).absolute() / f"version-{version:012d}.parquet"
        making = final.with_name(f".{final.name}.tmp")  # readers pass over names that begin with a dot
        try:
            if disk.exists(final):
                return
            disk.ensure_dir(final.parent, FOLDER_MODE)
            disk.unlink_if_there(making)
            disk.fill_new(making, partial(_write, outcomes), FILE_MODE)
            disk.rename(making, final)
            disk.fsync_dir(final.parent)
        except (OSError, StateError) as error:
            with suppress(OSError, StateError):
                disk.unlink_if_there(making)
            cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
            raise StateError(
                f"outcomes of version {version} cannot be written to {self.path}: "
                f"{cause.strerror if isinstance(cause, OSError) else cause}; "
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
