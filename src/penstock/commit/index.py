"""What a journal keeps in memory of its files: a few numbers for each segment and snapshot.

A writer fills it from a scan and then follows its own commits; a reader takes a new one from each
scan. Commits extend it while a snapshot's pruning, in another thread, cuts it: one mutex for both.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.commit.disk import Mutex
from penstock.commit.retain import oldest_kept
from penstock.commit.scan import Entry, Scan
from penstock.commit.snapshot import Manifest
from penstock.errors import StateError

# Reading back this much log takes well under a second, so small states need no more snapshots than that.
LOG_BYTES_MIN = 64 << 20
# A snapshot rewrites the whole state: below this ratio, snapshots would cost more than the log itself.
LOG_TO_SNAPSHOT = 4


class Found(NamedTuple):
    """A batch: its commit, and the version that it made."""

    commit: int
    version: int


class Index:
    def __init__(self, found: Scan, mutex: Mutex) -> None:
        self._mutex = mutex
        self.kept_from: int | None = None  # a batch id: neither the first such batch nor what came after it is pruned
        self.seq, newest = found.newest
        self.version, self.last_id, self.hash = newest.version, newest.last_id, newest.hash
        self.damaged = {seq: entry for seq, entry in found.segments.items() if isinstance(entry, StateError)}
        self._entries = {seq: entry for seq, entry in sorted(found.segments.items()) if isinstance(entry, Entry)}
        self._ids = {entry.id: seq for seq, entry in self._entries.items() if entry.id is not None}
        self._snapshots = found.sound
        self._count()

    def add(self, seq: int, entry: Entry) -> None:
        with self._mutex:
            self._entries[seq] = entry
            if entry.id is not None:
                self._ids[entry.id] = seq
            self.seq, self.version, self.last_id, self.hash = seq, entry.version, entry.last_id, entry.hash
            self._log_bytes += entry.size

    def find(self, id: int) -> Found | None:
        with self._mutex:
            seq = self._ids.get(id)
            return None if seq is None else Found(seq, self._entries[seq].version)

    def find_version(self, version: int) -> Found | None:
        """The batch that made a version, not a load after it, which has the same version."""
        with self._mutex:
            batches = (
                seq for seq, entry in self._entries.items() if entry.version == version and entry.kind == "batch"
            )
            seq = min(batches, default=None)
            return None if seq is None else Found(seq, version)

    def mend(self, found: Scan) -> None:
        """A second look at what was damaged: what could only not be read then is as good as the rest."""
        with self._mutex:
            again = {seq: found.segments[seq] for seq in self.damaged if seq in found.segments}
            sound = {seq: entry for seq, entry in again.items() if isinstance(entry, Entry)}
            self.damaged = {seq: entry for seq, entry in again.items() if isinstance(entry, StateError)}
            self._entries = dict(sorted({**self._entries, **sound}.items()))
            self._ids |= {entry.id: seq for seq, entry in sound.items() if entry.id is not None}

    @property
    def oldest_id(self) -> int | None:
        with self._mutex:
            return min(self._ids, default=None)

    @property
    def oldest_version(self) -> int:
        with self._mutex:
            return min((e.version for e in self._entries.values() if e.kind == "batch"), default=self.version + 1)

    def has_snapshot(self) -> bool:
        """Of the newest commit, that is."""
        return self.seq == 0 or self.seq in self._snapshots

    def begin_snapshot(self) -> None:
        """From now on counts what is logged after the snapshot that is being made."""
        with self._mutex:
            self._base_version, self._log_bytes = self.version, 0

    def end_snapshot(self, manifest: Manifest, retain: int) -> int:
        """Adds it and forgets what is to be pruned: the snapshots before the one returned, the segments up to it."""
        with self._mutex:
            self._snapshots[manifest.seq] = manifest
            self._snapshot_bytes = manifest.size
            if self.kept_from is not None:
                asked = [e.version for e in self._entries.values() if e.id is not None and e.id >= self.kept_from]
                retain = max(retain, manifest.version - min(asked, default=manifest.version) + 1)
            versions = {seq: other.version for seq, other in self._snapshots.items()}
            keep = oldest_kept(versions, manifest.version, retain)
            self._entries = {seq: entry for seq, entry in self._entries.items() if seq > keep}
            self._ids = {id: seq for id, seq in self._ids.items() if seq > keep}
            self._snapshots = {seq: other for seq, other in self._snapshots.items() if seq >= keep}
            return keep

    def drop_snapshots(self, damaged: dict[int, StateError]) -> None:
        """Damaged snapshots protect nothing: pruning must not count on them."""
        with self._mutex:
            if self._snapshots.keys() & damaged.keys():
                self._snapshots = {seq: held for seq, held in self._snapshots.items() if seq not in damaged}
                self._count()

    @property
    def batches_since_snapshot(self) -> int:
        return self.version - self._base_version

    @property
    def much_logged(self) -> bool:
        return self._log_bytes > max(LOG_BYTES_MIN, LOG_TO_SNAPSHOT * self._snapshot_bytes)

    def _count(self) -> None:
        base = max(self._snapshots, default=0)
        manifest = self._snapshots.get(base)
        self._base_version = manifest.version if manifest else 0
        self._snapshot_bytes = manifest.size if manifest else 0
        self._log_bytes = sum(entry.size for seq, entry in self._entries.items() if seq > base)
