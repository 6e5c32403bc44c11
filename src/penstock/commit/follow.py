"""The commits of a directory one after the other, as they come, beside whoever writes it.

    log          41   42   43   44                  the writer links 44.seg
    follower          │ has given 43: looks whether 44.seg is there

Each commit is given once, in order, after its checksums, its directory and the hash of the commit before it were looked
at. One that has been pruned before its turn is a NotRetainedError: whoever follows begins again with a newer snapshot,
or has to say that something is missing. One that was damaged or lost is a StateError that names its file.

A commit is there with its name. Its writer may be told of that a moment later, and may die in between: the next writer
finds it and goes on behind it.
"""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

from penstock.commit.chain import wrong_place
from penstock.commit.disk import Disk
from penstock.commit.identity import LOG
from penstock.commit.log import Segment, SegmentFile
from penstock.commit.recover import look
from penstock.commit.scan import check_entry, numbers, origin_of, read_head, segment_path
from penstock.errors import NotRetainedError, StateError

# Of so many looks that find nothing one is at all commits, whether the next is there no more.
LOOKS_A_HEAD = 32


class LogFollower:
    def __init__(self, disk: Disk, path: Path, seq: int, hash: str | None, skip: Container[str] = ()) -> None:
        """seq, hash: the last commit that is known already; skip: parts of segments that need not be read."""
        self.seq, self.hash = seq, hash
        self._disk, self._path, self._skip = disk, path, skip
        self._origin = origin_of(disk, path)
        self._next = segment_path(path, seq + 1)
        self._looks = 0

    def has_next(self) -> bool:
        """Whether there is a next commit."""
        if self._disk.exists(self._next):
            return True
        self._looks += 1
        if self._looks % LOOKS_A_HEAD == 0:
            self._refuse_pruned()
        return False

    def next(self) -> Segment | None:
        """The next commit; None as long as there is none."""
        if not self.has_next():
            return None
        try:
            file = SegmentFile(self._disk, self._next)
        except StateError as error:
            if isinstance(error.__cause__, FileNotFoundError):  # since the look
                self._refuse_pruned()
                return None
            raise
        with file:
            self._check(file)
            segment = file.read(skip=self._skip)
        self.seq, self.hash, self._looks = self.seq + 1, file.contents.hash, 0
        self._next = segment_path(self._path, self.seq + 1)
        return segment

    def _check(self, file: SegmentFile) -> None:
        if self._origin.directory is None:  # A writer may have given it a name since.
            self._origin = origin_of(self._disk, self._path)
        seq = self.seq + 1
        entry = check_entry(file.path, seq, file.contents, self._origin)
        wrong = wrong_place(file.path, seq, entry, self.hash, self._origin)
        if wrong is not None:
            raise wrong

    def _refuse_pruned(self) -> None:
        """Raises if the next commit has been there, and is not any more."""
        origin = origin_of(self._disk, self._path)
        if None is not self._origin.directory != origin.directory:
            raise StateError(
                f"{self._path} is another state directory now ({origin.directory}) than when it was opened "
                f"({self._origin.directory}); open it again"
            )
        newest = max(read_head(self._disk, self._path).seq, *numbers(self._disk, self._path / LOG, ".seg"), 0)
        if newest <= self.seq or self._disk.exists(self._next):
            return
        first = look(self._disk, self._path, lambda found: found.first)  # Raises if it is lost.
        if first > self.seq + 1:
            raise NotRetainedError(
                f"commit {self.seq + 1} of state directory {self._path} is not retained any more; open the database "
                "with a larger retain, so that readers can keep up"
            )
