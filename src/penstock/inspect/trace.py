"""One event: what became of it, and all that came of it.

outcome      its own row
round        it, and what it caused, in the order in which that ran; with the app as a tree
emitted      what went out
changed      the records that its version changed: all that a log of changes tells
records      of each step: what it read and wrote, where the batch can be run again (again.py)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.inspect.again import Again, Ran
from penstock.inspect.batch import changes
from penstock.inspect.batches import Batches
from penstock.inspect.commits import Commit
from penstock.inspect.places import Place
from penstock.inspect.standing import Step, plain_key, plain_row
from penstock.plan.ir import Plan
from penstock.publish.files import plain
from penstock.store.outcome_codec import from_log
from penstock.store.segment import EMITTED, OUTCOMES

# Steps of a round that are told: it may have MOST_EMITS.
STEPS_MAX = 500


def trace(batches: Batches, place: Place) -> dict[str, Any]:
    """What the log says."""
    rows = plain(from_log(batches.commits.read(place.commit, [OUTCOMES]).parts[OUTCOMES], place.commit.version))
    first, end = round_of(rows, place.row)
    own = rows.slice(place.row, 1).to_pylist()[0]
    told = rows.slice(first, min(end - first, STEPS_MAX)).to_pylist()
    return {
        "outcome": own | {"place": place.row},
        "batch": batches.told(place.commit),
        "round": [row | {"place": first + n} for n, row in enumerate(told)],
        "steps": end - first,
        "emitted": _emitted(batches, place.commit, own),
        "changed": changes(batches, place.commit),
    }


def round_of(rows: pa.Table, row: int) -> tuple[int, int]:
    """Where the round begins that a row is of, and where the next one does."""
    if "step" not in rows.column_names:
        return row, row + 1
    steps = rows.column("step").to_numpy()
    first = row
    while first and steps[first] != 0:
        first -= 1
    end = row + 1
    while end < steps.size and steps[end] != 0:
        end += 1
    return first, end


def _emitted(batches: Batches, commit: Commit, own: dict[str, Any]) -> list[dict[str, Any]]:
    """What went out because of it: it has its ts and id."""
    found: list[dict[str, Any]] = []
    names = [name for name in sorted(commit.parts) if name.startswith(f"{EMITTED}:")]
    segment = batches.commits.read(commit, names)
    for name in names:
        rows = plain(from_log(segment.parts[name], commit.version, behind="step"))
        of_it = pc.equal(rows.column("ts"), pa.scalar(own["ts"], rows.schema.field("ts").type))
        if own.get("id") is not None and "id" in rows.column_names:
            of_it = pc.and_(of_it, pc.equal(rows.column("id"), pa.scalar(own["id"], rows.schema.field("id").type)))
        about = {"ts", "id", "step", "version"}
        for row in rows.filter(of_it).slice(0, STEPS_MAX).to_pylist():
            fields = {name: value for name, value in row.items() if name not in about}
            found.append({"event": name.partition(":")[2], "step": row["step"], "fields": fields})
    return found


def again(plan: Plan, path: Path, version: int, place: int) -> dict[str, Any]:
    """Its round, run again on the version before: the tree, the events' fields, and what each step read and wrote."""
    batch = Again(plan, path, version)
    known = batch.outcomes.column("$place").to_numpy()
    index = int(known.searchsorted(place))
    if index >= known.size or known[index] != place:
        return {
            "again": [],
            "says": "it did not run: it is late, a duplicate or no event, so nothing was read or written",
        }
    done = 0
    for ran in batch.rounds(index):
        start, done = done, done + len(ran.rows)
    del start
    return {"again": steps_of(plan, ran)}


def steps_of(plan: Plan, ran: Ran) -> list[dict[str, Any]]:
    """A row for each step: its parent, its event, what it read and wrote."""
    found: list[dict[str, Any]] = []
    for number, step in enumerate(ran.steps):
        for values, parent in zip(step.values, step.parents, strict=True):
            place = len(found)
            row = ran.rows[place] if place < len(ran.rows) else {}
            last = values is step.values[-1]
            found.append(
                {
                    "step": place,
                    "parent": None if number == 0 else parent,
                    "event": step.event.name,
                    "fields": values,
                    "transaction": row.get("transaction"),
                    "status": row.get("status"),
                    "reason": row.get("reason"),
                    "records": _records(plan, step) if last else [],
                    "scans": step.scans if last else [],
                }
            )
    return found[:STEPS_MAX]


def _records(plan: Plan, step: Step) -> list[dict[str, Any]]:
    told = []
    for access, after in step.accesses:
        definition = plan.program.table(access.table)
        told.append(
            {
                "table": access.table,
                "key": plain_key(access.key),
                "reads": access.reads,
                "writes": access.writes,
                "before": plain_row(definition, access.before),
                "after": plain_row(definition, after) if access.writes else None,
            }
        )
    return told
