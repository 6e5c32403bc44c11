"""Batches of direct sources: which files they are.

Spark notes the offsets of a batch in its checkpoint before it hands the batch over, and offsets count files in
lists of our own (files.py). So the names are had from two small files, where a Spark job that fetches a few
names costs as much as 100,000 events:

    checkpoint/offsets/6    {"event": "Transfer", "files": 11}
    checkpoint/offsets/7    {"event": "Transfer", "files": 12}     batch 7 is file number 11 of sources/Transfer.list

A batch that is sent again has the same notes, and so the same files. Notes that are absent, or of another make, answer
nothing: then the job is run. Notes whose checksums do not hold are damage.
"""

from __future__ import annotations

import json
from pathlib import Path

from penstock.declare.model import EventDef, Program
from penstock.spark.checkpoint import read_note
from penstock.spark.files import SourceFiles

Spans = dict[str, tuple[int, int]]  # event -> number of its first file, and of the one after its last


def spans(checkpoint: Path, batch_id: int, sources: tuple[SourceFiles, ...]) -> Spans | None:
    """The files of a batch, by Spark's own notes; None where these do not say."""
    end = _noted(checkpoint / "offsets" / str(batch_id))
    start = _noted(checkpoint / "offsets" / str(batch_id - 1)) if batch_id else {}
    if end is None or start is None or end.keys() != {s.event for s in sources}:
        return None
    return {event: (start.get(event, 0), files) for event, files in end.items()}


def _noted(path: Path) -> dict[str, int] | None:
    """Files by event, of a file of offsets: a version, a line of metadata, then a line for each source."""
    try:
        version, _, *offsets = read_note(path).decode().splitlines()
        noted = [json.loads(line) for line in offsets if line != "-"]  # a source that has not begun
        return {str(n["event"]): int(n["files"]) for n in noted} if version == "v1" else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def files_of(
    program: Program, sources: tuple[SourceFiles, ...], wanted: Spans
) -> list[tuple[EventDef, tuple[str, ...]]] | None:
    """The files of each event that has any; None where the lists lack one."""
    out = []
    for source in sources:
        start, end = wanted[source.event]
        known = source.names()
        if len(known) < end:
            return None
        if end > start:
            event = next(e for e in program.events if e.name == source.event)
            out.append((event, source.paths(known[start:end])))
    return out
