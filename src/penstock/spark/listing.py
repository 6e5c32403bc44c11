"""Which file of a direct source has which number: sources/EVENT.list in the state directory.

Spark's offsets count files; this list says which they are. So a name that is lost, doubled or changed makes events
run twice or not at all: it is kept with checksums (commit/lines.py), and a name that is there twice is damage too.

Older versions kept sources/EVENT.jsonl, names without checksums. It is read as long as there is no list, and taken
over as a whole by the first who adds to it; where a crash left both, the list counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from penstock.commit.disk import Disk
from penstock.commit.identity import directory_of
from penstock.commit.lines import RESTORE, ChainedLines
from penstock.errors import StateError

SOURCES = "sources"
KIND = "files of a source"
SUFFIX, OLD_SUFFIX = ".list", ".jsonl"


class FileList:
    def __init__(self, path: Path, event: str, directory: str | None, disk: Disk | None = None) -> None:
        self.path, self._disk = path, disk or Disk()
        self._old = path.with_suffix(OLD_SUFFIX)
        header = {"kind": KIND, "event": event, "directory": directory}
        self._lines = ChainedLines(self._disk, path, header)
        self._names: list[str] = []
        self._seen: set[str] = set()

    def names(self) -> list[str]:
        """All names, in the order of their numbers; not to be changed by the caller."""
        names = self._lines.read()
        if not names and not self._lines.header and self._disk.exists(self._old):
            return self._old_names()
        if names is not self._names:
            self._names, self._seen = names, set()
        for place in range(len(self._seen), len(names)):
            _check(self.path, place + 2, names[place], self._seen)
        return names

    def add(self, names: Sequence[str]) -> None:
        """More names; durable on return, as are those before. The worker of a job that was killed may live for a
        moment, and find the same files: what it has added by now is not added again."""
        if self._disk.exists(self._old):
            self._take_over()
        fresh, known = list(names), self.names()
        while not self._lines.append(fresh, after=len(known)):
            known = self.names()
            fresh = [name for name in names if name not in self._seen]

    def _take_over(self) -> None:
        folder = self.path.parent
        if self._disk.exists(self.path):
            self._disk.fsync_dir(folder)  # Whoever took over died before the old one was gone.
        else:
            self._lines.create(self._old_names())
        self._disk.unlink(self._old)
        self._disk.fsync_dir(folder)

    def _old_names(self) -> list[str]:
        # A line without its end was being written when the process died; no offset speaks of it.
        lines = [line for line in self._disk.read(self._old).splitlines(keepends=True) if line.endswith(b"\n")]
        names: list[str] = []
        seen: set[str] = set()
        for number, line in enumerate(lines, 1):
            try:
                name = json.loads(line)
            except ValueError:
                name = None
            _check(self._old, number, name, seen)
            names.append(name)
        return names


def _check(path: Path, number: int, name: object, seen: set[str]) -> None:
    if not isinstance(name, str):
        raise StateError(f"{path} is damaged in line {number}: it is no name of a file; {RESTORE}")
    if name in seen:
        raise StateError(f"{path} is damaged in line {number}: it names {name!r} once more; {RESTORE}")
    seen.add(name)


def list_path(state: Path, event: str) -> Path:
    return state / SOURCES / f"{event}{SUFFIX}"


def file_list(path: Path, event: str) -> FileList:
    """The list at a path; this process keeps what it has verified of it. The state directory may have come, or become
    another, since the last look."""
    return _opened(path, event, directory_of(Disk(), path.parent.parent))


@lru_cache(maxsize=64)
def _opened(path: Path, event: str, directory: str | None) -> FileList:
    return FileList(path, event, directory)


def check_lists(state: Path) -> Iterator[str]:
    """What is wrong with the lists of a state directory, one sentence each."""
    folder = state / SOURCES
    for path in sorted({p.with_suffix(SUFFIX) for s in (SUFFIX, OLD_SUFFIX) for p in folder.glob(f"*{s}")}):
        try:
            FileList(path, path.stem, directory_of(Disk(), state)).names()
        except StateError as error:
            yield str(error)
