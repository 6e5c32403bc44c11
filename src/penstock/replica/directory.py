"""A state directory, read without the app: its tables at a version, and the feed of what was committed.

    penstock.json, log     the tables and their columns at each version: all that a reader has to know of the app
    snapshot + log     last write wins, key by key                                    -> table(name, version)
    log                commit by commit: what each wrote, deleted or loaded           -> changes(name, start, end)
                       and what became of each event                                  -> outcomes(start, end)

    commit      1     2       3       4     5                A Position is a commit and its version. Commits have
                load  batch   batch   load  batch            no gaps, versions never fall: so the feed of versions
    version     0     1       2       2     3                2 to 2 is what lies after commit 2, up to commit 4.

Invariants:
- Nothing is locked, written or cached: a writer may commit and prune meanwhile. Each answer is made from one list of
  files, which are open before the first is read, so that pruning cannot change it half-way. A commit that was pruned
  before that is a StateError that says to retain more; one that was lost is one that names its file.
- The feed of a Position to another is whole, or an error: never a part of it.
- Transactions are never run here. A batch that was logged as its input (log="input") holds no changes.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.commit import Disk, Segment
from penstock.commit.identity import need_identity
from penstock.commit.recover import HELD_FILES, Recovery, Segments, look, open_segments, read_in_turn, recover
from penstock.commit.scan import Scan, entry_of, newest_at_first_look, origin_of
from penstock.declare.model import TableDef
from penstock.errors import InputError, NotRetainedError, StateError
from penstock.plan.schema import Schema
from penstock.publish.files import plain
from penstock.replica.changes import PartsBesides, changes_in, is_input
from penstock.state.arrow import widened
from penstock.state.view import View
from penstock.store.outcome_codec import from_log
from penstock.store.schemas import Schemas
from penstock.store.segment import DELETED, LOAD, OUTCOMES, RESTATED, WRITTEN, part

T = TypeVar("T")

# Key columns, and the values of which a wanted record has one.
Where = Mapping[str, Sequence[Any]]

_FEED = (pa.field("version", pa.int64(), nullable=False), pa.field("change", pa.string(), nullable=False))


@dataclass(frozen=True, slots=True)
class Position:
    """How far a reader has come: the last commit that it has seen, and the version which that left."""

    version: int
    commit: int


class Directory:
    def __init__(self, path: str | os.PathLike[str], disk: Disk | None = None) -> None:
        self.path, self._disk = Path(path).absolute(), disk or Disk()
        if not self._disk.exists(self.path):
            raise StateError(f"there is no directory {self.path}; name the state directory of an app")
        identity = need_identity(self._disk, self.path, "app", "tables")
        self.app: str = identity["app"]
        self._identity = identity

    # -- where it stands --------------------------------------------------------------------

    def newest(self) -> Position:
        """The last commit."""
        found = newest_at_first_look(self._disk, self.path)
        return self._look(_newest) if found is None else Position(found[1].version, found[0])

    @property
    def version(self) -> int:
        """The number of batches committed so far."""
        return self.newest().version

    @property
    def oldest(self) -> int:
        """The oldest version whose tables can be read."""
        return self._look(lambda found: found.oldest)

    def readable(self, version: int | None) -> int:
        """The version, the newest for None, if its tables can be read."""
        if version is None:
            return self.version
        oldest, newest, lost = self._look(lambda found: (found.oldest, found.newest[1].version, found.lost_base))
        if not 0 <= version <= newest:
            raise StateError(f"state directory {self.path} has no version {version}: its newest is {newest}")
        if version < oldest and lost is not None:
            raise lost
        if version < oldest:
            raise self._not_retained(f"version {version} of state directory {self.path}, whose oldest is {oldest},")
        return version

    def require_after(self, position: Position) -> None:
        """What follows a Position must be there, unless nothing does: what is pruned goes oldest first."""
        if position.commit < self._look(_newest).commit and position.commit + 1 < self._look(lambda found: found.first):
            raise self._not_retained(f"what follows version {position.version} of state directory {self.path}")

    def span(self, start: int | None = None, end: int | None = None) -> tuple[Position, Position]:
        """The feed of versions start to end, both included, lies after the first Position, up to the second.

        Without a start it begins with the oldest version that is retained whole. A start one above the newest version
        is the feed of what comes next.
        """
        return self._look(lambda found: self._span(found, start, end))

    def _span(self, found: Scan, start: int | None, end: int | None) -> tuple[Position, Position]:
        newest, first = _newest(found), found.first
        commits = range(first, newest.commit + 1)
        oldest = _oldest_fed(found, first)
        start, end = oldest if start is None else start, newest.version if end is None else end
        for version, highest in ((start, newest.version + 1), (end, newest.version)):
            if not 0 <= version <= highest:
                raise StateError(
                    f"state directory {self.path} has no version {version}: its newest is {newest.version}"
                )
        if start > end + 1:
            raise InputError(f"the feed cannot start at version {start} and end at {end}; start at or before its end")
        if start < oldest:
            raise self._not_retained(
                f"version {start} of the feed of state directory {self.path}, whose oldest is {oldest},"
            )
        versions = [found.entry(commit).version for commit in commits]
        after = Position(max(start - 1, 0), first - 1 + bisect_left(versions, start))
        return after, Position(end, first - 1 + bisect_right(versions, end))

    def upto(self, version: int, after: Position, newest: Position) -> Position:
        """The last commit of a version, between two Positions."""
        if version >= newest.version:
            return newest
        later = range(after.commit + 1, newest.commit + 1)
        commit = after.commit + bisect_right(later, version, key=self._version_of)
        return Position(version, commit)

    def _look(self, use: Callable[[Scan], T]) -> T:
        return look(self._disk, self.path, use)

    # -- tables -----------------------------------------------------------------------------

    @property
    def tables(self) -> dict[str, TableDef]:
        """The tables of the newest version."""
        return self._look(lambda found: self._tables_at(found, found.newest[1].version))

    def _tables_at(self, found: Scan, version: int) -> dict[str, TableDef]:
        return {table.name: table for table in self._schemas(found).at(version).definitions(str(self.path))}

    def _schemas(self, found: Scan) -> Schemas:
        return Schemas(found, self._identity)

    def schema(self, version: int) -> Schema:
        """What the directory remembers of its app, as of a version."""
        return self._look(lambda found: self._schemas(found).at(version))

    def definition(self, name: str, version: int | None = None) -> TableDef:
        """A table, as it was in a version, the newest unless told."""
        return self._look(lambda found: self._defined(found, name, version))

    def _defined(self, found: Scan, name: str, version: int | None) -> TableDef:
        tables = self._tables_at(found, found.newest[1].version if version is None else version)
        if name in tables:
            return tables[name]
        of = "" if version is None else f" in version {version}"
        names = ", ".join(tables) or "none"
        gone = self._schemas(found).gone(name)
        more = f"; it was dropped in version {gone}: ask for an older one" if gone is not None and not of else ""
        raise InputError(
            f"state directory {self.path}: app '{self.app}' has no table {name!r}{of}; it has {names}{more}"
        )

    def table(self, name: str, version: int | None = None, where: Where | None = None) -> pa.Table:
        """A table as of a version, the newest unless told; only records whose key is as `where` says."""
        recovery = self._recover(version, name)
        self._defined(recovery.scan, name, version)
        return self._rebuilt(recovery, version, name, where)[name]

    def view(self, version: int | None = None) -> View:
        """All tables as of one version, the newest unless told."""
        recovery = self._recover(version, None)
        found = recovery.scan.newest[1].version if version is None else version
        return View(found, self._rebuilt(recovery, found, None, None))

    def history(self, name: str, where: Where) -> pa.Table:
        """Every retained change of the records whose key is as `where` says, behind what was there before them. Columns
        are those of today: what had another name is found there."""
        recovery = recover(self._disk, self.path, None, oldest=True, skip=PartsBesides(name))
        schemas, newest = self._schemas(recovery.scan), recovery.scan.newest[1].version
        table = self._defined(recovery.scan, name, None)
        schema = _feed_schema(table)
        found = [schema.empty_table()]
        if recovery.snapshot is not None and name in recovery.snapshot.tables:
            rows = schemas.follow(name, recovery.snapshot.tables[name], recovery.base_version, newest)
            if rows.num_columns:
                found.append(_feed(_matching(rows, where), recovery.base_version, "kept", schema))
        with closing(recovery.segments) as segments:
            for segment in segments:
                found += self._feed_of(segment, table, where, schema, schemas, newest)
        return pa.concat_tables(found)

    def _recover(self, version: int | None, name: str | None) -> Recovery:
        try:
            return recover(self._disk, self.path, version, skip=PartsBesides(name))
        except StateError:
            self.readable(version)  # Says it better, if it was pruned.
            raise

    def _rebuilt(
        self, recovery: Recovery, version: int | None, name: str | None, where: Where | None
    ) -> dict[str, pa.Table]:
        """A table, or all of them, as of a version, with the columns that they had then."""
        version = recovery.scan.newest[1].version if version is None else version
        tables = [t for t in self._tables_at(recovery.scan, version).values() if name in (None, t.name)]
        # From there on a table has had these columns: a change of them states its records anew.
        schemas = self._schemas(recovery.scan)
        since = {table.name: schemas.since(table.name, version) for table in tables}
        base = recovery.snapshot.tables if recovery.snapshot else {}
        pieces: dict[str, list[pa.Table]] = {table.name: [] for table in tables}
        gone: dict[str, list[bool]] = {table.name: [] for table in tables}
        for table in tables:
            is_there = table.name in base and recovery.base_version >= since[table.name]
            rows = base[table.name] if is_there else table.arrow().empty_table()
            pieces[table.name].append(_matching(rows, where))
            gone[table.name].append(False)
        with closing(recovery.segments) as segments:
            for segment in segments:
                for table in tables:
                    if segment.header["version"] < since[table.name]:
                        continue
                    for change, rows in self._changes(segment, table.name, "its tables cannot be read without the app"):
                        pieces[table.name].append(_matching(rows, where))
                        gone[table.name].append(change == "deleted")
        return {table.name: _last_written(table, pieces[table.name], gone[table.name]) for table in tables}

    # -- the feed ---------------------------------------------------------------------------

    def changes(self, name: str, start: int | None = None, end: int | None = None) -> pa.Table:
        """Every change of a table in these versions: version, change (written, deleted, loaded, migrated), its columns.

        A batch's changes are those of all its events together: a record as the batch left it. A deleted one has its
        key, and nulls; one that the same batch had made was never there before. Columns are those of the last of these
        versions: what had another name is found there. Where columns have changed, each record is there anew, as
        migrated.
        """
        after, upto = self.span(start, end)
        schema = self.changes_schema(name, upto.version)
        tables = self.changes_between(name, after.commit, upto.commit, version=upto.version)
        return pa.concat_tables([schema.empty_table(), *tables])

    def changes_schema(self, name: str, version: int | None = None) -> pa.Schema:
        return _feed_schema(self.definition(name, version))

    def changes_between(
        self, name: str, after: int, upto: int, where: Where | None = None, version: int | None = None
    ) -> Iterator[pa.Table]:
        """The changes of the commits after one, up to another; one table a kind of change. version: whose columns they
        have; the newest's unless told."""
        schemas, version, table = self._look(lambda found: self._columns_at(found, name, version))
        schema = _feed_schema(table)
        parts = [part(kind, name) for kind in (WRITTEN, DELETED, LOAD, RESTATED)]
        with closing(self._commits(after, upto, parts)) as segments:
            for segment in segments:
                yield from self._feed_of(segment, table, where, schema, schemas, version)

    def _columns_at(self, found: Scan, name: str, version: int | None) -> tuple[Schemas, int, TableDef]:
        version = found.newest[1].version if version is None else version
        return self._schemas(found), version, self._defined(found, name, version)

    def _feed_of(
        self,
        segment: Segment,
        table: TableDef,
        where: Where | None,
        schema: pa.Schema,
        schemas: Schemas,
        version: int,
    ) -> Iterator[pa.Table]:
        """version: whose columns the feed has."""
        own = segment.header["version"]
        for change, rows in self._changes(segment, table.name, 'it has no feed of changes; open it with log="changes"'):
            followed = schemas.follow(table.name, rows, own, version)
            if followed.num_columns:  # Else of a table of this name that has gone since.
                yield _feed(_matching(followed, where), own, change, schema)

    def outcomes(self, start: int | None = None, end: int | None = None) -> pa.Table:
        """The outcomes of these versions, texts as plain strings."""
        after, upto = self.span(start, end)
        schema = self.outcomes_schema()
        tables = self.outcomes_between(after.commit, upto.commit)
        return pa.concat_tables([schema.empty_table(), *(conform(table, schema) for table in tables)])

    def outcomes_schema(self) -> pa.Schema:
        """As the newest batch that is retained has them: the app may have come to return other fields since."""
        first, newest = self._look(lambda found: (found.first, found.newest[0]))
        for commit in range(newest, first - 1, -1):
            for segment in self._commits(commit - 1, commit, [OUTCOMES]):
                if OUTCOMES in segment.parts:
                    return plain(from_log(segment.parts[OUTCOMES].slice(0, 0), 0)).schema
        raise StateError(
            f"state directory {self.path} has no outcomes yet, so their columns are not known; run a batch first"
        )

    def outcomes_between(self, after: int, upto: int) -> Iterator[pa.Table]:
        """The outcomes of the batches among the commits after one, up to another; each as it was logged."""
        for segment in self._commits(after, upto, [OUTCOMES]):
            if OUTCOMES in segment.parts:
                yield plain(from_log(segment.parts[OUTCOMES], segment.header["version"]))

    # -- inside -----------------------------------------------------------------------------

    def _changes(self, segment: Segment, table: str, without: str) -> Iterator[tuple[str, pa.Table]]:
        """What a commit did to a table; deletions first, as the writer applies them."""
        if is_input(segment):
            raise StateError(
                f"state directory {self.path}: version {segment.header['version']} was logged as its input, so "
                + without
                + ("; close the database, which makes a snapshot, or open it with the app" if "app" in without else "")
            )
        yield from changes_in(segment, table)

    def _commits(self, after: int, upto: int, only: Collection[str]) -> Segments:
        """The segments after one, up to another: many are opened at a time, as no more may be open."""
        before: str | None = None
        for start in range(after + 1, upto + 1, HELD_FILES):
            seqs = range(start, min(start + HELD_FILES, upto + 1))
            try:
                files = open_segments(self._disk, self.path, seqs, before)
            except StateError as error:
                self._explain(error, start)
                raise
            before = files[-1].contents.hash
            yield from read_in_turn(files, only)

    def _version_of(self, commit: int) -> int:
        try:
            return entry_of(self._disk, self.path, commit, origin_of(self._disk, self.path)).version
        except StateError as error:
            self._explain(error, commit)
            raise

    def _explain(self, error: StateError, commit: int) -> None:
        """A file that was there and is not any more has been pruned, or is lost: raises what says so."""
        if isinstance(error.__cause__, FileNotFoundError):
            self._look(lambda found: found.first)  # Raises if it is lost.
            raise self._not_retained(f"commit {commit} of state directory {self.path}") from error

    def _not_retained(self, what: str) -> NotRetainedError:
        return NotRetainedError(
            f"{what} is not retained any more; open the database with a larger retain, so that readers can keep up, "
            "or start behind it"
        )


def _feed_schema(table: TableDef) -> pa.Schema:
    taken = [field.name for field in _FEED if table.column(field.name)]
    if taken:
        raise InputError(
            f"table '{table.name}' has a column '{taken[0]}', which the feed of changes needs for its own; "
            "read the table by option version instead"
        )
    return pa.schema([*_FEED, *(pa.field(c.name, c.type.arrow(), nullable=not c.key) for c in table.columns)])


def _newest(found: Scan) -> Position:
    commit, entry = found.newest
    return Position(entry.version, commit)


def _oldest_fed(found: Scan, first: int) -> int:
    """The oldest version of which all commits are there."""
    if first == 1:
        return 0
    if first > found.newest[0]:
        return found.newest[1].version + 1
    # A load that comes first follows the batch of its version, which is gone.
    return found.entry(first).version + (found.entry(first).kind == "load")


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with these columns: one that it has not is null."""
    columns = []
    for field in schema:
        if field.name in table.column_names:
            try:
                columns.append(widened(table.column(field.name), field.type))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise StateError(
                    f"column '{field.name}' was {table.schema.field(field.name).type} in an older version and does "
                    f"not fit {field.type}; start the feed behind that version"
                ) from error
        else:
            columns.append(pa.nulls(table.num_rows, field.type))
    return pa.table(columns, schema=schema)


def _matching(rows: pa.Table, where: Where | None) -> pa.Table:
    for name, values in (where or {}).items():
        column = rows.column(name)
        rows = rows.filter(pc.is_in(column, value_set=pa.array(values, column.type)))
    return rows


def _last_written(table: TableDef, pieces: list[pa.Table], gone: list[bool]) -> pa.Table:
    """Of each key the last row, unless that is a deletion."""
    if len(pieces) == 1:
        return pieces[0]
    schema = pa.schema([pa.field(c.name, c.type.arrow()) for c in table.columns])
    rows = pa.concat_tables([conform(piece, schema) for piece in pieces])
    keys = [c.name for c in table.keys]
    places = rows.select(keys).append_column("$row", pa.array(np.arange(rows.num_rows)))
    last = places.group_by(keys).aggregate([("$row", "max")]).column("$row_max").to_numpy()
    kept = np.zeros(rows.num_rows, np.bool_)
    kept[last] = True
    kept &= ~np.repeat(np.array(gone), [piece.num_rows for piece in pieces])
    return rows.filter(pa.array(kept)).cast(table.arrow())


def _feed(rows: pa.Table, version: int, change: str, schema: pa.Schema) -> pa.Table:
    feed = pa.table({"version": _full(rows, version), "change": _full(rows, change)})
    for column in rows.column_names:
        feed = feed.append_column(column, rows.column(column))
    return conform(feed, schema)


def _full(rows: pa.Table, value: Any) -> pa.Array:
    return pa.repeat(pa.scalar(value), rows.num_rows)
