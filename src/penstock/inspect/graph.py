"""Who waits for whom in a batch: a round after the last one before it that wrote a record which it reads or writes.

    node       a round: an event, or an atomic batch of them, with all that it caused; or a timer
    edge       from that writer to it, with the records
    stratum    how many others, one after the other, a round comes behind: rounds of one stratum could run at once

What a round that aborted wrote was put back, so nobody waits for it. These are the records that were met, so the graph
is the batch's own; the one that threads explore (schedule/graph.py) is made before, of the records that may be met.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

from penstock.inspect.again import Again, Ran
from penstock.inspect.standing import plain_key
from penstock.plan.ir import Plan

# So many rounds of a batch are looked at, which takes seconds.
ROUNDS_MAX = 5_000
# What can be looked at as a picture.
DRAWN = 60
HOTTEST = 12

Record = tuple[str, tuple[Any, ...]]


def graph(plan: Plan, path: Path, version: int) -> dict[str, Any]:
    """Of a batch that can be run again: its hottest records, its strata, and where it is small its nodes and edges."""
    batch = Again(plan, path, version)
    rounds = list(islice(batch.rounds(), ROUNDS_MAX))
    writer: dict[Record, int] = {}
    depth = list[int]()
    nodes, edges = list[dict[str, Any]](), list[dict[str, Any]]()
    counts: dict[Record, list[int]] = {}
    row = 0
    for number, ran in enumerate(rounds):
        reads, writes = _records(ran)
        behind: dict[int, list[Record]] = {}
        for record in dict.fromkeys((*reads, *writes)):
            count = counts.setdefault(record, [0, 0])
            count[0] += record in reads
            count[1] += record in writes
            if record in writer:
                behind.setdefault(writer[record], []).append(record)
        depth.append(max((depth[one] + 1 for one in behind), default=0))
        if len(rounds) <= DRAWN:
            nodes.append(
                {"place": int(batch.outcomes.column("$place")[row].as_py()), **_title(ran), "stratum": depth[-1]}
            )
            for one, several in behind.items():
                edges.append({"from": one, "to": number, "records": [shown(record) for record in several]})
        for record in writes:
            writer[record] = number
        row += len(ran.rows)
    strata = [0] * (max(depth, default=-1) + 1)
    for one in depth:
        strata[one] += 1
    hottest = sorted(counts.items(), key=lambda item: (-sum(item[1]), str(item[0])))[:HOTTEST]
    return {
        "rounds": len(rounds),
        "whole": row == batch.outcomes.num_rows,
        "strata": strata,
        "hottest": [
            {"table": table, "key": plain_key(key), "reads": reads, "writes": writes}
            for (table, key), (reads, writes) in hottest
        ],
        "nodes": nodes,
        "edges": edges,
    }


def _records(ran: Ran) -> tuple[dict[Record, None], dict[Record, None]]:
    """What a round read, and what it wrote for good."""
    reads: dict[Record, None] = {}
    writes: dict[Record, None] = {}
    place = 0
    for step in ran.steps:
        place += len(step.values)
        kept = place <= len(ran.rows) and ran.rows[place - 1]["status"] == "committed"
        for access, _ in step.accesses:
            record = access.table, access.key
            if access.reads:
                reads[record] = None
            if access.writes and kept:
                writes[record] = None
    return reads, writes


def _title(ran: Ran) -> dict[str, Any]:
    first = ran.rows[0]
    return {
        "event": ran.steps[0].event.name if ran.steps else first["transaction"],
        "id": first.get("id"),
        "ts": first.get("ts"),
        "status": first["status"],
        "steps": len(ran.rows),
    }


def shown(record: Record) -> str:
    table, key = record
    return f"{table}[{', '.join(str(part) for part in plain_key(key))}]"
