"""Direct sources: Spark keeps the offsets and plans the batches, the engine reads the rows, and none crosses the JVM.

One rule makes them exactly once: **the offsets of a batch alone say which rows it has, and for ever.**

    ps.parquet("in/")   DirectInput          what a user gives; of(event, state) makes of it a
                        DirectSource         a source of one event: from offsets to pieces, from pieces to rows

    an offset           {"event": "Transfer", "files": 12}                       a piece: "in/part-7.parquet"
                        {"event": "Transfer", "offsets": {"0": 190, "1": 7}}     a piece: "[0, 120, 190]"

Spark notes the offsets of a batch in its checkpoint before it hands the batch over. So the pieces are had from two
small files, where a Spark job that fetches a few names costs as much as 100,000 events:

    checkpoint/offsets/6    {"event": "Transfer", "files": 11}
    checkpoint/offsets/7    {"event": "Transfer", "files": 12}     batch 7 is file number 11 of sources/Transfer.list

A batch that is sent again has the same notes, and so the same pieces. Notes that are absent, or of another make, answer
nothing: then the job is run. Notes whose checksums do not hold are damage.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.declare.model import EventDef, Program
from penstock.errors import StateError
from penstock.execute.source_files import SourceRows
from penstock.spark.checkpoint import read_note

PIECES = "place long, piece string"  # the schema of a source's DataFrame: its pieces in their order

Offset: TypeAlias = Any  # as JSON has it: a number of files, or a place in each partition
Spans = dict[str, tuple[Offset, Offset]]  # event -> where its part of a batch begins, and where it ends
Pieces: TypeAlias = tuple[str, ...]
Rows: TypeAlias = pa.Table | SourceRows


class DirectSource(Protocol):
    """A source of one event, where its rows are read. It is a value, and may travel to another process."""

    @property
    def event(self) -> str: ...

    def stream(self, spark: Any) -> DataFrame:
        """The streaming DataFrame of (place, piece): Spark plans by it, and where its notes do not say, it is asked."""

    def offset(self, noted: dict[str, Any] | None) -> Offset:
        """Of Spark's note; None: where the stream began. KeyError, TypeError or ValueError where it is another's."""

    def pieces(self, start: Offset, end: Offset) -> Pieces | None:
        """What lies between two offsets; None where that is not known here."""

    def following(self, end: Offset, *, all_listed: bool) -> Offset | None:
        """Where the batch behind this offset will end, as Spark will plan it; `end` where nothing comes, None where it
        is not certain. all_listed: Spark takes nothing that is new, as with availableNow."""

    def read(self, event: EventDef, pieces: Sequence[str], *, named: bool, threads: bool) -> Rows:
        """The rows of pieces, in their order. named: with what a log that names them has to say."""

    def close(self) -> None:
        """Give up what this process keeps open for it."""


class DirectInput:
    """What a user gives instead of a DataFrame."""

    way: ClassVar[str]  # how it is written
    noted_as: ClassVar[str]  # what its offsets have beside the event: "files", "offsets"
    can_be_log: ClassVar[bool] = False  # whether a recovery may read its rows again: log="source"

    def of(self, event: str, state: str) -> DirectSource:
        raise NotImplementedError


def need_own(source: type[DirectInput], event: str, offset: dict[str, Any]) -> None:
    """StateError where Spark hands over another source's offset: it knows the sources of a query by their places."""
    if offset.get("event") != event or source.noted_as not in offset:
        raise StateError(
            f"event '{event}': the checkpoint has {offset} in its place, another source's offset; start the query with "
            "its sources as they were, in the same order"
        )


def spans(checkpoint: Path, batch_id: int, sources: Sequence[DirectSource]) -> Spans | None:
    """Between which offsets a batch lies, by Spark's own notes; None where these do not say."""
    end = _noted(checkpoint / "offsets" / str(batch_id))
    start = _noted(checkpoint / "offsets" / str(batch_id - 1)) if batch_id else {}
    if end is None or start is None or end.keys() != {s.event for s in sources}:
        return None
    try:
        return {s.event: (s.offset(start.get(s.event)), s.offset(end[s.event])) for s in sources}
    except (KeyError, TypeError, ValueError):
        return None


def _noted(path: Path) -> dict[str, dict[str, Any]] | None:
    """Notes by event, of a file of offsets: a version, a line of metadata, then a line for each source."""
    try:
        version, _, *offsets = read_note(path).decode().splitlines()
        noted = [json.loads(line) for line in offsets if line != "-"]  # a source that has not begun
        return {str(n["event"]): n for n in noted} if version == "v1" else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def pieces_of(
    program: Program, sources: Sequence[DirectSource], wanted: Spans
) -> list[tuple[DirectSource, EventDef, Pieces]] | None:
    """The pieces of each event that has any; None where a source does not know them."""
    out = []
    for source in sources:
        pieces = source.pieces(*wanted[source.event])
        if pieces is None:
            return None
        if pieces:
            event = next(e for e in program.events if e.name == source.event)
            out.append((source, event, pieces))
    return out


def following(sources: Sequence[DirectSource], done: Spans, *, all_listed: bool) -> Spans | None:
    """The batch after this one, as Spark will plan it; None where that is not certain, as new rows may come first, or
    where there is none."""
    out = {}
    for source in sources:
        start = done[source.event][1]
        end = source.following(start, all_listed=all_listed)
        if end is None:
            return None
        out[source.event] = start, end
    return out if any(start != end for start, end in out.values()) else None
