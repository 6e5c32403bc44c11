"""A database, and the way of a batch through it. Read this file first.

    intake     what was handed in, checked, as Arrow tables                     (execute/intake.py)
    wait       what a watermark, or an atomic batch, holds back; what is late   (execute/watermark.py)
    order      the batch's events by (ts, id)                                   (engine.py)
    encode     the fields that the transactions use, as arrays                  (engine.py)
    execute    the compiled kernel runs every event                             (engine.py)
    publish    what became of every event, as an Arrow table                    (engine.py)
    commit     changes and outcomes to the log, fsynced: now it has happened    (store/, commit/)

The engine holds the tables and runs batches; the store keeps them; `Versions` (versions.py) makes one version after the
other of both. This is what users have in hand: who may read and write when, and what they may ask.

A batch that fails before `execute` has changed nothing. One that fails after it (a full disk, no memory, Ctrl-C) leaves
memory ahead of the disk, so the database refuses further work until it is opened again: `gate.whole()`.
"""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar, cast

import pyarrow as pa

from penstock import observe
from penstock.calls import Calls
from penstock.check.findings import Finding
from penstock.declare.model import TableDef, timers_of
from penstock.declare.objects import Batch, Key, Rows, Table, Window
from penstock.engine import Engine
from penstock.errors import InputError, NotRetainedError, StateError, committing, tell_committed
from penstock.execute import intake, loading
from penstock.execute.called import events_called
from penstock.execute.loading import OnConflict
from penstock.execute.memory import keep_what_is_freed
from penstock.execute.request import Admission, BatchRequest, KeptSteps, checked_steps
from penstock.gate import Gate
from penstock.observe.html import Text, show_tables
from penstock.observe.progress import Progress
from penstock.observe.report import BatchReport
from penstock.plan.ir import Plan
from penstock.schedule.policy import Policy
from penstock.serve.server import Server
from penstock.state.timers import waiting
from penstock.state.view import View
from penstock.store.durable import DurableStore
from penstock.store.memory import MemoryStore
from penstock.store.protocol import Store
from penstock.versions import Outlet, Versions

T = TypeVar("T")

# Between two pieces of a copy: who waits for a lock gets it only if it is free for longer than it takes to wake up.
_LET_IN_S = 0.001


class Database:
    """An app's tables, open for transactions. Made by `app.open()`; any thread may read, one at a time writes."""

    def __init__(
        self,
        plan: Plan,
        path: str | os.PathLike[str] | None = None,
        *,
        steps: KeptSteps = "all",
        progress: bool | Callable[[str], None] | None = None,
        **options: Any,
    ) -> None:
        self.plan, self.program = plan, plan.program
        self._progress = Progress(progress)
        show_tables()
        keep_what_is_freed()
        begun = time.perf_counter()
        self._engine = Engine(plan, steps=checked_steps(self.program, steps))
        self._scheduler = self._engine.scheduler  # now, and not in the first batch
        self.compile_s = time.perf_counter() - begun
        self._gate = Gate(self.program.name, options.get("disk"))
        self._view: tuple[int, View] | None = None  # the last one made, behind so many commits
        self._path, self._server = None if path is None else Path(path).absolute(), cast("Server | None", None)
        self._store: Store = MemoryStore(self._engine) if path is None else DurableStore(self._engine, path, **options)
        try:
            state = None if path is None else str(self._path)
            self._versions = Versions(self._engine, self._store, self._gate, self._progress, state)
            self._calls = Calls(self._versions, self._store, self._gate)
            self._engine.tables, self.recovered = self._store.recover()
            self._versions.begin(self.recovered.version)
        except BaseException:  # Nobody gets a database that could be closed.
            self._store.close(None)
            raise

    # -- writing ----------------------------------------------------------------------------

    def run(
        self,
        batch: Batch | Callable[[], Batch],
        policy: Policy | None = None,
        id: int | None = None,
        *,
        watermark: int | None = None,
        flush: bool = False,
        source: str | None = None,
        offsets: str | None = None,
        _until: int | None = None,
        _admission: Admission | None = None,
    ) -> pa.Table:
        """Run one batch; its outcomes. A batch id that is committed already changes nothing and gives them again.

        batch: events by type, or a function that gives them, which is called unless they are committed already.
        watermark: hold back what is newer than the highest ts seen minus this much, durably, until its time; what is at
        or below the highest ts that has run is late. flush: run all that is held. Without either, all that comes and
        all that is held runs, but for atomic batches that wait for the rest of their events. source: names the stream
        whose batches, numbered from 0 without gaps, have these ids; offsets: what of the stream this batch is.
        """
        request = BatchRequest(id, source, offsets, watermark, flush, _until).checked()
        policy = _checked(policy)
        with self._gate.writing():
            stored = None if id is None else self._stored(id, source, offsets)
            if stored is not None:
                return stored
            if _until is not None and self._versions.clock is not None and _until <= self._versions.clock:
                return self.program.outcomes().empty_table()
            version = self.version + 1
            # Ctrl-C may come behind the commit, too.
            with self._progress.of(version), committing(version, lambda: self._store.version == version):
                try:
                    pending = self._versions.run(batch, request, policy, _admission)
                except BaseException:
                    self._calls.stop_if_broken()
                    raise
        try:
            observe.publish(pending.report)
        except BaseException as error:  # Ctrl-C: what subscribers raise goes no further
            tell_committed(error, version, True)
            raise
        return pending.outcomes

    def advance(self, t: int | datetime.datetime) -> pa.Table:
        """Set the clock: what is held back up to t and the timers up to t run now, as a version of its own; its
        outcomes. Into the past it does nothing.

        It takes the silence up to t for the truth: with a watermark, what arrives at or below t from now on is late;
        without one it runs, but behind the timers that have run. Give a t before which nothing more can come.

        t: a value of ts.
        """
        return self.run([], _until=intake.moment(self.program, t))

    def run_ahead(
        self,
        batch: Batch,
        id: int,
        *,
        source: str,
        offsets: str | None = None,
        watermark: int | None = None,
        _admission: Admission | None = None,
    ) -> None:
        """Do all of the batch that is expected next, but for making it happen, which `run` does when it is asked for
        just that. Whatever comes instead first puts memory back to what has happened. Readers see nothing of it.
        Without offsets nothing tells the batch that is asked for from the one that was expected: then it is not run."""
        request = BatchRequest(id, source, offsets, watermark).checked()
        with self._gate.writing():
            if offsets is None or self._versions.pending or not self._store.can_go_back or self._calls.come:
                return
            if self._stored(id, source, offsets) is None:
                self._versions.run_ahead(batch, request, _admission)

    def call(self, event: object) -> dict[str, Any]:
        """Run one event now, after all that has run and before all that has not; its outcome, every column of it.

        Any thread may call. Calls that wait at the same time are one version, run in order of arrival and durable
        before they are answered. An event whose transaction only reads sees the last version and makes none. An event
        with a ts of its own waits its turn where there is a watermark. An id that was called before gives its first
        outcome, as long as that version is retained.

        Args:
            event: `Look(seat="A1")`: of any type that a transaction takes; one with a `ps.order()` needs no ts.
        """
        return self._calls.call(event)

    def set_outlet(self, outlet: Outlet) -> None:
        """From now on versions go there too."""
        with self._gate.writing():
            self._versions.set_outlet(outlet)

    def keep_from(self, id: int) -> None:
        """However many versions come, neither the batch with this id, nor those after it, are forgotten."""
        self._store.keep_from(id)

    def serve_calls(self, only: Iterable[type | str] | None = None) -> None:
        """Answer calls of other processes of this machine, until the database is closed. only: the events that these
        may call; None: all."""
        names = None if only is None else events_called(self.program, only)
        if self._path is None:
            raise InputError(
                f"app '{self.program.name}': a database in memory has no directory to find it by; to serve calls, open "
                "it with a path"
            )
        with self._gate.writing():  # once, and not behind its end
            if self._server is None:
                self._server = Server(self.program, self._calls, self._path, names)

    def warm(self) -> None:
        """Compile what the adaptive policy may choose, now and not when it is first worth it."""
        self._scheduler.warm()

    def load(self, table: Table | str, rows: Rows, on_conflict: OnConflict = "fail", check: bool = True) -> None:
        """Fill a table: rows or an Arrow table; all of them, or none where one is refused. It makes no version.

        on_conflict: what becomes of a record that is there already: "fail" refuses its row, "keep" leaves it as it is,
        "replace" puts the row in its place, with defaults for columns that the row leaves out. check: whether the
        table's checks must hold for what is loaded.
        """
        definition = self._definition(table)
        on_conflict = loading.checked(definition, on_conflict, check)
        with self._gate.writing():
            commits = self._store.commits + 1
            with committing(self.version, lambda: self._store.commits == commits, "load"):
                self._versions.load(definition, rows, on_conflict, check=check)

    # -- reading ----------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """The number of the last committed batch."""
        return self._versions.version

    @property
    def last_batch(self) -> BatchReport | None:
        """What the last batch was: how it ran and why, what became of its events, and how long each stage took."""
        return self._versions.last_batch

    def table(self, table: Table | str, version: int | None = None) -> pa.Table:
        """A consistent snapshot of a table: the last version, or an older one that is retained."""
        name = table.definition.name if isinstance(table, Table) else table
        tables = self.view(version).tables
        if name not in tables:
            name = self._definition(table).name
            if version is not None and name not in tables:
                raise InputError(
                    f"app '{self.program.name}': version {version} has no table '{name}', which came later; ask for a "
                    "newer version"
                )
        return tables[name]

    def sql(self, query: str, version: int | None = None, *, allow_files: bool = False) -> pa.Table:
        """DuckDB over a consistent snapshot of all tables: one query that only reads. allow_files: all it can do."""
        return self.view(version).sql(query, allow_files=allow_files)

    def view(self, version: int | None = None) -> View:
        """All tables as of one version."""
        if version is None:
            return self._newest_view()
        view = self._newest_view() if version == self.version else None
        return view if view is not None and view.version == version else self._older_view(version)

    def _newest_view(self) -> View:
        """Large tables are copied first, by and by: whoever writes is let in between."""
        while True:
            with self._gate.reading():
                version, commits, ahead = self.version, self._store.commits, self._versions.pending is not None
                if self._view is not None and self._view[0] == commits:
                    return self._view[1]
                self._view = None  # what nobody else holds need not be copied before it is changed
                cut = self._versions.cut()
            if cut is not None:
                view = View(version, cut.read()[0])
                self._view = commits, view
                return view
            if ahead:
                return self._of_newest(self._older_view)
            time.sleep(_LET_IN_S)

    def _older_view(self, version: int) -> View:
        with self._gate.reading():
            if not 0 <= version <= self.version:
                raise StateError(f"app '{self.program.name}' has no version {version}; the last is {self.version}")
        return self._store.tables_at(version).view(version)

    def pending(self, event: type | str) -> pa.Table:
        """The timers of an event that have not run, in the order in which they will: at, the id of the event that they
        are from, and their fields."""
        found = intake.timed(self.program, event)
        name = timers_of(found.name)
        with self._gate.reading():
            rows = self._engine.tables.arrow_of(name) if self._versions.pending is None else None
        if rows is None:  # a batch has run ahead
            rows = self._of_newest(lambda version: self._store.tables_at(version).arrow_of(name))
        return waiting(self.program, found, rows)

    def _of_newest(self, read: Callable[[int], T]) -> T:
        """What is read of the newest version; of a newer one, where that is pruned before it is read."""
        while True:
            version = self.version
            try:
                return read(version)
            except NotRetainedError:
                if version == self.version:
                    raise

    def history(self, table: Table | str, *key: Key) -> pa.Table:
        """Every retained change of one record, oldest first: version, change, and its columns."""
        definition = self._definition(table)
        parts = key[0] if len(key) == 1 and isinstance(key[0], tuple) else key
        if len(parts) != len(definition.keys):
            names = ", ".join(c.name for c in definition.keys)
            raise InputError(f"table '{definition.name}' has the key ({names}); got {len(parts)} part(s)")
        return self._store.history(definition, intake.key(definition, parts))

    def stored(self, id: int, source: str | None = None, offsets: str | None = None) -> pa.Table | None:
        """The outcomes of a batch that is committed already; None if it is not."""
        with self._gate.reading():
            return self._stored(id, source, offsets)

    def version_of(self, id: int) -> int:
        """The version that a batch made, by its id; of one that `stored` has."""
        with self._gate.reading():
            return self._store.version_of(id)

    def outcomes(self, version: int) -> pa.Table:
        """The outcomes of a retained version."""
        with self._gate.reading():
            return self._store.outcomes_of(version)

    def emitted(self, event: type | str, version: int | None = None) -> pa.Table:
        """What a batch emitted of an event that no transaction takes: the last batch, or that of a retained version.
        ts and id are those of the event that caused it, step is the place of the transaction that emitted it among all
        that ran because of that event. The fields are those that the event had then."""
        found = intake.output(self.program, event)
        with self._gate.reading():
            version = self.version if version is None else version
            table = self._store.emitted_of(found.name, version) if version else None  # before the first batch: nothing
        return self.program.output(found).empty_table() if table is None else table

    def is_between(self, version: int) -> bool:
        """Whether a retained version lies between those of a stream: calls made it, or the clock set by hand."""
        with self._gate.reading():
            return self._store.is_between(version)

    def is_due(self, t: int | datetime.datetime) -> bool:
        """Whether setting the clock to t would run anything: what is held, or timers. Not, where a batch comes."""
        to = intake.moment(self.program, t)
        with self._gate.reading():
            if self._versions.pending is not None or (self._versions.clock is not None and to <= self._versions.clock):
                return False
            first = self._engine.tables.timers.first
            return (first is not None and first <= to) or self._store.stream.buffer.holds_until(self.program, to)

    @property
    def damage(self) -> tuple[Finding, ...]:
        """Files of the state directory that the scrub has found to be damaged."""
        return self._store.damage

    @property
    def held(self) -> int:
        """Events that wait: for a watermark, or for the rest of their atomic batch."""
        return self._store.stream.buffer.events

    @property
    def source(self) -> str | None:
        """The stream whose batches these are, once there was one."""
        return self._store.stream.source

    @property
    def last_id(self) -> int | None:
        """The newest batch id, or None before the first."""
        return self._store.last_id

    @property
    def drained(self) -> int | None:
        """The last version that a stream made by running all that was held, at its end."""
        return self._store.stream.drained

    def explain(self, batch: Batch | None = None, policy: Policy | None = None) -> str:
        """The plan of every transaction, as text; or of a small batch its graph and schedule. Nothing runs."""
        policy = _checked(policy) or Policy()
        if batch is None:
            return Text(self.plan.explain())
        if policy.scheme == "adaptive":
            return "adaptive: each batch is looked at when it runs, and last_batch.why says what was chosen\n"
        if policy.scheme != "graph":
            return f"{policy.name}: no graph is built\n"
        with self._gate.writing():
            self._versions.go_back()
            encoded = self._engine.encode(
                self._engine.order(intake.events(self.program, batch), clock=self._versions.clock)
            )
            with self._gate.whole():
                return Text(self._engine.explain(encoded, self.version + 1, policy))

    # -- the end ----------------------------------------------------------------------------

    def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.stop()
        try:
            with self._gate.closing() as was_open:
                if was_open:
                    self._close()
        finally:
            if server is not None:
                server.close()
            self._calls.end()

    def _close(self) -> None:
        try:
            self._scheduler.close()
            self._calls.close()
            self._versions.close()
        finally:
            self._store.close(None if self._gate.broken or self._versions.pending is not None else self._engine.tables)

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- inside -----------------------------------------------------------------------------

    def _stored(self, id: int, source: str | None, offsets: str | None) -> pa.Table | None:
        if source is not None:
            self._store.refuse_foreign(id, source, offsets)
        return self._store.outcomes(id)

    def _definition(self, table: Table | str) -> TableDef:
        name = table.definition.name if isinstance(table, Table) else table
        found = next((t for t in self.program.tables if t.name == name), None)
        if found is None:
            if isinstance(table, Window):
                raise InputError(
                    f"app '{self.program.name}': {table!r} is no table, and is seen in the body of its transaction "
                    "only; keep what others need in a table"
                )
            names = ", ".join(t.name for t in self.program.tables)
            raise InputError(f"app '{self.program.name}' has no table {name!r}; it has {names}")
        return found


def _checked(policy: Any) -> Policy | None:
    if policy is None or isinstance(policy, Policy):
        return policy
    raise InputError(
        f'policy={policy!r} is no policy; give one such as ps.Policy.serial() or ps.Policy.parse("tstream")'
    )
