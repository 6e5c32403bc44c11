"""`penstock run`: an app over Parquet directories, with a line for each batch.

stderr    a line a batch: events, committed, late, duplicate, rejected, held, events/s, aborted by reason; and of
          a batch that takes seconds what it is at: on a terminal in the last line, elsewhere a line every ten seconds
stdout    what it came to: a table, or with --json one object
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from penstock.cli.pipeline import Pipeline
from penstock.observe import BatchReport
from penstock.spark.session import local_session

# Where lines stay: they are not to fill a log.
TOLD_EVERY_S = 10.0
HEADER = (
    f"{'batch':>7} {'events':>10} {'committed':>10} {'late':>7} {'duplicate':>9} {'rejected':>8} {'held':>8} "
    f"{'events/s':>11}  aborted"
)


@dataclass(slots=True)
class Totals:
    """What the batches of one run came to."""

    batches: int = 0
    events: int = 0
    committed: int = 0
    late: int = 0
    duplicate: int = 0
    rejected: int = 0
    held: int = 0
    version: int | None = None
    aborted: Counter[str] = field(default_factory=Counter)

    def add(self, report: BatchReport) -> None:
        self.batches += 1
        self.events += report.events
        self.committed += report.committed
        self.late += report.late
        self.duplicate += report.duplicate
        self.rejected += report.rejected
        self.held, self.version = report.held, report.version
        self.aborted.update(report.aborted)


def run_app(pipeline: Pipeline, *, as_json: bool) -> None:
    totals = Totals()
    session = local_session(f"penstock {pipeline.app.program.name}")
    with _progress(pipeline, totals, quiet=as_json) as (on_batch, progress), session:
        begun = time.perf_counter()
        pipeline.run(on_batch, progress)
        seconds = time.perf_counter() - begun
    summary = _summary(pipeline, totals, seconds)
    if as_json:
        print(json.dumps(summary))
    else:
        Console().print(_table(summary))


def line(report: BatchReport, seconds: float) -> str:
    """One batch, under HEADER."""
    reasons = ", ".join(f"{reason}: {count:,}" for reason, count in report.aborted.items()) or "-"
    return (
        f"{report.version:>7} {report.events:>10,} {report.committed:>10,} {report.late:>7,} {report.duplicate:>9,} "
        f"{report.rejected:>8,} {report.held:>8,} {report.events / max(seconds, 1e-9):>11,.0f}  {reasons}"
    )


def _summary(pipeline: Pipeline, totals: Totals, seconds: float) -> dict[str, Any]:
    return {
        "app": pipeline.app.program.name,
        "batches": totals.batches,
        "events": totals.events,
        "committed": totals.committed,
        "aborted": dict(totals.aborted.most_common()),
        "late": totals.late,
        "duplicate": totals.duplicate,
        "rejected": totals.rejected,
        "held": totals.held,
        "version": totals.version,
        "seconds": round(seconds, 3),
        "events_per_s": round(totals.events / seconds),
        "state": str(Path(pipeline.state).absolute()),
        "outcomes": str(Path(pipeline.outcomes).absolute()),
    }


def _table(summary: dict[str, Any]) -> Table:
    table = Table(title=f"{summary['app']}: {summary['batches']:,} batches", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right", overflow="fold")
    for name in ("events", "committed"):
        table.add_row(name, f"{summary[name]:,}")
    for reason, count in summary["aborted"].items():
        table.add_row(f"aborted: {reason}", f"{count:,}")
    table.add_row("late", f"{summary['late']:,}")
    table.add_row("duplicate", f"{summary['duplicate']:,}")
    table.add_row("rejected", f"{summary['rejected']:,}")
    table.add_row("held back", f"{summary['held']:,}")
    table.add_row("events/s, Spark included", f"{summary['events_per_s']:,}")
    table.add_row("state", summary["state"])
    table.add_row("outcomes", summary["outcomes"])
    return table


@contextmanager
def _progress(pipeline: Pipeline, totals: Totals, *, quiet: bool) -> Iterator[Any]:
    """What to call with each batch: it counts, and unless quiet it prints a line; and with what a long one is at."""
    if quiet:
        yield lambda report, seconds: totals.add(report), False
        return
    console = Console(stderr=True, highlight=False)

    def show(report: BatchReport, seconds: float) -> None:
        if not totals.batches:
            console.print(HEADER, style="bold", soft_wrap=True)
        totals.add(report)
        console.print(line(report, seconds), markup=False, soft_wrap=True)
        status.update(f"{totals.events:,} events in {totals.batches:,} batches")

    told = time.monotonic()

    def at(line: str) -> None:
        nonlocal told
        if console.is_terminal:
            status.update(line or f"{totals.events:,} events in {totals.batches:,} batches")
        elif line and time.monotonic() - told >= TOLD_EVERY_S:
            told = time.monotonic()
            console.print(line, markup=False, soft_wrap=True)

    until = "Ctrl-C ends it" if pipeline.follow else "until all files are read"
    with console.status(f"starting Spark for app '{pipeline.app.program.name}' ({until})") as status:
        yield show, at
