"""The open databases of this process: one for each state directory, kept from batch to batch.

A streaming query hands its batches to a function; where that function runs (this process in classic
Spark, a worker of the server under Spark Connect) the database is opened at the first batch and stays open
until its query ends. So the function carries no more than a `DatabaseSpec`.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from penstock.database import Database
from penstock.errors import StateError
from penstock.plan.ir import Plan
from penstock.spark.direct_source import DirectSource
from penstock.spark.idle import Idle
from penstock.spark.outcome_writer import OutcomeWriter
from penstock.spark.run_ahead import RunAhead

# Under Spark Connect every query has a worker of its own, which may leave a moment after its query has ended.
LEAVES_S = 20


@dataclass(frozen=True, slots=True)
class DatabaseSpec:
    """What it takes to open a database, anywhere: the plan, without the user's functions, and the directory."""

    plan: Plan
    path: str
    options: dict[str, Any] = field(default_factory=dict)


class Flushes(Protocol):
    """A backlog (backlog.py)."""

    def flush(self) -> None: ...


@dataclass(slots=True)
class OpenDatabase:
    database: Database
    outcomes: OutcomeWriter = field(default_factory=OutcomeWriter)
    run_ahead: RunAhead = field(default_factory=RunAhead)
    backlog: Flushes | None = None  # versions whose outcomes have not gone to their files
    caught_up: bool = False  # whether what a crash kept from being written has been written
    idle: Idle | None = None  # of a stream whose clock goes on when nothing comes
    query: Any = None  # the streaming query that feeds it, once it has started
    sources: Sequence[DirectSource] = ()  # that its query reads here

    def flush(self) -> None:
        if self.backlog is not None:
            self.backlog.flush()

    def close(self) -> None:
        with closing(self.outcomes):
            idle = nullcontext() if self.idle is None else closing(self.idle)
            with closing(self.database), closing(self.run_ahead), idle:
                self.outcomes.wait()
            self.flush()  # what came between the stream's batches until the end
            for source in self.sources:
                source.close()


_mutex = threading.RLock()
_held: dict[str, OpenDatabase] = {}


def spec(plan: Plan, state: str | os.PathLike[str], **options: Any) -> DatabaseSpec:
    return DatabaseSpec(portable(plan), str(Path(state).absolute()), options)


def portable(plan: Plan) -> Plan:
    """The plan without the user's functions: they are compiled into it, and need not travel."""
    program = plan.program
    return replace(
        plan,
        program=replace(
            program,
            tables=tuple(replace(t, checks=()) for t in program.tables),
            transactions=tuple(replace(t, function=_compiled_away) for t in program.transactions),
            triggers=tuple(replace(t, function=_compiled_away) for t in program.triggers),
        ),
    )


def _compiled_away(event: Any) -> Any:
    raise AssertionError("a planned transaction is not called")


def opened(wanted: DatabaseSpec) -> OpenDatabase:
    """This process's database for the directory; opened if it is not, as soon as the directory is free. For a query
    that is running: whoever starts one has closed what the one before it left."""
    with _mutex:
        until = time.monotonic() + LEAVES_S
        while wanted.path not in _held:
            try:
                return _open(wanted)
            except StateError as error:
                if not isinstance(error.__cause__, BlockingIOError) or time.monotonic() > until:
                    raise
            time.sleep(0.05)
        return _held[wanted.path]


def reserve(wanted: DatabaseSpec) -> OpenDatabase:
    """The database for a query that is about to start; refused while another query of this process has it."""
    with _mutex:
        _close_ended(wanted.path)
        if wanted.path in _held:
            raise StateError(f"state directory {wanted.path} is used by a query that is running; stop that one first")
        return _open(wanted)


def _open(wanted: DatabaseSpec) -> OpenDatabase:
    held = _held[wanted.path] = OpenDatabase(Database(wanted.plan, wanted.path, **wanted.options))
    return held


def found(path: str) -> OpenDatabase | None:
    """The database for the directory, if it is open."""
    with _mutex:
        return _held.get(path)


def attach(path: str, query: Any) -> None:
    with _mutex:
        if path in _held:
            _held[path].query = query


def release(path: str) -> None:
    """Close the database, so that others may open the directory."""
    with _mutex:
        held = _held.pop(path, None)
        if held is not None:
            held.close()


@contextmanager
def released(path: str) -> Iterator[None]:
    """Closes the database after the last piece of work."""
    try:
        yield
    finally:
        release(path)


@contextmanager
def using(wanted: DatabaseSpec) -> Iterator[Database]:
    """A database for one piece of work, closed after it."""
    held = reserve(wanted)
    with released(wanted.path):
        yield held.database


def _close_ended(path: str) -> None:
    held = _held.get(path)
    if held is not None and held.query is not None and not held.query.isActive:
        release(path)
