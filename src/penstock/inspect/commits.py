"""The retained commits of a directory, as their headers tell them; each is read once.

A version is made by one batch; loads between them make none. Versions never fall, so the way back from the newest
commit meets each version once.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.commit import Disk, Segment
from penstock.commit.log import SegmentFile
from penstock.commit.recover import read_commit
from penstock.commit.scan import check_entry, origin_of, segment_path
from penstock.errors import NotRetainedError, StateError
from penstock.replica.directory import Directory

# Headers that are kept: a few MB, and more than a writer retains unless it is told to.
_KEPT_MAX = 4096


@dataclass(frozen=True, slots=True)
class Commit:
    seq: int
    header: dict[str, Any]
    parts: frozenset[str]  # by name
    bytes: int
    hash: str
    committed_at: dt.datetime  # by the writer's wall clock

    @property
    def version(self) -> int:
        found: int = self.header["version"]
        return found

    @property
    def is_batch(self) -> bool:
        return self.header["kind"] == "batch"


class Commits:
    """Any thread may ask."""

    def __init__(self, path: Path, disk: Disk | None = None) -> None:
        self.path, self._disk = path.absolute(), disk or Disk()
        self.directory = Directory(self.path, self._disk)
        self._origin = origin_of(self._disk, self.path)
        self._kept: dict[int, Commit] = {}
        self._mutex = threading.Lock()

    def back(self, upto: int | None = None) -> Iterator[Commit]:
        """From the newest commit, or the last one of a version, to the oldest that is retained."""
        newest = self.directory.newest()
        for seq in range(self._last_of(upto, newest.commit), 0, -1):
            found = self._commit(seq)
            if found is None:
                return
            if upto is None or found.version <= upto:
                yield found

    def batches(self, upto: int | None = None) -> Iterator[Commit]:
        """The same, without loads."""
        return (commit for commit in self.back(upto) if commit.is_batch)

    def of_version(self, version: int) -> Commit:
        """The batch that made a version."""
        newest = self.directory.version
        if not 1 <= version <= newest:
            raise StateError(f"state directory {self.path} has no batch of version {version}: its newest is {newest}")
        for commit in self.batches(version):
            if commit.version == version:
                return commit
            break
        raise NotRetainedError(
            f"version {version} of state directory {self.path} is not retained any more; open the database with a "
            "larger retain, to keep more of what happened"
        )

    def read(self, commit: Commit, only: Collection[str]) -> Segment:
        """Some of its parts."""
        try:
            return read_commit(self._disk, self.path, commit.seq, only)
        except StateError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise NotRetainedError(
                    f"version {commit.version} of state directory {self.path} was pruned just now; ask for a newer one"
                ) from error
            raise

    def _last_of(self, version: int | None, newest: int) -> int:
        """A commit at or behind the last one of a version, by what is known of commits, which have no gaps."""
        if version is None:
            return newest
        with self._mutex:
            return min((seq for seq, one in self._kept.items() if one.version > version), default=newest)

    def _commit(self, seq: int) -> Commit | None:
        """None where it is not retained any more."""
        with self._mutex:
            found = self._kept.get(seq)
        if found is None:
            file = segment_path(self.path, seq)
            try:
                with SegmentFile(self._disk, file) as opened:
                    contents = opened.contents
                check_entry(file, seq, contents, self._origin)
                at = dt.datetime.fromtimestamp(self._disk.stat(file).st_ctime, dt.UTC)
            except FileNotFoundError:
                return None
            except StateError as error:
                if isinstance(error.__cause__, FileNotFoundError):
                    return None
                raise
            found = Commit(seq, contents.header, frozenset(contents.parts), contents.size, contents.hash, at)
            with self._mutex:
                self._kept[seq] = found
                if len(self._kept) > _KEPT_MAX:
                    del self._kept[min(self._kept)]
        return found
