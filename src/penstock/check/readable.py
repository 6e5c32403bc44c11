"""Which versions of a damaged directory can be read, and what would be lost with each of its files.

    snapshots      42                    84
    segments       43 44 ... XX ... 84   85 86 87           XX: damaged or missing
    readable       42 to XX-1            84 to 87

A version is read from the newest sound snapshot that is not newer, and the segments behind it (recover.py). So a broken
segment costs the versions from it on, up to the next sound snapshot; and a broken snapshot those that no older one
leads to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from penstock.check.findings import Span
from penstock.commit.scan import Entry, Scan


class Readable:
    def __init__(self, seen: Scan, segments: Collection[int], snapshots: Collection[int]) -> None:
        """segments, snapshots: those whose bytes do not hold, although their header does."""
        self._seen, self._segments = seen, segments
        # Segments whose header holds: what version they are is known.
        self.entries = {seq: found for seq, found in sorted(seen.segments.items()) if isinstance(found, Entry)}
        self.bases = {seq: found for seq, found in sorted(seen.sound.items()) if seq not in snapshots}
        # The newest commit that is known to have been one, and the newest version.
        self.known = max(seen.head.seq, *self.entries, *seen.sound, 0)
        manifests = seen.sound.values()
        self.newest = max([0, *(e.version for e in self.entries.values()), *(m.version for m in manifests)])

    @property
    def blocked(self) -> bool:
        """Whether the newest commit cannot even be looked at: then no version can be read."""
        newest = max(self._seen.segments, default=0)
        return newest < self.known or (newest > 0 and newest not in self.entries)

    def spans(self) -> tuple[Span, ...]:
        """The versions that can be read, as they are."""
        return () if self.blocked else self.left()

    def left(self) -> tuple[Span, ...]:
        """The versions whose files are all there; with `blocked` they can be read once the newest commits are gone."""
        found: list[Span] = []
        for first, last in self._each_base():
            if first > last:
                continue
            if found and found[-1][1] == first - 1:
                first = found.pop()[0]
            found.append((first, last))
        return tuple(found)

    def _each_base(self) -> Iterator[Span]:
        bases = [(0, 0), *((seq, manifest.version) for seq, manifest in self.bases.items())]
        ends = [version - 1 for _, version in bases[1:]] + [self.newest]
        for (seq, version), end in zip(bases, ends, strict=True):
            yield version, min(self._reach(seq, version), end)

    def _reach(self, seq: int, version: int) -> int:
        """The newest version that the segments behind a base lead to."""
        end = max([0, *self.entries, *self.bases]) if self.blocked else self.known
        for after in range(seq + 1, end + 1):
            entry = self.entries.get(after)
            if entry is None:
                return version - 1  # It may be a load, which is of the version before it.
            if after in self._segments:
                return version if entry.version > version else version - 1
            version = entry.version
        return version

    def needs_segment(self, seq: int) -> Span | None:
        """The versions that cannot be read without a broken segment; None where there are none."""
        entry = self.entries.get(seq)
        before = [other.version for at, other in self.entries.items() if at < seq]
        before += [manifest.version for at, manifest in self.bases.items() if at < seq]
        first = entry.version if entry is not None else max(before, default=0)
        return self._until_base(first, seq)

    def needs_snapshot(self, seq: int) -> Span | None:
        """The versions that cannot be read without a broken snapshot: none, where older files lead there too."""
        if any(span[0] <= self._version_at(seq) <= span[1] for span in self.left()):
            return None
        return self._until_base(self._version_at(seq), seq)

    def base_before(self, seq: int) -> int:
        """The newest sound snapshot before a commit; 0 is the beginning."""
        return max((base for base in self.bases if base < seq), default=0)

    def _version_at(self, seq: int) -> int:
        manifest = self._seen.sound.get(seq)
        if manifest is not None:
            return manifest.version
        following = self.entries.get(seq + 1)
        if following is not None:
            return following.version - (following.kind == "batch")
        return max((entry.version for at, entry in self.entries.items() if at <= seq), default=self.newest)

    def _until_base(self, first: int, seq: int) -> Span | None:
        later = [manifest.version for at, manifest in self.bases.items() if at >= seq]
        last = min(later) - 1 if later else max(self.newest, first)
        return (first, last) if first <= last else None
