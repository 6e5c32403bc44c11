"""Every byte of a state directory, read and held against its checksum: one file at a time.

    log/000000000043.seg               the header and each part
    snapshots/000000000042/manifest.json
    snapshots/000000000042/Account.arrow

A file that is gone is no damage here: it may have been pruned since it was listed. Whether it should be there is a
question of all files together (judge.py).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from penstock.commit.disk import Disk
from penstock.commit.identity import LOG, SNAPSHOTS
from penstock.commit.log import SegmentFile
from penstock.commit.scan import numbers, segment_path, snapshot_path
from penstock.commit.snapshot import MANIFEST, read_manifest_alone, verify_table
from penstock.errors import StateError

# Called with the number of bytes of each piece that has been read; may wait, or raise to stop.
BatchOutcomes = Callable[[int], None]


def nobody(_: int) -> None:
    pass


def to_verify(disk: Disk, path: Path) -> dict[str, int]:
    """The files with checksums, oldest first, by their names within the directory; and how long they are."""
    found: dict[str, int] = {}
    for file in _files(disk, path):
        try:
            found[str(file.relative_to(path))] = disk.stat(file).st_size
        except FileNotFoundError:
            pass
        except StateError:  # What is wrong with it is told when it is verified.
            found[str(file.relative_to(path))] = 0
    return found


def _files(disk: Disk, path: Path) -> list[Path]:
    files: list[Path] = []
    with suppress(StateError):
        files += [segment_path(path, seq) for seq in numbers(disk, path / LOG, ".seg")]
    with suppress(StateError):
        for seq in numbers(disk, path / SNAPSHOTS):
            files += snapshot_files(disk, snapshot_path(path, seq))
    return files


def snapshot_files(disk: Disk, folder: Path) -> list[Path]:
    """The manifest, and the files that it names, whether they are there or not."""
    try:
        named = read_manifest_alone(disk, folder).files
    except StateError:
        named = {}
    return [folder / MANIFEST, *(folder / f"{name}.arrow" for name in named)]


def verify(disk: Disk, path: Path, name: str, told: BatchOutcomes) -> StateError | None:
    """What is wrong with a file; None where nothing is, or where it is gone."""
    file = path / name
    try:
        if file.parent.name == LOG:
            with SegmentFile(disk, file) as segment:
                segment.verify(told)
        elif file.name == MANIFEST:
            read_manifest_alone(disk, file.parent)
        else:
            verify_table(disk, file, read_manifest_alone(disk, file.parent).files[file.stem], told)
    except StateError as error:
        return None if isinstance(error.__cause__, FileNotFoundError) else error
    return None
