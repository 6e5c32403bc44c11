"""A high mark that a wild ts has set, set back: the way out for a directory to which everything new is late.

    highest    2100-01-01   ->   to         the highest ts that has arrived
    frontier   2100-01-01   ->   to         the clock, where it is beyond that
    held       what lies beyond `to` is rejected by the next batch (execute/watermark.py)

It needs neither the app nor its events: it is a version of its own that changes no record, so it is as durable as a
batch, and a recovery passes through it. Whoever does it is the directory's one writer meanwhile.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from penstock.commit import Disk, Journal
from penstock.commit.identity import need_identity
from penstock.declare.limits import EPOCH, INT_MIN, MICROSECOND, TIMES, microseconds
from penstock.errors import InputError, StateError
from penstock.plan.schema import Schema
from penstock.store.schemas import Schemas
from penstock.store.segment import DELETED, LOAD, OUTCOMES, RESET, WRITTEN, part
from penstock.store.stream import StreamState

Time = int | datetime.datetime


@dataclass(frozen=True, slots=True)
class Marks:
    """What a directory says of time."""

    version: int
    highest: Time  # that has arrived
    clock: Time | None  # that has run
    held: dict[str, int]  # events that wait, by type


class Reset:
    """A directory that is open for this."""

    def __init__(self, journal: Journal, stream: StreamState, outcomes: pa.Table) -> None:
        self._journal, self._stream, self._outcomes = journal, stream, outcomes
        self._is_time = pa.types.is_timestamp(outcomes.schema.field("ts").type)

    @property
    def marks(self) -> Marks:
        return self._marks(self._journal.version, self._stream)

    def time_of(self, text: str) -> int:
        """What a person wrote: a place in time that lies below the high mark."""
        to, highest = self._parsed(text), self._stream.buffer.highest
        assert highest is not None
        if to >= highest:
            raise InputError(
                f"--to {text}: state directory {self._journal.path} has its high mark at {self._time(highest)}, and "
                "this sets it back only; to let what waits run, call db.advance"
            )
        return to

    def after(self, to: int) -> Marks:
        """What they would be."""
        return self._marks(self._journal.version + 1, self._set_back(to))

    def do(self, to: int) -> Marks:
        """Durable on return."""
        stream = self._set_back(to)
        header = {"kind": "batch", "id": None, "cause": RESET, **stream.header(self._stream)}
        self._journal.commit(header, {OUTCOMES: self._outcomes.slice(0, 0)})
        self._stream = stream
        return self.marks

    def _set_back(self, to: int) -> StreamState:
        buffer = self._stream.buffer
        clock = buffer.frontier if buffer.frontier is None else min(buffer.frontier, to)
        return self._stream._replace(buffer=buffer._replace(highest=to, frontier=clock))

    def _marks(self, version: int, stream: StreamState) -> Marks:
        buffer = stream.buffer
        assert buffer.highest is not None
        clock = None if buffer.frontier is None else self._time(buffer.frontier)
        return Marks(version, self._time(buffer.highest), clock, {n: t.num_rows for n, t in buffer.held.items()})

    def _time(self, number: int) -> Time:
        return EPOCH + number * MICROSECOND if self._is_time else number

    def _parsed(self, text: str) -> int:
        wanted = "a time, such as 2026-03-01T12:00:00 (UTC unless it says otherwise)" if self._is_time else "an int"
        try:
            number, least = (_moment(text), TIMES[0]) if self._is_time else (int(text), INT_MIN)
        except ValueError:
            raise InputError(f"--to {text} is no place in time here: give {wanted}") from None
        if number < least:
            raise InputError(f"--to {text} is before all time: the first there is {self._time(least)}")
        return number


def _moment(text: str) -> int:
    moment = datetime.datetime.fromisoformat(text)
    return microseconds(moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC))


@contextmanager
def opened(path: str | os.PathLike[str], disk: Disk | None = None) -> Iterator[Reset]:
    """Refused while a writer has the directory."""
    where, disk = Path(path).absolute(), disk or Disk()
    identity = need_identity(disk, where, "app", "tables")
    own = {name: value for name, value in identity.items() if name not in ("directory", "chain")}
    with closing(Journal.open(where, own, disk=disk)) as journal:
        yield Reset(journal, *_newest(journal))


def _newest(journal: Journal) -> tuple[StreamState, pa.Table]:
    """The stream as the last version left it, and that version's outcomes, as the log keeps them."""
    tables = list(journal.identity["tables"])  # a table that has come since is read, and of no use
    records = {part(kind, name) for name in tables for kind in (WRITTEN, DELETED, LOAD)}
    recovery = journal.recover(skip={OUTCOMES, *tables, *records})
    _refuse_windows(journal.path, Schemas(recovery.scan, journal.identity).newest)
    stream = StreamState()
    if recovery.snapshot is not None:
        stream = StreamState.read(recovery.snapshot.header, recovery.snapshot.tables)
    with closing(recovery.segments) as segments:
        for segment in segments:
            if segment.header["kind"] == "batch":
                stream = StreamState.read(segment.header, segment.parts, stream)
    if stream.buffer.highest is None:
        raise StateError(f"state directory {journal.path} has no high mark to set back: no event has arrived yet")
    return stream, journal.batch(journal.version, [OUTCOMES]).parts[OUTCOMES]


def _refuse_windows(path: Path, schema: Schema) -> None:
    for name, window in schema.windows.items():
        if "time" in window:
            raise StateError(
                f"state directory {path} has window '{name}', whose rows lie in order of the clock: if that went back, "
                "what is in the window could not be told; begin a new directory with the records of an older version "
                "(penstock query --version)"
            )
