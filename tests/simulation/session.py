"""A database that a process opens and writes to, with every answer judged.

A refusal (StateError) is in order only with a cause:

    opening     another process holds the lock; a fault; a rival
    writing     a fault in this process since it was opened; it has refused before; a rival; it was closed

A rival is a second writer that could open the directory because somebody removed the lock's file: one of the two is
fenced, and which one is open. Any other exception is wrong, and so is an answer that is not the model's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from penstock.errors import StateError
from simulation.app import TABLES, BatchRequest, Commit, Row, app, events
from simulation.disk import SimulatedDisk
from simulation.oracle import PATH, Handle, Oracle
from simulation.scheduler import Process


@dataclass(frozen=True, slots=True)
class Options:
    retain: int
    snapshot_every: int
    background: bool
    log: str
    scrub: float  # hours


class Refused(Exception):
    """With a cause, so that whoever asked has to go on without."""


class Session:
    def __init__(self, oracle: Oracle, process: Process, options: Options) -> None:
        self.oracle, self.process, self.options = oracle, process, options
        self.disk = SimulatedDisk(oracle.machine, process)
        self.handle = Handle(process, options.retain, options.log)

    @property
    def db(self) -> Any:
        return self.handle.db

    def open(self) -> None:
        oracle, options, handle = self.oracle, self.options, self.handle
        since = oracle.since()
        held = bool(oracle.machine.files.locks)
        try:
            db = app.open(
                PATH,
                log=options.log,
                retain=options.retain,
                snapshot_every=options.snapshot_every,
                background=options.background,
                scrub=options.scrub,
                disk=self.disk,
            )
        except StateError as error:
            caused = held or oracle.locked(self.process) != since.locked or handle.had_faults or oracle.rivals
            oracle.check(caused, f"the directory cannot be opened: {error}")
            raise Refused from error
        handle.db = db
        oracle.open(handle, db._store._journal.seq, since)
        oracle.machine.note(f"  opened at commit {handle.acked}")
        self.judge_newest()

    def judge_newest(self) -> None:
        """What it says of the newest version, when nobody else writes through it."""
        oracle, handle = self.oracle, self.handle
        since = oracle.since(handle)
        try:
            view, held = self.db.view(), self.db.held
        except StateError as error:
            oracle.check(oracle.faulted(since) or handle.broken or handle.closed, f"the view is refused: {error}")
            return
        tables = {name: rows(table) for name, table in view.tables.items()}
        # A batch of which nobody was told may have happened.
        possible = oracle.commits[handle.acked : handle.linked + 1]
        given = view.version, held, tables
        wanted = [(c.version, len(c.stream.held), {name: c.rows(name) for name in TABLES}) for c in possible]
        oracle.check(given in wanted, f"the newest version is {given}, not {wanted}")

    def run(self, asked: BatchRequest) -> Any:
        """The outcomes, as Penstock gives them."""
        asked, handle, oracle = replace(asked, log=self.options.log), self.handle, self.oracle
        known = None if asked.id is None else oracle.find(asked.id)
        with self._writing(asked, known):
            found = self.db.run(
                events(asked.batch),
                id=asked.id,
                watermark=asked.watermark,
                flush=asked.flush,
                source=asked.source,
                offsets=asked.offsets,
            )
        if known is None or known.seq > handle.linked:
            known = oracle.commits[handle.linked]
            oracle.check(known.asked is asked, f"{asked} was acknowledged, and did not happen")
            oracle.acknowledge(handle, handle.linked)
        given = outcomes(found)
        oracle.check(given == list(known.outcomes), f"outcomes {given}, not {list(known.outcomes)}")
        return found

    def stored(self, asked: BatchRequest) -> Any:
        """The outcomes, if the batch is committed."""
        oracle, handle = self.oracle, self.handle
        assert asked.id is not None
        known = oracle.find(asked.id)
        gone = known is not None and known.version <= oracle.floor
        with self.refusing("look for a batch", gone):
            found = self.db.stored(asked.id, asked.source, asked.offsets)
        if found is None:
            oracle.check(known is None or known.seq > handle.acked, f"batch {asked.id} is not found")
        else:
            right = known is not None and outcomes(found) == list(known.outcomes)
            oracle.check(right, f"batch {asked.id} is found with outcomes {outcomes(found)}")
        return found

    def load(self, asked: BatchRequest) -> None:
        asked = replace(asked, log=self.options.log)
        assert asked.load is not None
        name, given = asked.load
        with self._writing(asked):
            self.db.load(name, [dict(zip(TABLES[name], row, strict=True)) for row in given])
        self.oracle.check(
            self.oracle.commits[self.handle.linked].asked is asked, f"{asked} was acknowledged, and did not happen"
        )
        self.oracle.acknowledge(self.handle, self.handle.linked)

    def run_ahead(self, asked: BatchRequest) -> None:
        with self.refusing("run ahead"):
            self.db.run_ahead(
                events(asked.batch),
                asked.id,
                source=asked.source,
                offsets=asked.offsets,
                watermark=asked.watermark,
            )

    def close(self) -> None:
        handle = self.handle
        harmed = handle.had_faults or handle.rivals or self.oracle.removals > handle.removals
        self.oracle.check(harmed or not self.db.damage, f"the scrub has found {self.db.damage}")
        handle.closed = True
        try:
            with self.refusing("close"):
                self.db.close()
        except Refused:
            pass
        handle.gone = True

    @contextmanager
    def _writing(self, asked: BatchRequest, known: Commit | None = None) -> Iterator[None]:
        """known: the commit, if it is there already."""
        task: Any = self.oracle.machine.scheduler.current
        handle, before = self.handle, self.handle.linked
        task.call = handle, asked
        try:
            with self.refusing("write", known is not None and known.version <= self.oracle.floor):
                yield
        except Refused as refused:
            error: Any = refused.__cause__
            happened = handle.linked > before
            was_there = known is not None and known.seq <= before  # then it may say either
            self.oracle.check(
                error.committed is None or error.committed == happened or was_there,
                f"it says committed={error.committed}, but commit {handle.linked} is the newest, was {before}: {error}",
            )
            if error.committed and happened:
                self.oracle.acknowledge(handle, handle.linked)
            raise
        finally:
            task.call = None

    @contextmanager
    def refusing(self, what: str, gone: bool = False) -> Iterator[None]:
        """gone: what is asked for again may not be retained any more."""
        handle = self.handle
        try:
            yield
        except StateError as error:
            fenced = handle.rivals or self.oracle.rivals or self.oracle.removals > handle.removals
            caused = handle.had_faults or handle.broken or fenced
            caused = caused or gone or (handle.closed and what != "close")
            self.oracle.check(caused, f"cannot {what}, without a cause: {error}")
            self.oracle.machine.note(f"  refused: {error}")
            handle.broken = handle.broken or not gone
            raise Refused from error


def rows(table: Any) -> list[Row]:
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


def outcomes(table: Any) -> list[Row]:
    names = ("transaction", "ts", "status", "reason", "version", "left")
    return list(zip(*(table.column(name).to_pylist() for name in names), strict=True))
