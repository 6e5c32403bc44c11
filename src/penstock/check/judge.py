"""What is wrong with the commits and snapshots of a state directory, and what can be done about it.

One look at all files together (scan.py) and what the bytes of each have shown (verify.py) tell what is broken. What
that costs is a question of versions (readable.py): a remedy says which need the file, and which can be read without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from penstock.check.findings import RESTORE, Finding, problem_of, versions
from penstock.check.readable import Readable
from penstock.check.verify import nobody, snapshot_files, verify
from penstock.commit.disk import Disk
from penstock.commit.identity import SNAPSHOTS
from penstock.commit.scan import HEAD, Scan, segment_path, snapshot_path
from penstock.commit.snapshot import MANIFEST, Manifest
from penstock.errors import StateError


class Judgement:
    """One look at a directory that can be looked at as a whole."""

    def __init__(self, disk: Disk, seen: Scan, bad: Mapping[str, StateError]) -> None:
        self._disk, self._seen, self._path = disk, seen, seen.path
        self._segments = {seq: found for seq, found in seen.segments.items() if isinstance(found, StateError)}
        bytes_of = {
            seq: bad[name] for seq in seen.segments if (name := self._name(segment_path(self._path, seq))) in bad
        }
        self._segments = bytes_of | self._segments
        self._tables = {seq: self._broken_files(seq, bad) for seq in seen.snapshots}
        self.readable = Readable(seen, bytes_of, [seq for seq, files in self._tables.items() if files])

    def problems(self) -> Iterator[Finding]:
        yield from (self._segment(seq, error) for seq, error in sorted(self._segments.items()))
        yield from self._missing()
        for seq, files in self._tables.items():
            yield from (self._snapshot(seq, name, problem) for name, problem in files.items())
        yield from self._lost_snapshots()

    # -- segments ---------------------------------------------------------------------------

    def _segment(self, seq: int, error: StateError) -> Finding:
        name, problem = self._name(segment_path(self._path, seq)), problem_of(error, segment_path(self._path, seq))
        if seq > self.readable.known + 1:
            return Finding(name, False, problem, "move it away: no commit of this directory has come so far")
        return self._lost(seq, name, problem)

    def _missing(self) -> Iterator[Finding]:
        """Segments that are not there and should be: those in a row as one."""
        gone = [seq for seq in range(self._begin, self.readable.known + 1) if seq not in self._seen.segments]
        for first in (seq for seq in gone if seq - 1 not in gone):
            last = next(seq for seq in range(first, self.readable.known + 2) if seq + 1 not in gone)
            name = self._name(segment_path(self._path, first))
            upto = "" if last == first else f", as are all up to {last:012d}.seg"
            if first == 1 and not self._seen.snapshots:
                remedy = f"restore what is missing, or a snapshot of commit {last} or a later one, from a backup"
                problem = f"is missing{upto}, and there is no snapshot in their place"
                yield Finding(name, False, problem, f"{remedy}: until then nothing can be read")
            else:
                yield self._lost(first, name, f"is missing{upto}")
        for seq in range(min(self._seen.segments, default=self._begin), self._begin):
            if seq not in self._seen.segments:
                yield Finding(
                    self._name(segment_path(self._path, seq)),
                    True,
                    "is missing, but older ones are there",
                    "a pruning that was cut short may leave that; otherwise restore it from a backup",
                )

    @property
    def _first(self) -> int:
        return min(self._seen.segments, default=self.readable.known + 1)

    @property
    def _begin(self) -> int:
        """The first segment that must be there: pruning removes those up to the oldest snapshot, but never with one
        snapshot alone."""
        numbered = sorted(self._seen.snapshots)
        if not numbered or (len(numbered) == 1 and self._first <= numbered[0]):
            return 1
        return numbered[0] + 1

    def _lost(self, seq: int, name: str, problem: str) -> Finding:
        lost = self.readable.needs_segment(seq)
        if seq < self._begin and not self._from_the_first(seq):
            upto = min(self._seen.snapshots)
            return Finding(name, True, problem, f"delete it: nothing needs it, as snapshot {upto} holds what it did")
        if lost is None:
            return Finding(name, False, problem, f"{RESTORE}: the outcomes of its batch cannot be read without it")
        words = f"{RESTORE}: {versions(lost)} cannot be read without it"
        left = self.readable.left()
        if self.readable.blocked and seq >= self._newest:
            words = f"{RESTORE}: until then nothing can be read"
            if left:
                words += (
                    f"; or give up what it held: move it, {HEAD} and the snapshots that stand on it away, which leaves "
                    f"{versions(left[-1])}, and a stream needs a checkpoint of that time"
                )
        elif left and left[-1][1] == self.readable.newest:
            words += f"; {versions(left[-1])} can"
        return Finding(name, False, problem, words)

    @property
    def _newest(self) -> int:
        return max(self._seen.segments, default=0)

    def _from_the_first(self, seq: int) -> bool:
        """Whether all other segments up to the first snapshot are there: then they were never pruned."""
        others = range(1, min(self._seen.snapshots, default=0) + 1)
        return all(other in self._seen.segments for other in others if other != seq)

    # -- snapshots --------------------------------------------------------------------------

    def _broken_files(self, seq: int, bad: Mapping[str, StateError]) -> dict[str, str]:
        """A snapshot's files that are damaged or missing, and how."""
        folder = snapshot_path(self._path, seq)
        if not self._disk.exists(folder):
            return {}  # Pruned since it was listed.
        names = [self._name(file) for file in snapshot_files(self._disk, folder)]
        broken = {name: problem_of(bad[name], self._path / name) for name in names if name in bad}
        found = self._seen.snapshots[seq]
        if broken or isinstance(found, Manifest):
            return broken
        for name in names:
            error = verify(self._disk, self._path, name, nobody)
            if error is not None:
                broken[name] = problem_of(error, self._path / name)
            elif not self._disk.exists(self._path / name):
                broken[name] = "is missing"
        return broken or {names[0]: problem_of(found, folder)}

    def _snapshot(self, seq: int, name: str, problem: str) -> Finding:
        if problem == "is missing" and name.endswith(MANIFEST) and self._seen.half_pruned(seq):
            return Finding(name, True, problem, "a pruning that was cut short left the rest; a later one removes it")
        lost = self.readable.needs_snapshot(seq)
        if lost is not None:
            return Finding(name, False, problem, f"{RESTORE}: {versions(lost)} cannot be read without it")
        base = self.readable.base_before(seq)
        instead = f"snapshot {base} and the log behind it" if base else "the log from its first commit on"
        folder = self._name(snapshot_path(self._path, seq))
        return Finding(name, False, problem, f"nothing is lost: {instead} hold the same; {RESTORE}, or delete {folder}")

    def _lost_snapshots(self) -> Iterator[Finding]:
        """The log tells that there were others: nothing is pruned before there are two, and those stay."""
        numbered, first = sorted(self._seen.snapshots), self._first
        if len(numbered) == 1 and first == numbered[0] + 1:
            remedy = "nothing is lost; the next one makes up for it"
            yield Finding(SNAPSHOTS, True, "holds one, where two are kept", remedy)

    def _name(self, file: Path) -> str:
        return str(file.relative_to(self._path))
