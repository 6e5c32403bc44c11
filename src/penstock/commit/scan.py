"""One look at a directory: which segments and snapshots it holds, and whether they are whole and belong together.

    snapshots      42                    84
    segments       43 44 ... 84          85 86 87
    head                                       87

Invariants:
- Pruning removes segments up to a snapshot, after all snapshots before that one: so a gap above the oldest snapshot is
  a loss, and one below it does not matter. The newest segment that `head` or a snapshot knows of must be there.
- Segments and snapshots that do not belong together (chain.py) are damaged.
- `head` is a hint: written after each commit became durable, not synced. It may lag or be lost, so
  it proves only that a newer segment existed, and which.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.commit.chain import wrong_base, wrong_owner, wrong_place, wrong_successor
from penstock.commit.disk import Disk
from penstock.commit.identity import LOG, SNAPSHOTS, Origin, read_origin
from penstock.commit.log import Contents, damaged, read_contents
from penstock.commit.snapshot import Manifest, is_without_manifest, read_manifest, snapshot_name
from penstock.errors import StateError

HEAD = "head"


@dataclass(frozen=True, slots=True)
class Entry:
    """What is kept in memory of each segment."""

    kind: str
    version: int
    id: int | None
    last_id: int | None
    size: int
    hash: str
    previous: str | None
    directory: str | None
    schema: dict[str, Any] | None = None  # of the commits that change it alone


NOTHING = Entry("batch", 0, None, None, 0, "", None, None)  # before the first commit


@dataclass(frozen=True, slots=True)
class Head:
    """The newest segment that the hint knows of: 0 where it is lost or torn."""

    seq: int = 0
    hash: str | None = None  # an older Penstock did not write it


@dataclass(frozen=True, slots=True)
class Scan:
    """One look at a directory: every segment's header and every snapshot's manifest, or what is wrong with it."""

    path: Path
    origin: Origin
    head: Head
    segments: dict[int, Entry | StateError]
    snapshots: dict[int, Manifest | StateError]

    @property
    def newest(self) -> tuple[int, Entry]:
        """The newest commit, by number; raises if it is damaged or known to be missing."""
        seq = max(self.segments, default=0)
        known = max(self.head.seq, *self.sound, 0)
        if known > seq:
            raise lost(self.path, known)
        return seq, sound(self.segments[seq]) if seq else NOTHING

    @property
    def sound(self) -> dict[int, Manifest]:
        return {seq: found for seq, found in self.snapshots.items() if isinstance(found, Manifest)}

    @property
    def oldest(self) -> int:
        """The oldest version that can be read: 0 as long as no segment was pruned."""
        first = min(self.sound, default=0)
        for seq, found in self.snapshots.items():
            if isinstance(found, StateError) and unreadable(found) and (seq < first or not self.sound):
                raise found
        whole = all(seq in self.segments for seq in range(1, first + 1))
        return 0 if whole else self.sound[first].version

    @property
    def lost_base(self) -> StateError | None:
        """What is wrong with the snapshot that the versions before `oldest` stood on; None where they were pruned."""
        first = min(self.sound, default=0)
        older = {seq: found for seq, found in self.snapshots.items() if isinstance(found, StateError) and seq < first}
        if not older or self.oldest == 0:
            return None
        seq = min(older)
        return None if self.half_pruned(seq) else older[seq]

    def half_pruned(self, seq: int) -> bool:
        """Whether a snapshot may be what a pruning has left that was cut short: an older Penstock took the manifest
        first, where this one takes the name."""
        found = self.snapshots[seq]
        older = seq < self.origin.chain or self.origin.directory is None
        return older and len(self.sound) >= 2 and isinstance(found, StateError) and is_without_manifest(found)

    @property
    def first(self) -> int:
        """The oldest commit from which on all are there, and sound; raises where one was lost."""
        newest, _ = self.newest
        first = first_retained(self.path, self.segments, self.snapshots, newest)
        for seq in range(first, newest + 1):
            sound(self.segments[seq])
        return first

    def entry(self, seq: int) -> Entry:
        return sound(self.segments[seq])

    @property
    def seen(self) -> tuple[object, ...]:
        """What a second look is compared by."""
        snapshots = tuple(sorted(self.snapshots)), tuple(sorted(self.sound))
        return tuple(sorted(self.segments)), snapshots, self.head, self.origin


def segment_path(path: Path, seq: int) -> Path:
    return path / LOG / f"{seq:012d}.seg"


def snapshot_path(path: Path, seq: int) -> Path:
    return path / SNAPSHOTS / snapshot_name(seq)


def scan(disk: Disk, path: Path) -> Scan:
    # In this order, what a writer adds meanwhile only makes the log longer than the rest knows of, and an identity that
    # a directory has only just been given is known before the commits that carry it.
    head = read_head(disk, path)
    snapshots = numbers(disk, path / SNAPSHOTS)
    segments = numbers(disk, path / LOG, ".seg")
    found = Scan(path, origin_of(disk, path), head, {}, {})
    for seq in snapshots:
        try:
            found.snapshots[seq] = _manifest(disk, path, seq, found.origin)
        except StateError as error:
            found.snapshots[seq] = keep(error)
    for seq in segments:
        try:
            found.segments[seq] = entry_of(disk, path, seq, found.origin)
        except StateError as error:
            if not isinstance(error.__cause__, FileNotFoundError):  # Else it was pruned since it was listed.
                found.segments[seq] = keep(error)
    _check_chain(found)
    return found


def newest_at_first_look(disk: Disk, path: Path) -> tuple[int, Entry] | None:
    """The newest commit by two listings and three small reads, for who asks often; None where anything seems to be
    wrong, which only a scan can tell."""
    try:
        head = read_head(disk, path)
        known = max(head.seq, *numbers(disk, path / SNAPSHOTS), 0)
        newest = max(numbers(disk, path / LOG, ".seg"), default=0)
        entry = entry_of(disk, path, newest, origin_of(disk, path)) if newest else NOTHING
    except StateError:
        return None
    right = known <= newest and (head.seq < newest or head.hash in (None, entry.hash))
    return (newest, entry) if right else None


def _check_chain(found: Scan) -> None:
    """Puts an error in the place of what does not belong."""
    entries = {seq: entry for seq, entry in found.segments.items() if isinstance(entry, Entry)}
    broken: dict[int, StateError] = {}
    for seq, entry in entries.items():
        before = entries[seq - 1].hash if seq - 1 in entries else None
        wrong = wrong_place(segment_path(found.path, seq), seq, entry, before, found.origin)
        if wrong is not None:
            broken[seq] = wrong
    foreign = {seq for seq in entries if _is_foreign(found, entries, broken, seq)}
    for seq in foreign:
        found.segments[seq] = damaged(segment_path(found.path, seq), f"it is another copy of commit {seq}")
    for seq in broken.keys() - foreign:
        if seq - 1 not in foreign:
            found.segments[seq] = broken[seq]
            if not _is_vouched(found, entries, seq - 1):
                found.segments[seq - 1] = wrong_successor(segment_path(found.path, seq - 1), seq - 1)
    acknowledged = entries.get(found.head.seq)
    if acknowledged is not None and found.head.hash not in (None, acknowledged.hash):
        file = segment_path(found.path, found.head.seq)
        found.segments[found.head.seq] = damaged(file, "it is not the commit that was acknowledged under this number")
    for seq, manifest in found.sound.items():
        own = None if seq in foreign else entries.get(seq)
        wrong = wrong_base(snapshot_path(found.path, seq), manifest, own, entries.get(seq + 1))
        if wrong is not None:
            found.snapshots[seq] = wrong


def _is_foreign(found: Scan, entries: dict[int, Entry], broken: dict[int, StateError], seq: int) -> bool:
    """Whether a segment is the one that does not belong, and not those which deny it: it follows nothing and nothing
    follows it, or two that know its hash (the next segment, its snapshot, head) agree on another one."""
    if seq in broken and seq + 1 in broken:
        return True
    told = [entries[seq + 1].previous] if seq + 1 in entries else []
    told += [found.sound[seq].stands_on] if seq in found.sound else []
    told += [found.head.hash] if found.head.seq == seq else []
    others = {hash for hash in told if hash is not None}
    return len(others) == 1 and entries[seq].hash not in others and sum(hash is not None for hash in told) > 1


def _is_vouched(found: Scan, entries: dict[int, Entry], seq: int) -> bool:
    """Whether a segment that the next one denies is known to be right: its snapshot stands on it, or the next one is
    not what head knows under its number."""
    base = found.sound.get(seq)
    next_denied = found.head.seq == seq + 1 and found.head.hash not in (None, entries[seq + 1].hash)
    return next_denied or (base is not None and base.stands_on == entries[seq].hash)


def head_bytes(seq: int, hash: str) -> bytes:
    """As one line: the number, the hash, and a crc32 of both."""
    text = b"%012d %s" % (seq, hash.encode() or b"-")
    return b"%s %08x\n" % (text, zlib.crc32(text))


def read_head(disk: Disk, path: Path) -> Head:
    try:
        data = disk.read(path / HEAD)
    except FileNotFoundError:
        return Head()
    found = re.fullmatch(rb"(\d{12})(?: ([0-9a-f]{32}|-))? [0-9a-f]{8}\n", data)
    if found is None or data[-9:-1] != b"%08x" % zlib.crc32(data[:-10]):
        return Head()
    return Head(int(found[1]), None if found[2] in (None, b"-") else found[2].decode())


def origin_of(disk: Disk, path: Path) -> Origin:
    try:
        return read_origin(disk, path)
    except FileNotFoundError as error:
        raise StateError(f"{path} is not a state directory: it has no penstock.json; name one that has") from error


def numbers(disk: Disk, folder: Path, suffix: str = "") -> list[int]:
    names = names_in(disk, folder)
    return sorted(int(name[:12]) for name in names if re.fullmatch(r"\d{12}" + re.escape(suffix), name))


def names_in(disk: Disk, folder: Path) -> list[str]:
    try:
        return disk.listdir(folder)
    except FileNotFoundError as error:
        raise StateError(f"{folder} is missing; restore it from a backup") from error


def first_retained(path: Path, segments: Collection[int], snapshots: Collection[int], newest: int) -> int:
    """The oldest commit from which on none is missing, by the numbers that are there; raises where one was lost."""
    first = min(snapshots, default=0) + 1
    missing = next((seq for seq in range(first, newest + 1) if seq not in segments), None)
    if missing is not None:
        raise lost(path, missing)
    while first - 1 in segments:
        first -= 1
    return first


def entry_of(disk: Disk, path: Path, seq: int, origin: Origin) -> Entry:
    file = segment_path(path, seq)
    return check_entry(file, seq, read_contents(disk, file), origin)


def check_entry(file: Path, seq: int, contents: Contents, origin: Origin) -> Entry:
    """What a segment says of itself, if it is that commit of this directory."""
    header = contents.header
    if header.get("seq") != seq:
        raise damaged(file, f"it holds commit {header.get('seq')}")
    wrong = wrong_owner(file, seq, header.get("directory"), origin)
    if wrong is not None:
        raise wrong
    return Entry(
        header["kind"],
        header["version"],
        header["id"],
        header["last_id"],
        contents.size,
        contents.hash,
        header.get("previous"),
        header.get("directory"),
        header.get("schema"),
    )


def _manifest(disk: Disk, path: Path, seq: int, origin: Origin) -> Manifest:
    folder = snapshot_path(path, seq)
    manifest = read_manifest(disk, folder)
    wrong = wrong_owner(folder, seq, manifest.directory, origin)
    if wrong is not None:
        raise wrong
    return manifest


def lost(path: Path, seq: int) -> StateError:
    return StateError(f"{segment_path(path, seq)} is missing: it was committed; restore it from a backup")


def keep(error: StateError) -> StateError:
    """An error to be looked at later: without the frames that it came through, which hold whatever they had open."""
    link: BaseException | None = error
    while link is not None:
        link.__traceback__ = None
        link = link.__cause__
    return error


def unreadable(error: StateError) -> bool:
    """Whether a file is not damaged, as far as anyone knows: the disk did not let us see."""
    return isinstance(error.__cause__, OSError) and not isinstance(error.__cause__, FileNotFoundError)


def sound(entry: Entry | StateError) -> Entry:
    if isinstance(entry, StateError):
        raise entry
    return entry
