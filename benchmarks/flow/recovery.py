"""Figure 8: what is logged. The input alone, which runs again when the directory is opened, or all that was changed.

S-Store's weak recovery logs the events that come from outside, its strong recovery every transaction: up to four times
slower, and opening again takes the longer the more transactions there are. Ours are log="input" and log="changes".

A directory is copied as a kill would have left it, without a snapshot since its beginning, and the copy is opened.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any, Literal, get_args
from unittest.mock import patch

from benchmarks.flow.places import workplace
from benchmarks.flow.steps import chain, hold_against_python, seen, starts
from penstock import App
from penstock.commit import index

Log = Literal["input", "changes"]
LENGTHS = (1, 4, 10)
BATCH = 100_000
NEVER = 1 << 30  # snapshots


def figure(*, quick: bool = False) -> dict[str, Any]:
    lengths = (1, 3) if quick else LENGTHS
    # The paper's 5,000 batches, of one event; and a million events in large ones.
    sizes = ((40, 1), (2, 1_000)) if quick else ((5_000, 1), (10, BATCH))
    points = []
    print(f"{'steps':>5} {'log':>8} {'batches':>8} {'events each':>12} {'chains/s':>12} {'opened in, s':>13} {'MB':>7}")
    for batches, events in sizes:
        for length in lengths:
            for log in get_args(Log):
                with workplace() as work:
                    point = _point(work, length, log, batches, events)
                points.append(point)
                print(
                    f"{length:5} {log:>8} {batches:8,} {events:12,} {point['per_s']:12,.0f} {point['opened_s']:13.3f} "
                    f"{point['bytes'] / 1e6:7.1f}"
                )
    return {"durability": "one fsync a batch", "points": points}


def _point(work: Path, length: int, log: Log, batches: int, events: int) -> dict[str, Any]:
    app, (start, *_) = chain(length)
    whole = starts(batches * events)
    given = [{start: whole.slice(first, events)} for first in range(0, whole.num_rows, events)]
    _run(app, log, given[:2], work / "warm", work / "warm, killed")
    with app.open(work / "warm, killed", log=log):
        pass
    killed = work / "killed"
    seconds = _run(app, log, given, work / "home", killed)
    begun = time.perf_counter()
    with app.open(killed, log=log) as db:
        opened = time.perf_counter() - begun
        hold_against_python(seen(db, length), [whole])
    return {
        "steps": length,
        "log": log,
        "batches": batches,
        "events": events,
        "per_s": whole.num_rows / seconds,
        "opened_s": opened,
        "bytes": sum(file.stat().st_size for file in killed.rglob("*") if file.is_file()),
    }


def _run(app: App, log: Log, given: list[Any], home: Path, killed: Path) -> float:
    # A log that is much longer than the state would make one too.
    with patch.object(index, "LOG_BYTES_MIN", 1 << 60), app.open(home, log=log, snapshot_every=NEVER) as db:
        begun = time.perf_counter()
        for batch in given:
            db.run(batch)
        seconds = time.perf_counter() - begun
        shutil.copytree(home, killed)  # closing would write a snapshot
    return seconds
