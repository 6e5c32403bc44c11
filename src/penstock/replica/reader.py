"""Reader: what `ps.reader(STATE)` gives. Read-only answers in the caller's process, beside a writer or without one.

    reader.get("Account", "a")            of the newest version
    reader.get("Account", "a", at_least=7)    of version 7 or a newer one: waits for it
    with reader.cut() as cut: …           several answers of one version
    for version, changes in reader.follow(): …

Every answer is of one version that was committed, and versions never fall. Nothing is locked or written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.commit import Disk, Journal
from penstock.commit.identity import check_identity, need_identity
from penstock.declare.model import TableDef
from penstock.declare.objects import Table
from penstock.engine import Engine
from penstock.errors import FutureVersionError, InputError, NotYetError, StateError
from penstock.plan.ir import Plan
from penstock.replica.cut import Cut, definition_of
from penstock.replica.directory import Directory
from penstock.replica.feed import feed
from penstock.replica.keys import key_columns
from penstock.replica.keys import keys as columns_of
from penstock.replica.lag import Lag, lag
from penstock.replica.replica import Replica
from penstock.replica.source import Source
from penstock.store.replay import history

# How long a reading waits for a version unless told otherwise.
TIMEOUT_S = 5.0


class Reader:
    """A state directory to read. Any thread may ask; `close` it, or use it in a `with`."""

    def __init__(self, path: str | os.PathLike[str], *, plan: Plan | None = None, disk: Disk | None = None) -> None:
        """plan: of the app that it has to be of."""
        self.path, self._disk = Path(path).absolute(), disk or Disk()
        if not self._disk.exists(self.path):
            raise StateError(f"there is no directory {self.path}; name the state directory of an app")
        identity = need_identity(self._disk, self.path, "app", "tables")
        if plan is not None:
            check_identity(self.path, identity, {"app": plan.program.name})
        self.app: str = identity["app"]
        engine = None if plan is None else cache(partial(Engine, plan))
        again = None if engine is None else lambda: engine().replica()
        self._source = Source(self._disk, self.path, identity, again)
        self._replica = Replica(self._source)

    @property
    def version(self) -> int:
        """The newest one that it has: what it answers from."""
        self._replica.refuse_unusable()
        return self._replica.version

    @property
    def tables(self) -> dict[str, TableDef]:
        """The tables, and their columns, as of this version."""
        self._replica.refuse_unusable()
        return dict(self._replica.state.definitions)

    def wait(self, at_least: int, timeout: float | None = TIMEOUT_S) -> int:
        """Until it has this version, or a newer one, which is returned. A NotYetError where that takes longer than so
        many seconds; None waits for ever."""
        replica = self._replica
        if not replica.wait(lambda: replica.version >= at_least, timeout):
            raise NotYetError(
                f"state directory {self.path}: version {at_least} has not come within {timeout} s; the newest is "
                f"{replica.version}{_whose(self.lag())}"
            )
        return replica.version

    def get(
        self, table: Table | str, key: Any, at_least: int | None = None, timeout: float | None = TIMEOUT_S
    ) -> dict[str, Any] | None:
        """The record with this key (a tuple where the key is of several columns); None where there is none. at_least:
        of this version, or a newer one."""
        replica = self._replica
        if at_least is not None and replica.version < at_least:
            self.wait(at_least, timeout)
        replica.give_way()
        with replica.lock:
            replica.refuse_unusable()
            state = replica.state
            name = table if isinstance(table, str) and table in state.records else self._definition(table).name
            return state.one(name, key, state.newest)

    def get_many(
        self,
        table: Table | str,
        keys: Sequence[Any],
        at_least: int | None = None,
        timeout: float | None = TIMEOUT_S,
    ) -> list[dict[str, Any] | None]:
        """The records with these keys, in their order, of one version."""
        wanted = self._wanted(at_least, timeout, columns_of, table, keys)
        with self._replica.lock:
            state = self._replica.state
            return state.many(self._definition(table).name, wanted, state.newest)

    def get_arrow(
        self,
        table: Table | str,
        keys: pa.Array | pa.Table,
        at_least: int | None = None,
        timeout: float | None = TIMEOUT_S,
    ) -> tuple[pa.Table, Any]:
        """The records with these keys that there are, in their order; and of which keys there is one, as bools. keys:
        an array, or a table that has the key columns."""
        wanted = self._wanted(at_least, timeout, key_columns, table, keys)
        with self._replica.lock:
            state = self._replica.state
            return state.arrow(self._definition(table).name, wanted, state.newest)

    def _wanted(
        self,
        at_least: int | None,
        timeout: float | None,
        columns: Callable[[TableDef, Any], pa.Table],
        table: Table | str,
        keys: Any,
    ) -> pa.Table:
        """Keys as Arrow, once the reader has come so far."""
        replica = self._replica
        if at_least is not None and replica.version < at_least:
            self.wait(at_least, timeout)
        replica.give_way()
        replica.refuse_unusable()
        return columns(self._definition(table), keys)

    def _definition(self, table: Table | str) -> TableDef:
        return definition_of(self._replica.state, table, self._replica.version)

    def table(
        self,
        table: Table | str,
        version: int | None = None,
        at_least: int | None = None,
        timeout: float | None = TIMEOUT_S,
    ) -> pa.Table:
        """All records of a table; version: an older one that is retained."""
        with self.cut(at_least, version, timeout) as cut:
            return cut.table(table)

    def sql(
        self,
        query: str,
        version: int | None = None,
        at_least: int | None = None,
        timeout: float | None = TIMEOUT_S,
    ) -> pa.Table:
        """DuckDB over all tables of one version: one query that only reads."""
        with self.cut(at_least, version, timeout) as cut:
            return cut.sql(query)

    def history(self, table: Table | str, key: Any) -> pa.Table:
        """Every retained change of one record, oldest first: version, change, and its columns."""
        upto, definition = self.version, self._definition(table)
        wanted = columns_of(definition, [key])
        if self._source.replays:
            with Journal.read_only(self.path, disk=self._disk) as journal:
                found = history(journal, self._source.replay(), definition, wanted)
        else:
            where = {name: wanted.column(name).to_pylist() for name in wanted.column_names}
            found = Directory(self.path, self._disk).history(definition.name, where)
        return found.filter(pc.less_equal(found.column("version"), upto))

    def cut(self, at_least: int | None = None, version: int | None = None, timeout: float | None = TIMEOUT_S) -> Cut:
        """One version, for as many answers as are wanted; close it, or use it in a `with`. version: an older one that
        is retained, read from the disk."""
        if at_least is not None:
            if version is not None and version < at_least:
                raise InputError(f"version={version} is older than at_least={at_least}; give one of them")
            self.wait(at_least, timeout)
        replica = self._replica
        replica.give_way()
        replica.refuse_unusable()
        if version is not None and version != replica.version:
            return self._cut_of(version)
        with replica.lock:
            return Cut(replica.lock, replica.state, replica.version, replica.state.pin())

    def _cut_of(self, version: int) -> Cut:
        directory = Directory(self.path, self._disk)
        if version > directory.version:
            raise FutureVersionError(
                f"state directory {self.path} has no version {version} yet; its newest is {directory.version}"
            )
        directory.readable(version)
        state = self._source.restored(version).state
        return Cut(self._disk.mutex(), state, version, state.pin())

    def follow(self, after: int | None = None) -> Iterator[tuple[int, dict[str, pa.Table]]]:
        """Each version that changes something, once, in order, as it comes: the version, and the changes of each table
        in a column "change" (written, deleted, migrated, loaded) before its own. A deleted record has its key, and
        nulls.

        A load makes no version: its rows come with the version that they belong to, as changes of their own. Ends when
        the reader is closed.

        Args:
            after: The last version that is known already; what follows it must be retained. None: from now on. Loads
                that belong to that version come again.
        """
        return feed(self._replica, after)

    def lag(self) -> Lag:
        """How far it is behind its writer, and whether there is one."""
        replica = self._replica
        return lag(self._disk, self.path, replica.version, replica.seq, replica.failure)

    def close(self) -> None:
        self._replica.close()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        replica = getattr(self, "_replica", None)
        if replica is not None and not replica.closed:
            replica.close()


def _whose(found: Lag) -> str:
    return "" if found.writer_is_there is not False else "; nobody is writing to it"


def reader(path: str | os.PathLike[str]) -> Reader:
    """Read a state directory, beside its writer or without one: a replica in this process that follows its log. The app
    is not needed."""
    return Reader(path)


def opened(plan: Plan, path: str | os.PathLike[str] | None, disk: Disk | None) -> Reader:
    """As an app opens it."""
    if path is None:
        raise InputError(f"app '{plan.program.name}': read_only reads a state directory; name one: open(path, …)")
    return Reader(path, plan=plan, disk=disk)
