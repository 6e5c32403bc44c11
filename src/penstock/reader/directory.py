"""A state directory, read without the app: its tables at a version, and the feed of what was committed.

    penstock.json      names the tables and their columns: all that a reader has to know of the app
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
from penstock.declare.model import Column, TableDef
from penstock.errors import InputError, StateError
from penstock.publish.files import plain
from penstock.state.view import View
from penstock.store.outcome_codec import from_log
from penstock.store.segment import DELETED, ENDS, LOAD, OUTCOMES, WINDOW, WRITTEN, part

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
        self.tables = {name: self._definition(name, columns) for name, columns in identity["tables"].items()}
        self._windows = list(identity.get("windows", ()))  # their rows are not for readers

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

    def definition(self, name: str) -> TableDef:
        found = self.tables.get(name)
        if found is None:
            names = ", ".join(self.tables) or "none"
            raise InputError(f"state directory {self.path}: app '{self.app}' has no table {name!r}; it has {names}")
        return found

    def table(self, name: str, version: int | None = None, where: Where | None = None) -> pa.Table:
        """A table as of a version, the newest unless told; only records whose key is as `where` says."""
        table = self.definition(name)
        return self._rebuilt(self._recover(version, [name]), [table], where)[name]

    def view(self, version: int | None = None) -> View:
        """All tables as of one version, the newest unless told."""
        recovery = self._recover(version, self.tables)
        found = recovery.scan.newest[1].version if version is None else version
        return View(found, self._rebuilt(recovery, list(self.tables.values()), None))

    def history(self, name: str, where: Where) -> pa.Table:
        """Every retained change of the records whose key is as `where` says, behind what was there before them."""
        table, schema = self.definition(name), self.changes_schema(name)
        recovery = recover(self._disk, self.path, None, oldest=True, skip=self._parts_besides([name]))
        found = [schema.empty_table()]
        if recovery.snapshot is not None:
            found.append(_feed(_matching(recovery.snapshot.tables[name], where), recovery.base_version, "kept", schema))
        with closing(recovery.segments) as segments:
            for segment in segments:
                found += self._feed_of(segment, table, where, schema)
        return pa.concat_tables(found)

    def _recover(self, version: int | None, names: Collection[str]) -> Recovery:
        try:
            return recover(self._disk, self.path, version, skip=self._parts_besides(names))
        except StateError:
            self.readable(version)  # Says it better, if it was pruned.
            raise

    def _parts_besides(self, names: Collection[str]) -> set[str]:
        others = [name for name in self.tables if name not in names]
        windows = {part(kind, window) for window in self._windows for kind in (ENDS, WINDOW)}
        return {OUTCOMES, *windows, *(part(kind, other) for other in others for kind in (WRITTEN, DELETED, LOAD))}

    def _rebuilt(self, recovery: Recovery, tables: list[TableDef], where: Where | None) -> dict[str, pa.Table]:
        base = recovery.snapshot.tables if recovery.snapshot else {t.name: t.arrow().empty_table() for t in tables}
        pieces = {table.name: [_matching(base[table.name], where)] for table in tables}
        gone = {table.name: [False] for table in tables}
        with closing(recovery.segments) as segments:
            for segment in segments:
                for table in tables:
                    for change, rows in self._changes(segment, table, "its tables cannot be read without the app"):
                        pieces[table.name].append(_matching(rows, where))
                        gone[table.name].append(change == "deleted")
        return {table.name: _last_written(table, pieces[table.name], gone[table.name]) for table in tables}

    # -- the feed ---------------------------------------------------------------------------

    def changes(self, name: str, start: int | None = None, end: int | None = None) -> pa.Table:
        """Every change of a table in these versions: version, change (written, deleted, loaded), its columns.

        A batch's changes are those of all its events together: a record as the batch left it. A deleted one has its
        key, and nulls; one that the same batch had made was never there before.
        """
        after, upto = self.span(start, end)
        schema = self.changes_schema(name)
        return pa.concat_tables([schema.empty_table(), *self.changes_between(name, after.commit, upto.commit)])

    def changes_schema(self, name: str) -> pa.Schema:
        table = self.definition(name)
        taken = [field.name for field in _FEED if table.column(field.name)]
        if taken:
            raise InputError(
                f"table '{name}' has a column '{taken[0]}', which the feed of changes needs for its own; "
                "read the table by option version instead"
            )
        return pa.schema([*_FEED, *(pa.field(c.name, c.type.arrow(), nullable=not c.key) for c in table.columns)])

    def changes_between(self, name: str, after: int, upto: int, where: Where | None = None) -> Iterator[pa.Table]:
        """The changes of the commits after one, up to another; one table a kind of change."""
        table, schema = self.definition(name), self.changes_schema(name)
        parts = [f"{part}:{name}" for part in ("written", "deleted", "load")]
        with closing(self._commits(after, upto, parts)) as segments:
            for segment in segments:
                yield from self._feed_of(segment, table, where, schema)

    def _feed_of(self, segment: Segment, table: TableDef, where: Where | None, schema: pa.Schema) -> Iterator[pa.Table]:
        for change, rows in self._changes(segment, table, 'it has no feed of changes; open it with log="changes"'):
            yield _feed(_matching(rows, where), segment.header["version"], change, schema)

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

    def _definition(self, name: str, columns: dict[str, str]) -> TableDef:
        return TableDef(name, tuple(self._column(name, column, text) for column, text in columns.items()))

    def _column(self, table: str, name: str, text: str) -> Column:
        column = Column.of_text(name, text)
        if column is None:
            raise StateError(
                f"{self.path / 'penstock.json'}: column '{name}' of table '{table}' has a type that this Penstock "
                f"does not know, {text!r}; use the Penstock that wrote it"
            )
        return column

    def _changes(self, segment: Segment, table: TableDef, without: str) -> Iterator[tuple[str, pa.Table]]:
        """What a commit did to a table; deletions first, as the writer applies them."""
        header, parts = segment.header, segment.parts
        if header["kind"] == "batch" and header["log"] != "changes":
            raise StateError(
                f"state directory {self.path}: version {header['version']} was logged as its input, so {without}"
                + ("; close the database, which makes a snapshot, or open it with the app" if "app" in without else "")
            )
        for change, kind in (("deleted", DELETED), ("written", WRITTEN), ("loaded", LOAD)):
            rows = parts.get(part(kind, table.name))
            if rows is not None and rows.num_rows:
                yield change, rows

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

    def _not_retained(self, what: str) -> StateError:
        return StateError(
            f"{what} is not retained any more; open the database with a larger retain, so that readers can keep up, "
            "or start behind it"
        )


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
                columns.append(table.column(field.name).cast(field.type))
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
