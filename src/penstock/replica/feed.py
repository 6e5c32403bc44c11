"""The changes of one version after another, as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.commit import Segment
from penstock.commit.follow import LogFollower
from penstock.commit.recover import look
from penstock.commit.scan import Scan
from penstock.declare.model import TableDef
from penstock.errors import FutureVersionError, InputError, NotRetainedError
from penstock.plan.schema import Schema
from penstock.replica.changes import Changes, TableChanges
from penstock.replica.replica import Replica
from penstock.replica.source import NeedsApp, Source
from penstock.state.arrow import one_below_another
from penstock.store.schemas import Schemas

CHANGE = "change"

Feed = Iterator[tuple[int, dict[str, pa.Table]]]


def feed(replica: Replica, after: int | None) -> Feed:
    """What the replica has applied, and no more: who asks it then finds at least that."""
    source = replica.source
    start = look(source.disk, source.path, lambda found: _start(found, replica, after))
    return _follow(replica, start)


@dataclass(frozen=True, slots=True)
class _Start:
    version: int
    seq: int
    hash: str | None
    schema: Schema


def _start(found: Scan, replica: Replica, after: int | None) -> _Start:
    """Behind the batch that made a version."""
    schemas = Schemas(found, replica.source.identity)
    if after is None:
        with replica.lock:
            seq, version = replica.seq, replica.version
        return _Start(version, seq, None, schemas.at(version))
    if after > found.newest[1].version:
        raise FutureVersionError(
            f"state directory {replica.path} has no version {after} yet; its newest is {found.newest[1].version}"
        )
    first = found.first
    for seq in range(first, found.newest[0] + 1):
        entry = found.entry(seq)
        if entry.version == after and entry.kind == "batch":
            return _Start(after, seq, entry.hash, schemas.at(after))
    if after == 0 and first == 1:
        return _Start(0, 0, None, schemas.at(0))
    raise NotRetainedError(
        f"what follows version {after} of state directory {replica.path} is not retained any more; open the database "
        "with a larger retain, so that readers can keep up, or begin with a cut of the newest version"
    )


def _follow(replica: Replica, start: _Start) -> Feed:
    source, where, version = replica.source, str(replica.path), start.version
    tables = {table.name: table for table in start.schema.definitions(where)}
    follower, changes_of = _begun(source, start.seq, start.hash, version)
    while True:
        if not replica.wait_behind(follower.seq):
            return
        seq, hash_ = follower.seq, follower.hash
        segment = follower.next()
        if segment is None:
            continue
        try:
            changes = changes_of(segment)
        except NeedsApp:
            if not source.replays:
                raise
            follower, changes_of = _begun(source, seq, hash_, version)  # from here on batches run again
            continue
        version = changes.version
        if changes.schema is not None:
            tables = {table.name: table for table in changes.schema.now.definitions(where)}
        found = {name: _fed(tables[name], several) for name, several in changes.tables.items() if name in tables}
        if found:
            yield version, found


def _begun(
    source: Source, seq: int, hash_: str | None, version: int
) -> tuple[LogFollower, Callable[[Segment], Changes]]:
    """From behind a commit of a version."""
    changes_of = source.restored(version).changes_of if source.replays else source.logged
    return LogFollower(source.disk, source.path, seq, hash_, source.skip), changes_of


def _fed(table: TableDef, several: TableChanges) -> pa.Table:
    if table.column(CHANGE):
        raise InputError(
            f"table '{table.name}' has a column '{CHANGE}', which the changes need for their own; read the table itself"
        )
    schema = pa.schema([pa.field(CHANGE, pa.string()), *(pa.field(c.name, c.type.arrow()) for c in table.columns)])
    return one_below_another([_with(change, rows, schema) for change, rows in several])


def _with(change: str, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [pa.repeat(change, rows.num_rows)]
    for field in schema:
        if field.name != CHANGE:
            there = field.name in rows.column_names
            columns.append(rows.column(field.name) if there else pa.nulls(rows.num_rows, field.type))
    return pa.table(columns, schema=schema)
