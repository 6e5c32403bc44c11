"""_outcomes.list: what was written to a directory of outcomes, so that what is there can be told from what should be.

    ["…",{"kind":"outcomes","format":1,"directory":"9f3c…","since":0}]
    ["…",{"version":7,"file":"version-000000000007.parquet","size":763007,"crc":2774921813}]

A file has its line before it has its name. So a file without a line is not ours, or older than the list; a line
without its file is what a crash leaves of the newest version, and the next start writes that one. A version that had
to be written anew may have two lines, of which the last counts. Readers pass over names that begin with an underscore.

since: the version with which the list began in a directory that older versions of Penstock, which kept no list, had
written to; 0 where there was nothing before.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.commit.disk import PRIVATE, Disk
from penstock.commit.lines import ChainedLines
from penstock.errors import StateError

MANIFEST = "_outcomes.list"
_NAME = re.compile(r"version-(\d{12,})\.parquet")
_REMEDY = (
    "restore it from a backup, or remove it: the next start begins a new one, which does not vouch for what is there"
)


def file_name(version: int) -> str:
    return f"version-{version:012d}.parquet"


def version_in(name: str) -> int | None:
    """The version whose outcomes a file of that name holds; None for other files."""
    found = _NAME.fullmatch(name)
    return int(found[1]) if found else None


@dataclass(frozen=True, slots=True)
class Entry:
    """A file as it was written."""

    version: int
    file: str
    size: int
    crc: int

    @classmethod
    def of(cls, version: int, data: Any) -> Entry:
        return cls(version, file_name(version), len(data), zlib.crc32(data))


class Manifest:
    """directory: the identity of the state directory whose outcomes these are."""

    def __init__(
        self, disk: Disk, folder: Path, directory: str | None, *, since: int | None = None, mode: int = PRIVATE
    ) -> None:
        header = {"kind": "outcomes", "directory": directory, "since": since}
        self._lines = ChainedLines(disk, folder / MANIFEST, header, mode=mode, remedy=_REMEDY)
        self._seen: list[Any] = []
        self._taken = 0  # of these
        self._entries: dict[int, Entry] = {}

    def entries(self) -> dict[int, Entry]:
        """By version; not to be changed by the caller."""
        lines = self._lines.read()
        if lines is not self._seen:
            self._seen, self._taken, self._entries = lines, 0, {}
        for line in lines[self._taken :]:
            self._entries[line["version"]] = Entry(**line)
        self._taken = len(lines)
        return self._entries

    def add(self, entry: Entry) -> None:
        """Durable on return."""
        self._lines.append([asdict(entry)])

    @property
    def since(self) -> int | None:
        """None where there is no list."""
        self._lines.read()
        return self._lines.header.get("since")


def check_outcomes(path: Path, directory: str | None = None, disk: Disk | None = None) -> Iterator[str]:
    """What is wrong in a directory of outcomes, one sentence each; nothing, if each file is as it was written and there
    are no others. directory: the identity of the state directory that they should be of."""
    disk = disk or Disk()
    try:
        manifest = Manifest(disk, path, directory)
        entries, since = manifest.entries(), manifest.since
        names = [name for name in disk.listdir(path) if name.endswith(".parquet") and name[0] not in "._"]
    except FileNotFoundError:
        yield f"there is no directory {path}"
        return
    except StateError as error:
        yield str(error)
        return
    if since is None and names:
        yield f"{path} has no {MANIFEST}, so that its files cannot be checked; the next start of the query begins one"
    for version, entry in sorted(entries.items()):
        if entry.file not in names:
            yield f"{path / entry.file} is missing; {_again(version, max(entries))}"
        elif Entry.of(version, disk.read(path / entry.file)) != entry:
            yield f"{path / entry.file} is damaged: it is not what was written; {_again(version, max(entries))}"
    for name in names:
        number = version_in(name)
        if number is not None and number in entries:
            continue
        if number is not None and (since is None or number < since):
            if not is_readable(disk.read(path / name)):
                yield f"{path / name} is damaged: it cannot be read; restore it from a backup"
        else:
            yield f"{path / name} is none of the files written here; remove it, or readers take its rows for outcomes"


def is_readable(data: Any) -> bool:
    """Whether it is Parquet, all of it, and its page checksums, where it has them, hold."""
    try:
        pq.read_table(pa.BufferReader(data), page_checksum_verification=True)
    except (pa.ArrowException, OSError):
        return False
    return True


def _again(version: int, newest: int) -> str:
    if version == newest:
        return "the next start of the query writes it"
    return f"restore it from a backup; outcomes({version}) of the database has its rows while the version is retained"
