"""Whether the files of a directory belong together.

    penstock.json     directory 9f…                                   each directory has a random name of its own
                          │
    segment 1         directory 9f…, previous 9f…      hash a1…       each segment names the one before it by its hash
    segment 2         directory 9f…, previous a1…      hash b2…
    snapshot 2        directory 9f…, stands_on b2…                    a snapshot names the segment that it stands on
    segment 3         directory 9f…, previous b2…      hash c3…
    head              3 c3…                                           the newest segment, as far as the hint knows

So a file of another directory, and an older copy of the same number, is found out although its own checksums hold.

Commits before `chain` (identity.py) were written by a Penstock that did not chain them: they name nothing, and the
first one that is chained names the last of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from penstock.commit.identity import Origin
from penstock.commit.snapshot import Manifest
from penstock.errors import StateError


class Link(Protocol):
    """What a segment's header says of its place."""

    @property
    def directory(self) -> str | None: ...

    @property
    def previous(self) -> str | None: ...

    @property
    def hash(self) -> str: ...


def wrong_owner(file: Path, seq: int, directory: str | None, origin: Origin) -> StateError | None:
    """What is wrong with a segment or snapshot of another directory."""
    if directory == origin.directory or (directory is None and seq < origin.chain):
        return None
    if origin.directory is None:
        return StateError(
            f"{file} belongs to directory {directory}, but penstock.json names none: it is an older copy; restore "
            "penstock.json from a backup"
        )
    whose = "an older Penstock or another directory" if directory is None else f"directory {directory}"
    return StateError(
        f"{file} does not belong here: it was written by {whose}, and this is directory {origin.directory}; restore it "
        "from this directory's own backup"
    )


def wrong_place(file: Path, seq: int, link: Link, before: str | None, origin: Origin) -> StateError | None:
    """What is wrong with a segment that does not follow the one with the hash `before`; None: which that is, is not
    known."""
    before = origin.directory if seq == 1 else before
    if seq < origin.chain or origin.directory is None or before is None or link.previous == before:
        return None
    return StateError(
        f"{file} does not follow commit {seq - 1} of this directory ({seq - 1:012d}.seg): one of the two is of another "
        "copy of it; restore both from one backup"
    )


def wrong_successor(file: Path, seq: int) -> StateError:
    """What is wrong with a segment that the next one does not follow, where nothing else knows which of the two is
    right."""
    return StateError(
        f"{file} is not what commit {seq + 1} of this directory ({seq + 1:012d}.seg) follows: one of the two is of "
        "another copy of it; restore both from one backup"
    )


def wrong_base(folder: Path, manifest: Manifest, segment: Link | None, following: Link | None) -> StateError | None:
    """What is wrong with a snapshot that does not stand on the segment of its number; `following` is the one behind
    that."""
    known = segment.hash if segment else following.previous if following else None
    if manifest.stands_on is None or known is None or manifest.stands_on == known:
        return None
    return StateError(
        f"{folder} does not belong here: it does not stand on commit {manifest.seq} of this directory; restore it "
        "from a backup, or delete it where an older snapshot and the log behind it are there"
    )
