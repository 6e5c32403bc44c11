"""One batch whole: its counts, what became of its events, and what it changed."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.declare.model import timers_of
from penstock.inspect.batches import Batches
from penstock.inspect.commits import Commit
from penstock.publish.files import plain
from penstock.replica.changes import changes_of, is_input
from penstock.store.segment import DELETED, EMITTED, LOAD, RESTATED, WRITTEN

# Records of a table that are told of a batch; there may be as many as the table has.
CHANGES_MAX = 50
OUTCOMES, OUTCOMES_MAX = 50, 1000


def batch(batches: Batches, version: int, *, limit: int, offset: int, status: str | None) -> dict[str, Any]:
    """limit, offset, status: which outcomes."""
    commit = batches.commits.of_version(version)
    return {
        "batch": batches.told(commit),
        "outcomes": outcomes(batches, commit, limit, offset, status),
        "changes": changes(batches, commit),
        "emitted": {
            name.partition(":")[2]: batches.commits.read(commit, [name]).parts[name].num_rows
            for name in sorted(commit.parts)
            if name.startswith(f"{EMITTED}:")
        },
    }


def outcomes(batches: Batches, commit: Commit, limit: int, offset: int, status: str | None) -> dict[str, Any]:
    """Some of them, in the order in which the events ran; `place` is where each stands among all."""
    found = batches.outcomes(commit)
    if found is None:
        return {"rows": [], "of": 0, "offset": offset}
    rows = plain(found)
    rows = rows.add_column(0, "place", pa.array(range(rows.num_rows), pa.int64()))
    if status is not None:
        rows = rows.filter(pc.equal(rows.column("status"), status))
    return {"rows": rows.slice(offset, limit).to_pylist(), "of": rows.num_rows, "offset": offset}


def changes(batches: Batches, commit: Commit) -> dict[str, Any] | None:
    """Of each table how many records were written and deleted, and the first of them; None where the batch was logged
    as its input, which says nothing of that."""
    names = [name for name in commit.parts if name.partition(":")[0] in (WRITTEN, DELETED, LOAD, RESTATED)]
    segment = batches.commits.read(commit, names)
    if is_input(segment):
        return None
    told: dict[str, Any] = {}
    for name, several in changes_of(segment).tables.items():
        if name.startswith(timers_of("")):
            continue
        found = told[name] = {"count": sum(rows.num_rows for _, rows in several), "records": []}
        for change, rows in several:
            room = CHANGES_MAX - len(found["records"])
            found["records"] += [{"change": change, **row} for row in plain(rows.slice(0, room)).to_pylist()]
    return told
