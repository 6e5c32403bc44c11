"""The reader: a state directory as DataFrames, without the app that writes it.

    spark.read.format("penstock")                             reads
      .option("table", "Account")                             the table, as of the newest version
      .option("table", "Account").option("version", 7)        ... as of an older one that is retained
      .option("feed", "changes").option("table", "Account")   what each version wrote, deleted, loaded
      .option("feed", "outcomes")                             what became of each event
    spark.readStream.format("penstock")                       follows a feed, each version once

`start` and `end` choose a feed's versions, both included; without a start it begins with the oldest one that is
retained. A stream takes `start`, and `versions_per_batch`, which limits its micro-batches.

- A DataFrame reads the version that was the newest when it was planned, whatever is committed meanwhile.
- A stream's offset is a Position: {"version": 7, "commit": 9}. A commit's file never changes, so that a batch which
  Spark runs again is the same batch. One that is pruned before it was read is an error, never a gap.
- One partition: a state is rebuilt whole, and a feed stays in order. All that a worker needs is the directory.
- Where spark.sql.python.filterPushdown.enabled is on as `register` is called, `key = …` and `key in (…)` are applied
  before the state is rebuilt. Spark refuses a reader that could, where it is off: so there are two sources.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.declare.kinds import COLUMNS
from penstock.declare.model import TableDef
from penstock.errors import InputError, StateError
from penstock.replica.directory import Directory, Position, conform
from penstock.spark.compatibility import (
    FILTERS,
    EqualTo,
    Filter,
    In,
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
    arrow_schema,
    need_admission,
)
from penstock.spark.workers import this_python

FORMAT = "penstock"
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
OPTIONS = ("path", "table", "version", "feed", "start", "end", "versions_per_batch")
FEEDS = ("changes", "outcomes")
# What a literal arrives as, for each kind of key: another one (a string for an int) is left to Spark to compare.
PUSHED = {row.name: row.python for row in COLUMNS if "key" in row.roles}
# So that no record batch meets the 2 GiB that one of its buffers may have in the JVM.
ROWS_PER_RECORD_BATCH = 1 << 16


def register(spark: Any) -> None:
    """Make the format "penstock" known to a session; once for each session."""
    pushes = FILTERS and str(spark.conf.get(PUSHDOWN, "false")).lower() == "true"
    with this_python(spark):
        spark.dataSource.register(PushingStateDirectory if pushes else StateDirectory)


class StateDirectory(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> Any:
        return from_arrow_schema(_Wanted.of(self.options).schema())

    def reader(self, schema: Any) -> DataSourceReader:
        return _Reader(_batch(self.options), schema)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return _StreamReader(_stream(self.options), schema)


class PushingStateDirectory(StateDirectory):
    def reader(self, schema: Any) -> DataSourceReader:
        return _PushingReader(_batch(self.options), schema)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The options, checked."""

    path: str
    feed: str | None
    table: str | None
    version: int | None
    start: int | None
    end: int | None
    versions_per_batch: int | None

    @classmethod
    def of(cls, options: Any) -> _Wanted:
        given = {name.lower(): value for name, value in options.items()}
        unknown = sorted(given.keys() - set(OPTIONS))
        if unknown:
            raise InputError(f"format penstock has no option '{unknown[0]}'; it has {', '.join(OPTIONS)}")
        if not given.get("path"):
            raise InputError('format penstock needs a state directory: write .load("state/bank")')
        feed, table = given.get("feed"), given.get("table")
        if feed is not None and feed not in FEEDS:
            raise InputError(f'format penstock: feed is "changes" or "outcomes", not {feed!r}')
        if table is None and feed != "outcomes":
            raise InputError('format penstock needs a table: write .option("table", "Account"), or feed "outcomes"')
        if table is not None and feed == "outcomes":
            raise InputError('format penstock: the feed "outcomes" is of all events; leave the option table out')
        numbers = {n: _number(n, given.get(n)) for n in ("version", "start", "end", "versions_per_batch")}
        misplaced = [n for n, value in numbers.items() if value is not None and (n == "version") == (feed is not None)]
        if misplaced:
            fix = "choose versions by start and end" if feed else 'it is for a feed: write .option("feed", "changes")'
            what = f'the feed "{feed}"' if feed else "a table"
            raise InputError(f"format penstock: {what} takes no option {misplaced[0]}; {fix}")
        path = given["path"]
        return cls(path.removeprefix("file://") if path.startswith("file:///") else path, feed, table, **numbers)

    def open(self) -> Directory:
        return Directory(self.path)

    def schema(self) -> pa.Schema:
        directory = self.open()
        if self.feed == "outcomes":
            return directory.outcomes_schema()
        assert self.table is not None
        if self.feed:
            return directory.changes_schema(self.table, self.end)
        return directory.definition(self.table, self.version).arrow()


def _batch(options: Any) -> _Wanted:
    wanted = _Wanted.of(options)
    if wanted.versions_per_batch is not None:
        raise InputError("format penstock: versions_per_batch is for spark.readStream; use start and end here")
    return wanted


def _stream(options: Any) -> _Wanted:
    wanted = _Wanted.of(options)
    if wanted.feed is None:
        raise InputError('format penstock: a stream follows a feed; write .option("feed", "changes") or "outcomes"')
    if wanted.end is not None:
        raise InputError("format penstock: a stream takes no option end; stop the query, or use spark.read")
    if wanted.versions_per_batch == 0:
        raise InputError("format penstock: versions_per_batch must be 1 or more, not 0")
    if wanted.versions_per_batch is not None:
        need_admission("format penstock", "versions_per_batch", "leave it out: a batch then takes all versions")
    return wanted


@dataclass
class _Version(InputPartition):
    version: int


@dataclass
class _Commits(InputPartition):
    after: int
    upto: int
    version: int  # whose columns the changes have


class _Scan:
    """What both readers do in a worker: rows of a partition, as record batches of the DataFrame's columns."""

    def __init__(self, wanted: _Wanted, schema: Any) -> None:
        self.wanted = wanted
        self.directory = wanted.open()
        self.where: dict[str, list[Any]] = {}
        self._fields = [(field.name, field.dataType) for field in schema.fields]
        self._schema = arrow_schema(schema)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for table in self._tables(partition):
            self._refuse_changed(table.schema)
            yield from conform(table, self._schema).to_batches(max_chunksize=ROWS_PER_RECORD_BATCH)

    def _tables(self, partition: InputPartition) -> Iterator[pa.Table]:
        name = self.wanted.table
        if isinstance(partition, _Version):
            assert name is not None
            yield self.directory.table(name, partition.version, self.where)
            return
        assert isinstance(partition, _Commits)
        if name is not None:
            yield from self.directory.changes_between(
                name, partition.after, partition.upto, self.where, partition.version
            )
        else:
            yield from self.directory.outcomes_between(partition.after, partition.upto)

    def _refuse_changed(self, schema: pa.Schema) -> None:
        """A DataFrame has the columns that the table had when it was made; those of outcomes may differ."""
        if (
            self.wanted.table is None
            or [(f.name, f.dataType) for f in from_arrow_schema(schema).fields] == self._fields
        ):
            return
        raise StateError(
            f"table '{self.wanted.table}' of state directory {self.directory.path} has other columns since this was "
            "made: read it again; a stream goes on from its checkpoint when it is started again"
        )


class _Reader(_Scan, DataSourceReader):
    def partitions(self) -> Sequence[InputPartition]:
        wanted, directory = self.wanted, self.directory
        if wanted.feed is None:
            return [_Version(directory.readable(wanted.version))]
        after, upto = directory.span(wanted.start, wanted.end)
        return [_Commits(after.commit, upto.commit, upto.version)]


class _PushingReader(_Reader):
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Takes those on key columns; the rest is left to Spark."""
        wanted = self.wanted
        version = wanted.end if wanted.feed else wanted.version
        table = None if wanted.table is None else self.directory.definition(wanted.table, version)
        for filter in filters:
            pushed = _pushed(filter, table)
            if pushed is None:
                yield filter
                continue
            name, values = pushed
            others = self.where.get(name)
            self.where[name] = values if others is None else [v for v in values if v in others]


class _StreamReader(_Scan, DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, wanted: _Wanted, schema: Any) -> None:
        super().__init__(wanted, schema)
        self._available: Position | None = None  # with availableNow: what was there when the query started

    def initialOffset(self) -> dict[str, int]:
        return asdict(self.directory.span(self.wanted.start)[0])

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()  # versions are counted here: Spark has no limit that means them

    def latestOffset(self, start: dict[str, int] | None = None, limit: ReadLimit | None = None) -> dict[str, int]:
        start = start or self.initialOffset()
        begin, newest = Position(**start), self._available or self.directory.newest()
        self._refuse_other(begin, newest)
        if self.wanted.versions_per_batch is not None:
            newest = self.directory.upto(begin.version + self.wanted.versions_per_batch, begin, newest)
        # A load has no outcomes, and makes no version.
        nothing = newest.version == begin.version if self.wanted.feed == "outcomes" else newest.commit <= begin.commit
        return start if nothing else asdict(newest)

    def prepareForTriggerAvailableNow(self) -> None:
        self._available = self.directory.newest()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        self._refuse_other(Position(**start), Position(**end))  # an older Spark shows the start only here
        self.directory.require_after(Position(**start))
        return [_Commits(start["commit"], end["commit"], self.directory.version)]

    def _refuse_other(self, begin: Position, newest: Position) -> None:
        if newest.commit < begin.commit:
            raise StateError(
                f"the checkpoint has read commit {begin.commit} of state directory {self.directory.path}, which has "
                f"only {newest.commit}: they do not belong together; use another checkpoint, or restore the directory"
            )


def _number(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdigit():
        raise InputError(f"format penstock: {name} is a number from 0, not {text!r}")
    return int(text)


def _pushed(filter: Filter, table: TableDef | None) -> tuple[str, list[Any]] | None:
    """A key column and the values that the filter allows it; None where it is not such a filter."""
    if table is None or not isinstance(filter, EqualTo | In) or len(filter.attribute) != 1:
        return None
    column = table.column(filter.attribute[0])
    if column is None or not column.key or column.type.kind not in PUSHED:
        return None
    values = [v for v in (filter.value if isinstance(filter, In) else [filter.value]) if v is not None]
    if not all(type(v) is PUSHED[column.type.kind] and getattr(v, "tzinfo", True) for v in values):
        return None
    try:
        pa.array(values, column.type.arrow())
    except pa.ArrowInvalid:  # More digits than the column holds.
        return None
    return column.name, values
