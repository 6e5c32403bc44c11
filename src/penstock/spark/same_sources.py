"""A query that is started again, and the sources that it had before.

Spark's checkpoint has a line of offsets for each source, and knows a source by its line alone:

    {"event": "Deposit", "files": 3}      a direct source, which says whose it is
    {"logOffset": 2}                      a DataFrame's; one of several sources has several lines

If two direct sources changed places, each would go on where the other had stopped: some files would be read twice, and
some never. So they are put back into their places.

    one more direct source     the plan of the last batch, which is done, gets its line: {"event": "Refund", "files": 0}
    one direct source less     its place is kept, by a source of which nothing comes
    anything else              is refused: the lines of DataFrames do not say what they are of

A query of which no batch has come to the engine has nothing to go on with. What it has planned is forgotten at two
moments: before its streams are made, where it is given other sources (`of_query`); and behind that, where a plan is
worth nothing (`sweep`).
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

from penstock.database import Database
from penstock.declare.model import EventDef, Program
from penstock.errors import InputError
from penstock.spark import databases
from penstock.spark.checkpoint import CHECKPOINT, extend_plans, last_done, newest_planned, noted_offsets
from penstock.spark.databases import DatabaseSpec
from penstock.spark.direct_source import DirectInput
from penstock.spark.files import Files
from penstock.spark.kafka.source import Topic
from penstock.spark.listing import SOURCES

_WAYS = {source.noted_as: source.way for source in (Files, Topic)}  # of direct sources, by what their offsets have


def of_query(program: Program, sources: dict[EventDef, Any], spec: DatabaseSpec) -> dict[EventDef, Any]:
    """The sources in their places; as they are given, where no batch of an earlier query has come to the engine."""
    try:
        return _as_before(program, sources, spec.path)
    except InputError:
        if last_done(spec.path) is not None:  # so that no database is opened only to say this
            raise
        with databases.using(spec) as database:
            if not _never_ran(database, spec.path):
                raise
            _forget(spec.path)
        return sources


def sweep(database: Database, state: str, sources: dict[EventDef, Any]) -> None:
    """Of a query of which no batch has come to the engine, what is worth nothing. What ps.parquet has planned is found
    again, and may have been of a wrong directory; another source's plan may say where it began. Spark refuses a
    checkpoint in which a kill or a full disk left parts of its very first batch: without a plan there is nothing in it
    to keep."""
    if not _never_ran(database, state):
        return
    if all(isinstance(source, Files) for source in sources.values()):
        _forget(state)
        return
    checkpoint = Path(state) / CHECKPOINT
    if (checkpoint / "offsets").is_dir() and newest_planned(state) is None:
        for entry in checkpoint.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)


def _never_ran(database: Database, state: str) -> bool:
    """No batch has come to the engine, by its log, or been done, by Spark's notes."""
    return database.source is None and last_done(state) is None


def _forget(state: str) -> None:
    """What a query has planned, and the files that it found."""
    for name in (CHECKPOINT, SOURCES):
        shutil.rmtree(Path(state) / name, ignore_errors=True)


def _as_before(program: Program, sources: dict[EventDef, Any], state: str) -> dict[EventDef, Any]:
    """The sources in the places that the checkpoint of a state directory has them in; new ones get places there."""
    offsets = noted_offsets(state)
    if offsets is None:
        return sources
    noted = [None if offset is None else str(offset["event"]) for offset in offsets]
    ways = {offset["event"]: _way(offset) for offset in offsets if offset is not None}
    direct = {event.name: event for event, source in sources.items() if isinstance(source, DirectInput)}
    frames = [event for event in sources if event.name not in direct]
    lines = noted.count(None)  # of DataFrames, each of which may be of several sources
    gone, new = [name for name in ways if name not in direct], [name for name in direct if name not in ways]
    as_they_were = all(sources[event].way == ways.get(name, Files.way) for name, event in direct.items())
    if not (
        as_they_were
        and len(frames) <= lines
        and bool(frames) == bool(lines)
        and all(_may_go(program, name, ways[name], frames) for name in gone)
    ):
        raise InputError(
            f"app '{program.name}': the query in {state} reads {_before(offsets)}, and is now given {_now(sources)}; "
            "a source of ps.parquet may come, and may go while its event is declared; give others as they were, or "
            "begin another state directory"
        )
    several = len(frames) < lines
    if several and gone:
        raise InputError(
            f"app '{program.name}': the query in {state} reads {_before(offsets)}, and is not given {', '.join(gone)}; "
            "a DataFrame of several sources has no places of its own beside it: give all as they were"
        )
    if new:
        _need_done(program, new, state)
    kept = {name: _keep_place(program, name, state) for name in gone}
    known = sources | dict(kept.values())
    direct |= {name: event for name, (event, _) in kept.items()}
    extend_plans(state, [*noted, *new])
    if several:  # as given, and what is new behind it
        return {event: known[event] for event in sorted(known, key=lambda event: event.name in new)}
    rest = iter(frames)
    return {event: known[event] for event in (next(rest) if n is None else direct[n] for n in [*noted, *new])}


def _way(offset: dict[str, Any]) -> str:
    return next((way for part, way in _WAYS.items() if part in offset), "another source")


def _may_go(program: Program, name: str, way: str, frames: list[EventDef]) -> bool:
    event = program.event(name)
    return way == Files.way and event is not None and program.transaction_of(event) is not None and event not in frames


def _keep_place(program: Program, name: str, state: str) -> tuple[EventDef, Files]:
    """A source of which nothing comes: its directory is that of the list, where no events are."""
    logging.getLogger("penstock").warning(
        "app '%s': the query in %s had a source of '%s', and is not given it: nothing more comes of it",
        *(program.name, state, name),
    )
    event = program.event(name)
    assert event is not None
    folder = Path(state) / SOURCES
    folder.mkdir(exist_ok=True)
    return event, Files(str(folder))


def _need_done(program: Program, new: list[str], state: str) -> None:
    """What is planned runs as it was planned."""
    planned = newest_planned(state)
    if planned != last_done(state):
        raise InputError(
            f"app '{program.name}': {', '.join(new)} cannot come to the query in {state} yet, whose batch {planned} "
            "was planned without, and is not done; start it once more with its sources as they were, then add it"
        )


def _before(noted: list[dict[str, Any] | None]) -> str:
    parts = []
    for part, way in _WAYS.items():
        names = [offset["event"] for offset in noted if offset is not None and part in offset]
        parts += [f"{', '.join(names)} with {way}"] if names else []
    frames = noted.count(None)
    parts += [f"{frames} source{'s' * (frames > 1)} of DataFrames"] if frames else []
    return " and ".join(parts)


def _now(sources: dict[EventDef, Any]) -> str:
    ways = {
        event.name: source.way if isinstance(source, DirectInput) else "a DataFrame"
        for event, source in sources.items()
    }
    return ", ".join(f"{name} with {way}" for name, way in ways.items())
