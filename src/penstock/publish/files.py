"""Outcomes as Parquet files: one a batch, named by its version, so that writing it twice leaves it once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.commit import Disk
from penstock.errors import StateError


class Shared(Disk):
    """Whoever the umask lets may read outcomes; the state directory is its owner's alone."""

    file_mode, folder_mode = 0o666, 0o777


@dataclass(frozen=True, slots=True)
class OutcomeFiles:
    path: str
    disk: Disk = field(default_factory=Shared, repr=False, compare=False)

    def settle(self) -> None:
        """Before the first file: the directory is there, and what is in it is durable. Whoever wrote last may not have
        lived to see to it, and a file that is there is not written again."""
        folder = Path(self.path).absolute()
        with self._telling("outcomes"):
            self.disk.ensure_dir(folder)
            self.disk.fsync_dir(folder.parent)
            self.disk.fsync_dir(folder)

    def write(self, outcomes: pa.Table) -> None:
        """Write a batch's outcomes, unless they are there. A file appears whole, under its name, or not at all."""
        if outcomes.num_rows == 0:
            return
        version = outcomes.column("version")[0].as_py()
        disk, final = self.disk, Path(self.path).absolute() / f"version-{version:012d}.parquet"
        making = final.with_name(f".{final.name}.tmp")  # readers pass over names that begin with a dot
        with self._telling(f"outcomes of version {version}"):
            if disk.exists(final):
                return
            if not disk.exists(final.parent):
                disk.ensure_dir(final.parent)
            try:
                disk.unlink_if_there(making)
                disk.fill_new(making, partial(_write, outcomes))
                disk.rename(making, final)
            except BaseException:
                with suppress(OSError, StateError):
                    disk.unlink_if_there(making)
                raise
            disk.fsync_dir(final.parent)

    @contextmanager
    def _telling(self, what: str) -> Iterator[None]:
        try:
            yield
        except (OSError, StateError) as error:
            cause = error if isinstance(error, OSError) else error.__cause__
            raise StateError(
                f"{what} cannot be written to {self.path}: {getattr(cause, 'strerror', None) or error}; "
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
