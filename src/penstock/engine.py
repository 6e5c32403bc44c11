"""The engine: one database, and the way of a batch through it. Read this file first.

    intake     what was handed in, checked, as Arrow tables                     (execute/intake.py)
    order      the batch's events by (ts, id)                                   (execute/order.py)
    encode     the fields that the transactions use, as arrays                  (execute/native.py)
    execute    the compiled kernel runs every event                             (execute/native.py)
    publish    what became of every event, as an Arrow table                    (publish/outcomes.py)
    commit     changes and outcomes to the log, fsynced: now it has happened    (commit/journal.py)

A batch that fails before `execute` has changed nothing. One that fails after it (a full disk) leaves
memory ahead of the disk, so the database refuses further work until it is opened again.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.commit import Disk, Journal
from penstock.declare.model import TableDef
from penstock.declare.objects import Table
from penstock.errors import InputError, StateError
from penstock.execute import intake
from penstock.execute.native import Kernel, Result
from penstock.execute.order import order
from penstock.observe.report import BatchReport, Stopwatch
from penstock.plan.ir import Plan
from penstock.publish import replay
from penstock.publish.outcomes import outcomes
from penstock.publish.replay import Recovered, Replay
from penstock.publish.view import View
from penstock.schedule.policy import Policy
from penstock.state.tables import Tables

# Outcomes that a database in memory keeps, for batches that are sent again.
_KEPT_IN_MEMORY = 100


class Database:
    """An app's tables, open for transactions. Made by `app.open()`; one thread writes, any may read."""

    def __init__(self, plan: Plan, path: str | os.PathLike[str] | None = None, *, log: str = "changes",
                 retain: int = 100, snapshot_every: int = 50, background: bool = True, disk: Disk | None = None) -> None:
        if log not in ("changes", "input"):
            raise StateError(f"log={log!r}: write log=\"changes\" or log=\"input\"")
        self.plan, self.program = plan, plan.program
        self.last_batch: BatchReport | None = None
        self.recovered = Recovered(0, 0, 0.0)
        begun = time.perf_counter()
        self._kernel = Kernel(plan)
        self.compile_s = time.perf_counter() - begun
        self._fingerprint = hashlib.sha256(self._kernel.source.encode()).hexdigest()[:16]
        self._log = log
        # A reader waits at the turnstile, so that a writer that never rests lets it in between two batches.
        self._turnstile, self._lock = threading.Lock(), threading.RLock()
        self._view: View | None = None
        self._closed = self._broken = False
        self._outcomes: dict[int, pa.Table] = {}
        self._version = 0
        self._journal: Journal | None = None
        self._tables = Tables(self.program)
        if path is not None:
            self._journal = Journal.open(path, self._identity(), log=log, retain=retain, snapshot_every=snapshot_every,
                                         background=background, disk=disk)
            try:
                self._recover(self._journal)
            except BaseException:
                self._journal.close()
                raise

    # -- writing ----------------------------------------------------------------------------

    def run(self, batch: Any, policy: Policy | None = None, id: int | None = None) -> pa.Table:
        """Run one batch; its outcomes. A batch id that is committed already changes nothing and gives them again."""
        policy = policy or Policy.adaptive()
        watch = Stopwatch()
        with self._writing():
            stored = self._stored(id)
            if stored is not None:
                return stored
            with watch.stage("intake"):
                arrived = intake.events(self.program, batch)
            with watch.stage("order"):
                ordered = order(self.program, arrived)
            with watch.stage("encode"):
                lanes = self._kernel.encode(self._tables, ordered)
            version = self.version + 1
            with self._whole():
                with watch.stage("execute"):
                    result = self._kernel.run(self._tables, ordered, lanes, version)
                with watch.stage("publish"):
                    out = outcomes(self.program, self._kernel.layout.reasons, ordered, result, self._tables.strings, version)
                with watch.stage("commit"):
                    changed = sum(int(t.meta[2]) for t in self._tables.by_name.values())
                    self._commit(arrived, out, id)
                    self._version = version
                self._tables.end_batch()
            if self._journal is None and id is not None:
                self._keep(id, out)
            self.last_batch = self._report(policy, result, changed, watch)
            self._snapshot_if_due()
        return out

    def load(self, table: Table | str, rows: Any) -> None:
        """Fill a table: rows or an Arrow table. A key that is there already is refused."""
        definition = self._definition(table)
        with self._writing():
            found = intake.rows(definition, rows)
            state = self._tables[definition.name]
            there = state.rows_of(state.keys_of(found, self._tables.strings)) >= 0
            if there.any():
                first = found.slice(int(np.flatnonzero(there)[0]), 1).select([c.name for c in definition.keys]).to_pylist()[0]
                raise InputError(f"table '{definition.name}' has {first} already; load adds new records only")
            with self._whole():
                if self._journal is not None:
                    self._journal.commit({"kind": "load", "id": None}, {f"load:{definition.name}": found})
                state.put(found, self._tables.strings, self.version)
                self._view = None

    # -- reading ----------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """The number of the last committed batch."""
        return self._version

    def table(self, table: Table | str, version: int | None = None) -> pa.Table:
        """A consistent snapshot of a table: the last version, or an older one that is retained."""
        return self.view(version).tables[self._definition(table).name]

    def sql(self, query: str, version: int | None = None) -> pa.Table:
        """DuckDB over a consistent snapshot of all tables."""
        return self.view(version).sql(query)

    def view(self, version: int | None = None) -> View:
        """All tables as of one version."""
        with self._reading():
            if version is None or version == self.version:
                if self._view is None or self._view.version != self.version:
                    self._view = View(self.version, self._tables.arrow())
                return self._view
            journal = self._durable("an older version")
            if not 0 <= version < self.version:
                raise StateError(f"version {version} is not there; the last is {self.version}")
        follower = self._replay()
        replay.recover(journal, follower, version)
        return View(version, follower.tables.arrow())

    def history(self, table: Table | str, *key: Any) -> pa.Table:
        """Every retained change of one record, oldest first: version, change, and its columns."""
        definition = self._definition(table)
        parts = key[0] if len(key) == 1 and isinstance(key[0], tuple) else key
        if len(parts) != len(definition.keys):
            names = ", ".join(c.name for c in definition.keys)
            raise InputError(f"table '{definition.name}': a key has {len(definition.keys)} part(s) ({names}), not {len(parts)}")
        wanted = intake.key(definition, parts)
        return replay.history(self._durable("history"), self._replay(), definition, wanted)

    def explain(self) -> str:
        """The plan of every transaction, as text."""
        return self.plan.explain()

    def close(self) -> None:
        with self._turnstile, self._lock:
            if self._closed:
                return
            self._closed = True
            if self._journal is not None:
                try:
                    # So that code which has changed can open a log of inputs.
                    if self._log == "input" and not self._broken and self._journal.batches_since_snapshot:
                        self._journal.snapshot({"plan": self._fingerprint}, self._tables.arrow(), wait=True)
                finally:
                    self._journal.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- inside -----------------------------------------------------------------------------

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._turnstile:
            self._lock.acquire()
        try:
            self._refuse_unusable()
            yield
        finally:
            self._lock.release()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._turnstile, self._lock:
            self._refuse_unusable()
            yield

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """What fails in here leaves memory and disk apart."""
        try:
            yield
        except BaseException:
            self._broken = True
            raise

    def _refuse_unusable(self) -> None:
        if self._closed:
            raise StateError(f"database of app '{self.program.name}' is closed; open it again")
        if self._broken:
            raise StateError(f"a batch of app '{self.program.name}' failed half-way; open the database again")

    def _commit(self, arrived: list[intake.Arrived], out: pa.Table, id: int | None) -> None:
        if self._journal is None:
            return
        parts = replay.input_parts(arrived) if self._log == "input" else replay.changes_parts(self._tables)
        self._journal.commit({"kind": "batch", "id": id, "plan": self._fingerprint}, {**parts, "outcomes": out})

    def _snapshot_if_due(self) -> None:
        if self._journal is not None and self._journal.due:
            self._journal.snapshot({"plan": self._fingerprint}, self._tables.arrow())

    def _recover(self, journal: Journal) -> None:
        follower = self._replay()
        self.recovered = replay.recover(journal, follower)
        self._tables, self._version = follower.tables, journal.version

    def _replay(self) -> Replay:
        # A kernel of its own log: the database's may be running in another thread.
        return Replay(self.program, self._kernel.twin(), self._fingerprint)

    def _stored(self, id: int | None) -> pa.Table | None:
        if id is None:
            return None
        if self._journal is None:
            return self._outcomes.get(id)
        segment = self._journal.outcomes(id, ["outcomes"])
        return segment.parts["outcomes"] if segment is not None else None

    def _keep(self, id: int, out: pa.Table) -> None:
        self._outcomes[id] = out
        while len(self._outcomes) > _KEPT_IN_MEMORY:
            del self._outcomes[next(iter(self._outcomes))]

    def _report(self, policy: Policy, result: Result, changed: int, watch: Stopwatch) -> BatchReport:
        counts = np.bincount(result.code) if result.code.size else np.zeros(1, np.int64)
        reasons = self._kernel.layout.reasons
        aborted = {reasons[c - 1]: int(n) for c, n in enumerate(counts) if c and n}
        return BatchReport(self._version, policy.name, policy.explain(), result.code.size, int(counts[0]), aborted, changed,
                           watch.seconds)

    def _durable(self, what: str) -> Journal:
        if self._journal is None:
            raise StateError(f"app '{self.program.name}': a database in memory keeps no {what}; open it with a path")
        return self._journal

    def _definition(self, table: Table | str) -> TableDef:
        name = table.definition.name if isinstance(table, Table) else table
        found = next((t for t in self.program.tables if t.name == name), None)
        if found is None:
            raise InputError(f"app '{self.program.name}' has no table {name!r}; it has {', '.join(t.name for t in self.program.tables)}")
        return found

    def _identity(self) -> dict[str, Any]:
        tables = {t.name: {c.name: str(c.type) + (" key" if c.key else "") for c in t.columns} for t in self.program.tables}
        return {"app": self.program.name, "tables": tables}
