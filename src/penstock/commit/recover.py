"""Which files make a version, and reading them beside a writer.

A state is a base (a sound snapshot, or nothing before segment 1) and every segment after it, up to
the version asked for. A version counts batches; a load makes a segment, but no version.

Invariants:
- A damaged snapshot is passed over for an older one, as long as the segments after that are there. A missing or damaged
  segment between the base and the version is an error that names its file.
- A reader shares the directory with a writer that commits and prunes. It opens all files that it needs before it
  reads the first, so that they cannot vanish under it. What vanishes before that is no damage: it looks again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from penstock.commit.chain import wrong_place
from penstock.commit.disk import Disk
from penstock.commit.log import Segment, SegmentFile, damaged, read_segment
from penstock.commit.scan import Scan, check_entry, keep, origin_of, scan, segment_path, snapshot_path, sound
from penstock.commit.snapshot import Snapshot, read_snapshot
from penstock.errors import NotRetainedError, StateError

# A writer that outruns a reader this often is not one that the reader will catch.
LOOKS = 100
# Files that a reader holds open at most: well below the 1024 that a process may have open by default. With more
# segments than that it reads all of them at once instead.
HELD_FILES = 256

T = TypeVar("T")

# Whoever does not read them to the end closes it, and with it their files.
Segments = Generator[Segment, None, None]


@dataclass(frozen=True, slots=True)
class Recovery:
    snapshot: Snapshot | None
    segments: Segments
    scan: Scan
    # Snapshots that turned out to be damaged, and how.
    damaged: dict[int, StateError]

    @property
    def base_version(self) -> int:
        """The version before the first of the segments."""
        return 0 if self.snapshot is None else self.snapshot.version


def look(disk: Disk, path: Path, use: Callable[[Scan], T]) -> T:
    """`use` of a scan; again with a new scan as long as it fails and the directory changes."""
    seen = scan(disk, path)
    for _ in range(LOOKS):
        try:
            return use(seen)
        except StateError:
            before, seen = seen, scan(disk, path)
            if seen.seen == before.seen:
                raise
    raise StateError(
        f"state directory {path} is written and pruned faster than it can be read; ask again, or open the database "
        "with a larger retain, so that readers can keep up"
    )


def recover(
    disk: Disk, path: Path, upto: int | None, *, oldest: bool = False, skip: Container[str] = (), lazy: bool = False
) -> Recovery:
    """`lazy` opens segments only when they are asked for: where nobody prunes meanwhile."""

    def use(seen: Scan) -> Recovery:
        version = seen.newest[1].version
        if upto is not None and not 0 <= upto <= version:
            raise StateError(f"state directory {path} has no version {upto}: its newest is {version}")
        passed_over: dict[int, StateError] = {}
        base = _base(disk, seen, seen.oldest if oldest else upto, passed_over)
        seqs = list(_after(seen, base, upto, passed_over))
        segments: Segments
        if lazy:
            segments = (read_segment(disk, segment_path(path, seq), skip=skip) for seq in seqs)
        else:
            segments = held_segments(disk, path, seqs, skip=skip, known=seen)
        return Recovery(base, segments, seen, passed_over)

    return look(disk, path, use)


def held_segments(
    disk: Disk, path: Path, seqs: Sequence[int], skip: Container[str] = (), known: Scan | None = None
) -> Segments:
    """The segments one after the other; what is pruned from now on stays readable."""
    if len(seqs) <= HELD_FILES:
        return read_in_turn(open_segments(disk, path, seqs, known=known), skip=skip)
    read: list[Segment] = []
    before: str | None = None
    for seq in seqs:
        for file in open_segments(disk, path, [seq], before, known):
            before = file.contents.hash
            read += read_in_turn([file], skip=skip)
    return (segment for segment in read)


def open_segments(
    disk: Disk, path: Path, seqs: Sequence[int], before: str | None = None, known: Scan | None = None
) -> list[SegmentFile]:
    """The files of consecutive segments, open, and checked to follow one another. before: the hash of the segment that
    the first has to follow; known: what they have to be."""
    origin = known.origin if known else origin_of(disk, path)
    files: list[SegmentFile] = []
    try:
        for seq in seqs:
            file = SegmentFile(disk, segment_path(path, seq))
            files.append(file)
            entry = check_entry(file.path, seq, file.contents, origin)
            wrong = wrong_place(file.path, seq, entry, before, origin)
            if wrong is not None:
                raise wrong
            if known is not None and entry.hash != known.entry(seq).hash:
                raise damaged(file.path, "it changed while it was read")
            before = entry.hash
    except BaseException:
        for file in files:
            file.close()
        raise
    return files


def read_in_turn(
    files: Sequence[SegmentFile], only: Collection[str] | None = None, skip: Container[str] = ()
) -> Segments:
    try:
        for file in files:
            with file:
                yield file.read(only, skip)
    finally:  # Also where one cannot be read, or the reader stops before the last.
        for file in files:
            file.close()


def read_commit(
    disk: Disk, path: Path, seq: int, only: Collection[str] | None = None, skip: Container[str] = ()
) -> Segment:
    return next(read_in_turn(open_segments(disk, path, [seq]), only, skip))


def _base(disk: Disk, seen: Scan, upto: int | None, passed_over: dict[int, StateError]) -> Snapshot | None:
    """The newest sound snapshot that is not too new; what is damaged on the way is noted."""
    for seq in sorted(seen.snapshots, reverse=True):
        manifest = seen.snapshots[seq]
        if isinstance(manifest, StateError):
            passed_over[seq] = manifest
        elif upto is None or manifest.version <= upto:
            try:
                return read_snapshot(disk, snapshot_path(seen.path, seq), manifest)
            except StateError as error:
                passed_over[seq] = keep(error)
    return None


def _after(seen: Scan, base: Snapshot | None, upto: int | None, passed_over: dict[int, StateError]) -> Iterator[int]:
    for seq in range(base.seq + 1 if base else 1, max(seen.segments, default=0) + 1):
        if seq not in seen.segments:
            raise _missing(seen, seq, base, upto, passed_over)
        entry = sound(seen.segments[seq])
        if upto is not None and entry.version > upto:
            return
        yield seq


def _missing(
    seen: Scan, seq: int, base: Snapshot | None, upto: int | None, passed_over: dict[int, StateError]
) -> StateError:
    path = segment_path(seen.path, seq)
    notes = "".join(f"; {error}" for error in passed_over.values())
    versions = [manifest.version for seq, manifest in seen.sound.items() if seq not in passed_over]
    if base is None and versions:
        return NotRetainedError(
            f"version {upto} of state directory {seen.path} is not retained any more ({path.name} is gone); "
            f"the oldest version that can be read is {min(versions)}{notes}"
        )
    return StateError(f"{path} is missing; restore it from a backup{notes}")
