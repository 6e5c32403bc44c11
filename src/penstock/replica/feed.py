"""The changes of one version after another, as they come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.commit import Disk
from penstock.commit.follow import LogFollower
from penstock.commit.recover import look
from penstock.commit.scan import Scan
from penstock.declare.model import TableDef
from penstock.errors import FutureVersionError, InputError, NotRetainedError
from penstock.plan.schema import Schema
from penstock.replica.changes import PartsBesides, TableChanges, changes_of
from penstock.replica.replica import Replica
from penstock.state.arrow import one_below_another
from penstock.store.schemas import Schemas

CHANGE = "change"

Feed = Iterator[tuple[int, dict[str, pa.Table]]]


def feed(replica: Replica, disk: Disk, after: int | None) -> Feed:
    """What the replica has applied, and no more: who asks it then finds at least that."""
    start = look(disk, replica.path, lambda found: _start(found, replica, after))
    return _follow(replica, LogFollower(disk, replica.path, start.seq, start.hash, PartsBesides()), start.schema)


@dataclass(frozen=True, slots=True)
class _Start:
    seq: int
    hash: str | None
    schema: Schema


def _start(found: Scan, replica: Replica, after: int | None) -> _Start:
    """Behind the batch that made a version."""
    schemas = Schemas(found, replica.identity)
    if after is None:
        with replica.lock:
            seq, version = replica.seq, replica.version
        return _Start(seq, None, schemas.at(version))
    if after > found.newest[1].version:
        raise FutureVersionError(
            f"state directory {replica.path} has no version {after} yet; its newest is {found.newest[1].version}"
        )
    first = found.first
    for seq in range(first, found.newest[0] + 1):
        entry = found.entry(seq)
        if entry.version == after and entry.kind == "batch":
            return _Start(seq, entry.hash, schemas.at(after))
    if after == 0 and first == 1:
        return _Start(0, None, schemas.at(0))
    raise NotRetainedError(
        f"what follows version {after} of state directory {replica.path} is not retained any more; open the database "
        "with a larger retain, so that readers can keep up, or begin with a cut of the newest version"
    )


def _follow(replica: Replica, follower: LogFollower, schema: Schema) -> Feed:
    where = str(replica.path)
    tables = {table.name: table for table in schema.definitions(where)}
    while True:
        with replica.moved:
            replica.moved.wait_for(lambda: replica.seq > follower.seq or not replica.goes_on)
            if replica.closed:
                return
            if replica.seq <= follower.seq:
                replica.refuse_unusable()
        segment = follower.next()
        if segment is None:
            continue
        changes = changes_of(segment)
        if changes.schema is not None:
            tables = {table.name: table for table in changes.schema.now.definitions(where)}
        found = {name: _fed(tables[name], several) for name, several in changes.tables.items() if name in tables}
        if found:
            yield changes.version, found


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
