"""Outcomes as Parquet files: one a batch, named by its version, so that writing it twice leaves it once.

    encode in memory ──> .version-N.parquet.tmp, synced ──> a line in the manifest, synced ──> rename, synced

Whether a version is written already is not for its name to say: the file must be what the manifest says. Where it is
not (a crash came before the rename, or the disk lost it) it is written anew; the outcomes are at hand.

A directory that is made here is its owner's alone, 0700, and so are its files, 0600, like the state. One that is
there keeps its mode, and its files get that mode without x: `mkdir -m 750 out` lets a group read them.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.commit.disk import Disk
from penstock.commit.identity import directory_of
from penstock.errors import StateError
from penstock.publish.manifest import MANIFEST, Entry, Manifest, file_name, version_in


@dataclass(slots=True)
class OutcomeFiles:
    path: str
    state: str | None = None  # the state directory whose outcomes these are
    disk: Disk = field(default_factory=Disk)
    _manifest: Manifest | None = field(default=None, init=False, repr=False)

    def write(self, outcomes: pa.Table, versions: pa.Array | None = None) -> None:
        """Write the outcomes of one version, or of several in order, unless they are there. A file appears whole, under
        the name of its last version, or not at all. versions: which made each row, where rows do not say it: a
        duplicate has that of the first one."""
        if outcomes.num_rows == 0:
            return
        version = (outcomes.column("version") if versions is None else versions)[-1].as_py()
        try:
            self._write(version, outcomes)
        except (OSError, StateError) as error:
            said = os.strerror(error.errno).lower() if isinstance(error, OSError) and error.errno else error
            raise StateError(
                f"outcomes of version {version} cannot be written to {self.path}: {said}; "
                "the state directory's log has them, and they are written when the query is started again"
            ) from error

    def written(self) -> list[int]:
        """The versions that files are named by, in order, as far as the manifest knows."""
        if self._manifest is not None:
            return sorted(self._manifest.entries())
        folder = Path(self.path)
        if not self.disk.exists(folder) or not stat.S_ISDIR(self.disk.stat(folder).st_mode):
            return []  # what is in the way is told by who writes
        directory = None if self.state is None else directory_of(self.disk, Path(self.state))
        try:
            return sorted(Manifest(self.disk, folder, directory).entries())
        except FileNotFoundError:
            return []

    def _write(self, version: int, outcomes: pa.Table) -> None:
        folder, disk = Path(self.path), self.disk
        if not disk.exists(folder):
            disk.ensure_dir(folder)
        mode = stat.S_IMODE(disk.stat(folder).st_mode) & 0o666
        if self._manifest is None:
            # Whoever wrote last may not have lived to sync its names, and a file that is there is not written again.
            disk.fsync_dir(folder.parent)
            disk.fsync_dir(folder)
            self._manifest = self._open(folder, version, mode)
        known, final = self._manifest.entries().get(version), folder / file_name(version)
        if disk.exists(final) and self._is_written(final, known, version, outcomes):
            return
        data = encode(outcomes)
        making = final.with_name(f".{final.name}.tmp")  # readers pass over names that begin with a dot
        disk.unlink_if_there(making)
        try:
            disk.write_new(making, [memoryview(data)], mode)
            entry = Entry.of(version, data)
            if entry != known:
                self._manifest.add(entry)
            disk.rename(making, final)
        except BaseException:
            with suppress(OSError, StateError):
                disk.unlink_if_there(making)
            raise
        disk.fsync_dir(folder)

    def _open(self, folder: Path, version: int, mode: int) -> Manifest:
        directory = None if self.state is None else directory_of(self.disk, Path(self.state))
        found = Manifest(self.disk, folder, directory, mode=mode)
        if found.since is not None:
            return found
        older = any(version_in(name) is not None for name in self.disk.listdir(folder))
        return Manifest(self.disk, folder, directory, since=version if older else 0, mode=mode)

    def _is_written(self, final: Path, known: Entry | None, version: int, outcomes: pa.Table) -> bool:
        """Whether the file is what the manifest says. One that is not in it was written by an older version of
        Penstock, which kept none, and is taken up if it holds these outcomes."""
        data = self.disk.read(final)
        if known is not None:
            return Entry.of(version, data) == known
        try:
            found = pq.read_table(pa.BufferReader(data), page_checksum_verification=True)
        except (pa.ArrowException, OSError):
            return False
        if not _same(found, outcomes):
            raise StateError(
                f"{final} holds other outcomes than those of version {version}, and {MANIFEST} does not list it: it "
                "is another state directory's; name another directory for outcomes, or move the file away"
            )
        assert self._manifest is not None
        self._manifest.add(Entry.of(version, data))
        return True


def _same(found: pa.Table, outcomes: pa.Table) -> bool:
    both = [name for name in found.column_names if name in outcomes.column_names]
    return bool(both) and found.select(both).equals(as_read(outcomes).select(both))


def encode(outcomes: pa.Table) -> pa.Buffer:
    """Half the work of write_table's defaults: few words repeat in columns of dictionaries, and they are written as
    they are; a ts is near the one before, and so is most often an id; statistics are kept where a reader may skip by
    them."""
    words = [f.name for f in outcomes.schema if pa.types.is_dictionary(f.type)]
    near = ["ts", *(f.name for f in outcomes.schema if f.name == "id" and pa.types.is_integer(f.type))]
    out = pa.BufferOutputStream()
    pq.write_table(
        outcomes,
        out,
        use_dictionary=[*words, "version"],
        column_encoding=dict.fromkeys(near, "DELTA_BINARY_PACKED"),
        write_statistics=["ts", "version"],
        write_page_checksum=True,
        store_schema=False,  # it would make readers of Arrow see dictionaries where others see strings
    )
    return out.getvalue()


def plain(outcomes: pa.Table) -> pa.Table:
    """Without dictionaries: as any reader of Arrow, Parquet or Spark takes it."""
    fields = [
        pa.field(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in outcomes.schema
    ]
    return outcomes.cast(pa.schema(fields))


def as_read(outcomes: pa.Table) -> pa.Table:
    """As a file gives it back: Parquet knows no durations, so these are int64, in microseconds."""
    whole = plain(outcomes)
    fields = [pa.field(f.name, pa.int64() if pa.types.is_duration(f.type) else f.type) for f in whole.schema]
    return whole.cast(pa.schema(fields))
