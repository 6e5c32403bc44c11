"""Where an event is among the outcomes that are retained: by its id, or by its version and row."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InputError
from penstock.inspect.batches import Batches
from penstock.inspect.commits import Commit
from penstock.store.segment import OUTCOMES


@dataclass(frozen=True, slots=True)
class Place:
    commit: Commit
    row: int  # of the outcomes


def find(batches: Batches, id: str, upto: int | None = None) -> Place | None:
    """The newest version in which an event with this id arrived: its own row, not one of what it caused."""
    for commit in batches.commits.batches(upto):
        if OUTCOMES not in commit.parts:
            continue
        rows = batches.commits.read(commit, [OUTCOMES]).parts[OUTCOMES]
        if "id" not in rows.column_names:
            raise InputError(
                "events of this app have no id, so none can be found by it; ps.id() declares one, and a batch lists "
                "its events"
            )
        wanted = _value(id, rows.schema.field("id").type)
        if wanted is None:
            return None
        found = pc.equal(rows.column("id"), wanted)
        if "step" in rows.column_names:
            found = pc.and_(found, pc.equal(rows.column("step"), 0))
        place = pc.index(found, True).as_py()
        if place >= 0:
            return Place(commit, place)
    return None


def at(batches: Batches, version: int, row: int) -> Place:
    commit = batches.commits.of_version(version)
    found = batches.outcomes(commit)
    if found is None or not 0 <= row < found.num_rows:
        raise InputError(
            f"version {version} has {0 if found is None else found.num_rows} outcomes; there is no row {row}"
        )
    return Place(commit, row)


def _value(id: str, type_: pa.DataType) -> pa.Scalar | None:
    """None where no event can have it."""
    try:
        if pa.types.is_timestamp(type_):
            moment = dt.datetime.fromisoformat(id)
            return pa.scalar(moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC), type_)
        return pa.scalar(id, pa.string()).cast(type_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError):
        return None
