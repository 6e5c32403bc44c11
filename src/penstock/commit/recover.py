"""Which files make a version: what a directory holds, and what a reader needs of it.

    snapshots      42                    84
    segments       43 44 ... 84          85 86 87
    head                                       87

A state is a base (a sound snapshot, or nothing before segment 1) and every segment after it, up to
the version asked for. A version counts batches; a load makes a segment, but no version.

Invariants:
- Segments that matter have no gap: one that is missing between the base and the newest, or the
  newest that `head` knows of, is an error that names its file. Gaps below the base are what a
  pruning leaves that was cut short, and do not matter.
- A damaged snapshot is passed over for an older one, as long as the segments after that are there.
- `head` is a hint: written after each commit became durable, not synced. It may lag or be lost, so
  it proves only that a newer segment existed.
- A reader shares the directory with a writer that commits and prunes. What vanishes under it is no
  damage: it looks again, until two looks in a row see the same files.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from penstock.commit.disk import Disk
from penstock.commit.identity import LOG, SNAPSHOTS
from penstock.commit.log import Segment, read_contents, read_segment
from penstock.commit.snapshot import Manifest, Snapshot, read_manifest, read_snapshot, snapshot_name
from penstock.errors import StateError

HEAD = "head"
# A writer that outruns a reader this often is not one that the reader will catch.
LOOKS = 100

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Entry:
    """What is kept in memory of each segment."""

    version: int
    id: int | None
    last_id: int | None
    size: int


@dataclass(frozen=True, slots=True)
class Scan:
    """One look at a directory: every segment's header and every snapshot's manifest, or what is wrong with it."""

    path: Path
    head: int
    segments: dict[int, Entry | StateError]
    snapshots: dict[int, Manifest | StateError]

    @property
    def newest(self) -> tuple[int, Entry]:
        """The newest commit, by number; raises if it is damaged or known to be missing."""
        seq = max(self.segments, default=0)
        known = max(self.head, *self.sound, 0)
        if known > seq:
            raise StateError(f"{segment_path(self.path, known)} is missing: it was committed; restore it from a backup")
        return seq, _sound(self.segments[seq]) if seq else Entry(0, None, None, 0)

    @property
    def sound(self) -> dict[int, Manifest]:
        return {seq: found for seq, found in self.snapshots.items() if isinstance(found, Manifest)}

    @property
    def oldest(self) -> int:
        """The oldest version that can be read: 0 as long as no segment was pruned."""
        first = min(self.sound, default=0)
        whole = all(seq in self.segments for seq in range(1, first + 1))
        return 0 if whole else self.sound[first].version

    @property
    def names(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return tuple(sorted(self.segments)), tuple(sorted(self.snapshots))


@dataclass(frozen=True, slots=True)
class Recovery:
    snapshot: Snapshot | None
    segments: Iterator[Segment]
    scan: Scan
    # Snapshots that turned out to be damaged, and how.
    damaged: dict[int, StateError]


def segment_path(path: Path, seq: int) -> Path:
    return path / LOG / f"{seq:012d}.seg"


def snapshot_path(path: Path, seq: int) -> Path:
    return path / SNAPSHOTS / snapshot_name(seq)


def scan(disk: Disk, path: Path) -> Scan:
    # In this order, what a writer adds meanwhile only makes the log longer than the rest knows of.
    head = read_head(disk, path)
    snapshots = numbers(disk, path / SNAPSHOTS)
    segments = numbers(disk, path / LOG, ".seg")
    found = Scan(path, head, {}, {})
    for seq in snapshots:
        try:
            found.snapshots[seq] = read_manifest(disk, snapshot_path(path, seq))
        except StateError as error:
            found.snapshots[seq] = error
    for seq in segments:
        try:
            found.segments[seq] = _entry(disk, path, seq)
        except StateError as error:
            if not isinstance(error.__cause__, FileNotFoundError):  # Else it was pruned since it was listed.
                found.segments[seq] = error
    return found


def look(disk: Disk, path: Path, use: Callable[[Scan], T]) -> T:
    """`use` of a scan; again with a new scan as long as it fails and the directory changes."""
    seen = scan(disk, path)
    for _ in range(LOOKS):
        try:
            return use(seen)
        except StateError:
            before, seen = seen, scan(disk, path)
            if seen.names == before.names and seen.head == before.head:
                raise
    return use(seen)


def recover(
    disk: Disk, path: Path, upto: int | None, *, oldest: bool = False, skip: Collection[str] = (), lazy: bool = False
) -> Recovery:
    """`lazy` leaves the segments on the disk until they are asked for: only where nobody prunes meanwhile."""

    def use(seen: Scan) -> Recovery:
        version = seen.newest[1].version
        if upto is not None and not 0 <= upto <= version:
            raise StateError(f"state directory {path} has no version {upto}: its newest is {version}")
        damaged: dict[int, StateError] = {}
        base = _base(disk, seen, seen.oldest if oldest else upto, damaged)
        seqs = list(_after(seen, base, upto, damaged))
        segments: Iterable[Segment] = (read_commit(disk, path, seq, skip=skip) for seq in seqs)
        return Recovery(base, iter(segments if lazy else list(segments)), seen, damaged)

    return look(disk, path, use)


def read_commit(
    disk: Disk, path: Path, seq: int, only: Collection[str] | None = None, skip: Collection[str] = ()
) -> Segment:
    segment = read_segment(disk, segment_path(path, seq), only, skip)
    _check_seq(path, seq, segment.header.get("seq"))
    return segment


def head_bytes(seq: int) -> bytes:
    return b"%012d %08x\n" % (seq, zlib.crc32(b"%012d" % seq))


def read_head(disk: Disk, path: Path) -> int:
    """The newest segment that the hint knows of; 0 where it is lost or torn."""
    try:
        data = disk.read(path / HEAD)
        seq = int(data[:12])
    except (FileNotFoundError, ValueError):
        return 0
    return seq if data == head_bytes(seq) else 0


def numbers(disk: Disk, folder: Path, suffix: str = "") -> list[int]:
    try:
        names = disk.listdir(folder)
    except FileNotFoundError as error:
        raise StateError(f"{folder} is missing; restore it from a backup") from error
    return sorted(int(name[:12]) for name in names if re.fullmatch(r"\d{12}" + re.escape(suffix), name))


def _base(disk: Disk, seen: Scan, upto: int | None, damaged: dict[int, StateError]) -> Snapshot | None:
    """The newest sound snapshot that is not too new; what is damaged on the way is noted."""
    for seq in sorted(seen.snapshots, reverse=True):
        manifest = seen.snapshots[seq]
        if isinstance(manifest, StateError):
            damaged[seq] = manifest
        elif upto is None or manifest.version <= upto:
            try:
                return read_snapshot(disk, snapshot_path(seen.path, seq))
            except StateError as error:
                damaged[seq] = error
    return None


def _after(seen: Scan, base: Snapshot | None, upto: int | None, damaged: dict[int, StateError]) -> Iterator[int]:
    for seq in range(base.seq + 1 if base else 1, max(seen.segments, default=0) + 1):
        if seq not in seen.segments:
            raise _missing(seen, seq, base, upto, damaged)
        entry = _sound(seen.segments[seq])
        if upto is not None and entry.version > upto:
            return
        yield seq


def _missing(
    seen: Scan, seq: int, base: Snapshot | None, upto: int | None, damaged: dict[int, StateError]
) -> StateError:
    path = segment_path(seen.path, seq)
    notes = "".join(f"; {error}" for error in damaged.values())
    versions = [manifest.version for seq, manifest in seen.sound.items() if seq not in damaged]
    if base is None and versions:
        return StateError(
            f"version {upto} of state directory {seen.path} is not retained any more ({path.name} is gone); "
            f"the oldest version that can be read is {min(versions)}{notes}"
        )
    return StateError(f"{path} is missing; restore it from a backup{notes}")


def _entry(disk: Disk, path: Path, seq: int) -> Entry:
    contents = read_contents(disk, segment_path(path, seq))
    header = contents.header
    _check_seq(path, seq, header.get("seq"))
    return Entry(header["version"], header["id"], header["last_id"], contents.size)


def _check_seq(path: Path, seq: int, found: object) -> None:
    if found != seq:
        raise StateError(f"{segment_path(path, seq)} is damaged: it holds commit {found}; restore it from a backup")


def _sound(entry: Entry | StateError) -> Entry:
    if isinstance(entry, StateError):
        raise entry
    return entry
