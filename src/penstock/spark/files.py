"""A directory of Parquet files as a direct source (direct_source.py).

`ps.parquet("in/")` becomes a small streaming source that yields file names. An offset is a number of
files; which file has which number is kept in a list of its own in the state directory (listing.py), so that a
restart sees the same files under the same numbers, whatever has come since.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from penstock.declare.model import EventDef
from penstock.errors import InputError, StateError
from penstock.execute.source_files import read, read_named
from penstock.spark.checkpoint import noted_offset
from penstock.spark.compatibility import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
    need_admission,
)
from penstock.spark.direct_source import PIECES, DirectInput, Rows, need_own
from penstock.spark.formats import pieces_of_stream
from penstock.spark.listing import FileList, file_list, list_path

FORMAT = "penstock_files"


@dataclass(frozen=True, slots=True)
class Files(DirectInput):
    """A directory of Parquet files, as a source of events."""

    path: str
    files_per_batch: int | None = None

    way: ClassVar[str] = "ps.parquet"
    noted_as: ClassVar[str] = "files"
    can_be_log: ClassVar[bool] = True

    def of(self, event: str, state: str) -> SourceFiles:
        return listed(self, event, state)


def parquet(path: str | os.PathLike[str], files_per_batch: int | None = None) -> Files:
    """Events from a directory of Parquet files that the engine reads itself: no row crosses the JVM.

    Files are taken as they appear, oldest first; put them there whole (write elsewhere, then rename).
    """
    if files_per_batch is not None and files_per_batch < 1:
        raise InputError(f"ps.parquet({str(path)!r}): files_per_batch must be 1 or more, not {files_per_batch}")
    return Files(str(Path(path).absolute()), files_per_batch)


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """A directory where its files are read: which file has which number. Its pieces are paths."""

    event: str
    path: str
    known: str  # the list
    files_per_batch: int | None

    def stream(self, spark: Any) -> DataFrame:
        if not Path(self.path).is_dir():
            raise InputError(f"event '{self.event}': there is no directory {self.path}; make it, or name another")
        options = {"path": self.path, "list": self.known, "event": self.event}
        if self.files_per_batch is not None:
            limit, instead = self.files_per_batch, "leave it out: a batch then takes all files that are there"
            need_admission(f"event '{self.event}'", f"files_per_batch={limit}", instead)
            options["files_per_batch"] = str(limit)
        return pieces_of_stream(spark, FileNames, options)

    def offset(self, noted: dict[str, Any] | None) -> int:
        return 0 if noted is None else int(noted["files"])

    def pieces(self, start: int, end: int) -> tuple[str, ...] | None:
        known = self.names()
        return self.paths(known[start:end]) if len(known) >= end else None

    def following(self, end: int, *, all_listed: bool) -> int | None:
        share, known = self.files_per_batch, len(self.names())
        if share is None or (known < end + share and not all_listed):
            return None
        return min(end + share, known)

    def read(self, event: EventDef, pieces: Sequence[str], *, named: bool, threads: bool) -> Rows:
        return (read_named if named else read)(event, pieces, threads=threads)

    def close(self) -> None:
        pass  # No file stays open.

    def names(self) -> list[str]:
        return file_list(Path(self.known), self.event).names()

    def paths(self, names: list[str]) -> tuple[str, ...]:
        return tuple(str(Path(self.path) / name) for name in names)


def listed(files: Files, event: str, state: str) -> SourceFiles:
    return SourceFiles(event, files.path, str(list_path(Path(state), event)), files.files_per_batch)


class FileNames(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return PIECES

    def streamReader(self, schema: Any) -> _Reader:
        limit = self.options.get("files_per_batch")
        where = Path(self.options["path"]), Path(self.options["list"])
        return _Reader(self.options["event"], *where, int(limit) if limit else None)


@dataclass
class _Names(InputPartition):
    start: int
    names: list[str]


class _Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, event: str, path: Path, known: Path, limit: int | None) -> None:
        self._event, self._path, self._known, self._limit = event, path, known, limit
        self._available: int | None = None  # with availableNow: what was there when the query started

    def initialOffset(self) -> dict[str, Any]:
        return self._offset(0)

    def _offset(self, files: int) -> dict[str, Any]:
        return {"event": self._event, "files": files}  # The name is for direct_source.py, which reads Spark's notes.

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable() if self._limit is None else ReadMaxFiles(self._limit)

    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        if start is None:  # An older Spark does not say it, but has noted it.
            start = noted_offset(str(self._known.parent.parent), self._event) or self.initialOffset()
        self._refuse_other(start)
        self._require(start["files"])
        count = len(self._look())
        if self._available is not None:
            count = min(count, self._available)
        if isinstance(limit, ReadMaxFiles):
            count = min(count, start["files"] + limit.max_files)
        return self._offset(max(count, start["files"]))

    def prepareForTriggerAvailableNow(self) -> None:
        # Only counted: before the first offset it is not known whether the list is whole.
        known = self._list().names()
        self._available = len(known) + len(self._new(known))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._refuse_other(start)
        self._refuse_other(end)
        # An older Spark shows the start only here: a list that is shorter than that has lost names.
        names = self._require(max(start["files"], end["files"]))[start["files"] : end["files"]]
        return [_Names(start["files"], [str(self._path / name) for name in names])] if names else []

    def read(self, partition: InputPartition) -> Iterator[tuple[int, str]]:
        assert isinstance(partition, _Names)
        for i, name in enumerate(partition.names):
            yield partition.start + i, name

    def _refuse_other(self, offset: dict[str, Any]) -> None:
        need_own(Files, self._event, {"event": self._event, **offset})  # an older Penstock noted no event

    def _require(self, count: int) -> list[str]:
        """The first `count` files: offsets speak of them."""
        known = self._list().names()
        if len(known) < count:
            raise StateError(
                f"{self._known} has {len(known)} files, but of {self._path} {count} have been read: it names those "
                "that were, in their order; restore it from a backup"
            )
        return known[:count]

    def _look(self) -> list[str]:
        """All files so far; new ones are added to the list, durably, before any offset counts them."""
        known = self._list().names()
        names = self._new(known)
        self._list().add(names)
        return self._list().names()

    def _list(self) -> FileList:
        return file_list(self._known, self._event)

    def _new(self, known: list[str]) -> list[str]:
        """Files that are not on the list yet, oldest first."""
        seen, found = set(known), []
        for entry in os.scandir(self._path):
            if entry.name.endswith(".parquet") and entry.name[0] not in "._" and entry.name not in seen:
                found.append((entry.stat().st_mtime_ns, entry.name))
        return [name for _, name in sorted(found)]
