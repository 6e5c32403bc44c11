"""A directory brought to the schema of today: what becomes of all that it holds, as one commit.

    Replay (as of the last version) ──changed()──► Change ──► one segment: "schema", restated:*, held:*

Nothing is written here. A directory is of the one schema or of the other, as its newest such commit says: a crash
before that leaves the one before.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.commit import Journal, Segment
from penstock.commit.identity import check_identity
from penstock.declare.model import timers_of
from penstock.engine import Engine
from penstock.plan.migration import Migration, Words, migration
from penstock.store import carry
from penstock.store.outcome_codec import to_log
from penstock.store.replay import Replay, ages_parts, recover
from penstock.store.segment import OUTCOMES, RESTATED, SCHEMA, part
from penstock.store.stream import StreamState


@dataclass(frozen=True, slots=True)
class Change:
    migration: Migration
    restated: dict[str, pa.Table]  # tables, and those of timers
    ages: dict[str, pa.Table]
    stream: StreamState
    outcomes: pa.Table  # none: what columns they have from now on

    def segment(self, notes: dict[str, Any] | None = None) -> tuple[dict[str, Any], dict[str, pa.Table]]:
        header = {"kind": "batch", "id": None, "cause": SCHEMA, "log": "changes", SCHEMA: self.migration.note()}
        parts = {part(RESTATED, name): table for name, table in self.restated.items()}
        parts |= {**ages_parts(self.ages), **self.stream.parts(), OUTCOMES: to_log(self.outcomes)}
        return {**header, **(notes or {}), **self.stream.header()}, parts

    def committed(self, version: int) -> Segment:
        """As a reader of the log finds it."""
        header, parts = self.segment()
        return Segment({**header, "version": version}, parts)


def changed(replay: Replay, words: Words, where: str) -> Change | None:
    """What has to change before the app can go on from there; None where nothing has to. StateError where it cannot."""
    program, place = replay.program, f"state directory {where}"
    records = {name: len(table) for name, table in replay.tables.by_name.items()}
    found = migration(program, replay.schema, replay.own, words, where, records)
    restated = {
        name: carry.restated(program.table(name), replay.tables.arrow_of(name), found.renamed.get(name, {}), place)
        for name in found.restated
    }
    ages = {name: table for name, table in replay.tables.ages().items() if name in restated} if restated else {}
    for name, several in replay.foreign.waiting.items():
        restated[name] = carry.timers(program, name, pa.concat_tables(several), place)
    _refuse_strangers(replay, found, restated, place)
    before = replay.stream.buffer.held
    held = {name: carry.held(program, name, rows, place) for name, rows in before.items()}
    waits = [name for name, rows in held.items() if _columns(rows.schema) != _columns(before[name].schema)]
    waits += [name.removeprefix(timers_of("")) for name in replay.foreign.waiting]
    if not found.steps and not waits:
        return None
    waiting = tuple(f"events '{name}' that wait take the fields of today" for name in dict.fromkeys(waits))
    stream = replay.stream._replace(buffer=replay.stream.buffer._replace(held=held))
    found = dataclasses.replace(found, steps=(*found.steps, *waiting))
    return Change(found, restated, ages, stream, program.outcomes().empty_table())


def _columns(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    return [(field.name, field.type) for field in schema]


def _refuse_strangers(replay: Replay, found: Migration, restated: dict[str, pa.Table], place: str) -> None:
    """Where an Enum has lost members: what of the records, windows and timers holds one of them. Held events are looked
    at as they are carried over."""
    program, tables = replay.program, replay.tables
    for table in program.tables:
        if f"table '{table.name}'" in found.narrowed and table.name in found.was.tables:
            rows = restated[table.name] if table.name in restated else tables.arrow_of(table.name)
            carry.refuse_strangers(table.columns, rows, f"{place}: records of table '{table.name}'")
    for window in program.windows:
        if f"window '{window.name}'" in found.narrowed and window.name in tables.windows:
            for rows in tables.windows[window.name].whole(tables.strings):
                carry.refuse_strangers(window.columns, rows, f"{place}: window '{window.name}'")
    for event in program.events:
        if f"event '{event.name}'" in found.narrowed and timers_of(event.name) in tables.by_name:
            rows = tables.arrow_of(timers_of(event.name))
            carry.refuse_strangers(event.fields, rows, f"{place}: timers '{event.name}' that have not run")


def planned(engine: Engine, path: str | os.PathLike[str], words: Words) -> tuple[str, ...]:
    """What would change, in words; nothing is locked or written. As for `changed`."""
    with Journal.read_only(path) as journal:
        check_identity(journal.path, journal.identity, {"app": engine.program.name})
        follower = Replay(engine, journal.identity, str(journal.path))
        recover(journal, follower)
        change = changed(follower, words, str(journal.path))
    return () if change is None else change.migration.steps
