"""A snapshot: the whole state after one commit, in a directory that is never changed.

    snapshots/000000000042/          after segment 42
        Account.arrow                one Arrow IPC file a table
        manifest.json                seq, header, each file's size and crc32; the directory, and the hash of the
                                     segment that it stands on (chain.py); sealed

Invariants:
- It is made in 000000000042.TAG.open, synced file by file, manifest last, and then renamed: a directory
  under its own name was whole once.
- It is removed manifest first: a directory without a manifest is no snapshot, whatever else it holds.
- A table is handed out only after its bytes have met their crc.
"""

from __future__ import annotations

import errno
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.commit.disk import Disk
from penstock.commit.log import measure, serialise
from penstock.commit.sealed import read_sealed, seal
from penstock.errors import StateError

MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class Snapshot:
    seq: int
    header: dict[str, Any]
    tables: dict[str, pa.Table]
    directory: str | None = None
    stands_on: str | None = None  # the hash of segment `seq`

    @property
    def version(self) -> int:
        return int(self.header["version"])


@dataclass(frozen=True, slots=True)
class Manifest:
    seq: int
    header: dict[str, Any]
    files: dict[str, dict[str, int]]
    directory: str | None = None
    stands_on: str | None = None

    @property
    def version(self) -> int:
        return int(self.header["version"])

    @property
    def size(self) -> int:
        return sum(file["size"] for file in self.files.values())


# Behind the name of a snapshot that is being removed.
REMOVED = ".removed"


def snapshot_name(seq: int) -> str:
    return f"{seq:012d}"


def write_snapshot(disk: Disk, root: Path, snapshot: Snapshot, tag: str, verify: Callable[[], None]) -> Manifest:
    """Durable on return. `tag` is the writer's own; `verify` may still forbid it just before it becomes visible."""
    final = root / snapshot_name(snapshot.seq)
    making = root / f"{final.name}.{tag}.open"
    disk.mkdir(making)
    try:
        manifest = _fill(disk, making, snapshot)
        verify()
        remove_snapshot(disk, final)  # Only a damaged one can be in the way.
        disk.rename(making, final)
    except OSError as error:  # What is made here was there, or is gone: all else is a StateError.
        raise StateError(f"fenced: another writer was at {making}; nothing more is written") from error
    except BaseException:
        with suppress(OSError, StateError):  # The next writer does it otherwise; but a full disk needs it now.
            remove_folder(disk, making)
        raise
    disk.fsync_dir(root)
    return manifest


def read_manifest(disk: Disk, path: Path) -> Manifest:
    """The manifest, if it is sound and every file of it is there in its full length."""
    manifest = read_manifest_alone(disk, path)
    for name, file in manifest.files.items():
        if not _names_a_file(name):
            raise StateError(f"{path / MANIFEST} is damaged: it names a table {name!r}")
        try:
            size = disk.stat(path / f"{name}.arrow").st_size
        except OSError as error:
            raise StateError(f"{path / name}.arrow is missing; restore it from a backup") from error
        if size != file["size"]:
            raise StateError(f"{path / name}.arrow is damaged: it has {size} bytes, not {file['size']}")
    return manifest


def read_manifest_alone(disk: Disk, path: Path) -> Manifest:
    try:
        content = read_sealed(disk, path / MANIFEST, "seq", "header", "files")
    except OSError as error:
        raise StateError(f"{path / MANIFEST} is missing; restore it from a backup") from error
    ours = content.get("directory"), content.get("stands_on")
    manifest = Manifest(content["seq"], content["header"], content["files"], *ours)
    if snapshot_name(manifest.seq) != path.name:
        raise StateError(f"{path / MANIFEST} is damaged: it belongs to snapshot {manifest.seq}")
    return manifest


def is_without_manifest(error: StateError) -> bool:
    """Whether this is why a snapshot cannot be read."""
    return f"{MANIFEST} is missing" in str(error)


def read_snapshot(disk: Disk, path: Path, manifest: Manifest) -> Snapshot:
    tables = {name: _read_table(disk, path / f"{name}.arrow", file) for name, file in manifest.files.items()}
    return Snapshot(manifest.seq, manifest.header, tables, manifest.directory, manifest.stands_on)


def verify_table(disk: Disk, path: Path, file: dict[str, int], told: Callable[[int], None]) -> None:
    """Reads every byte of a table's file, from the device where that can be; keeps nothing of it."""
    fd = _open_table(disk, path)
    try:
        disk.drop_cached(fd)
        if disk.size(fd) != file["size"]:
            raise StateError(f"{path} is damaged: it has {disk.size(fd)} bytes, not {file['size']}")
        if disk.crc(fd, file["size"], 0, path, told) != file["crc32"]:
            raise _damaged_table(path)
    finally:
        disk.close(fd)


def remove_snapshot(disk: Disk, path: Path) -> None:
    """It loses its name first: no reader finds half of one, and what a crash leaves is told from damage by its name."""
    removed = path.with_name(path.name + REMOVED)
    remove_folder(disk, removed)  # Left by a removal that was cut short.
    with _beside_another():
        disk.rename(path, removed)
        disk.fsync_dir(path.parent)
    remove_folder(disk, removed)


def remove_folder(disk: Disk, path: Path) -> None:
    """One that is no snapshot: it was being made, or removed."""
    with _beside_another():
        for name in disk.listdir(path):
            disk.unlink_if_there(path / name)
        disk.rmdir(path)


@contextmanager
def _beside_another() -> Iterator[None]:
    """A writer that is about to be fenced may still be filling what is removed here, or be removing it too."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
            raise


def _names_a_file(table: str) -> bool:
    """Account, $Expire or held:Transfer: no separator, nothing that climbs out of the directory."""
    return all(part.isidentifier() for part in table.removeprefix("$").split(":"))


def _fill(disk: Disk, path: Path, snapshot: Snapshot) -> Manifest:
    files: dict[str, dict[str, int]] = {}
    for name, table in snapshot.tables.items():
        if not _names_a_file(name):
            raise StateError(f"table {name!r} cannot be kept: its name becomes a file's; rename it")
        pieces = serialise(table, file=True)
        size, crc = measure(pieces)
        disk.write_new(path / f"{name}.arrow", pieces)
        files[name] = {"size": size, "crc32": crc}
    ours = {"directory": snapshot.directory, "stands_on": snapshot.stands_on}
    content = {"seq": snapshot.seq, "header": snapshot.header, "files": files, **ours}
    disk.write_new(path / MANIFEST, [memoryview(seal(content))])
    disk.fsync_dir(path)
    return Manifest(snapshot.seq, snapshot.header, files, **ours)


def _read_table(disk: Disk, path: Path, file: dict[str, int]) -> pa.Table:
    fd = _open_table(disk, path)
    try:
        data = disk.pread(fd, file["size"], 0, path)
    finally:
        disk.close(fd)
    if len(data) != file["size"] or zlib.crc32(data) != file["crc32"]:
        raise _damaged_table(path)
    with pa.ipc.open_file(data) as reader:
        return reader.read_all()


def _open_table(disk: Disk, path: Path) -> int:
    try:
        return disk.open(path)
    except OSError as error:
        raise StateError(f"{path} is missing; restore it from a backup") from error


def _damaged_table(path: Path) -> StateError:
    return StateError(f"{path} is damaged: its checksum does not hold; restore it from a backup")
