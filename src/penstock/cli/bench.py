"""`penstock bench`: one job, measured in five ways, reported as a table or one JSON object.

    Job      what to run: workload, policy, keys, sizes (job.py)
    report   what API.md says bench prints; a part that a workload has not is left out

    kernel    events / seconds of the execute stage, the median over the batches
    memory    events / seconds of the whole db.run, Arrow in and Arrow outcomes out
    durable   the same with a state directory: one log write and one fsync a batch
    ratio     kernel throughput / hand-written throughput (1 is par, below 1 is slower), the median
              over batches which the two ran in turn on the same events
    compile   seconds to a ready kernel in a new process: with an empty cache, then with a full one

The measurements themselves are in measure.py.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from penstock.cli import measure
from penstock.cli.job import Job


def run_bench(job: Job, *, state: Path | None, as_json: bool) -> None:
    with _steps(quiet=as_json) as step:
        report = measured(job, state, step)
    if as_json:
        print(json.dumps(report))
    else:
        Console().print(as_table(job, report))


def measured(job: Job, state: Path | None, step: Any) -> dict[str, Any]:
    """The whole report; parts whose value is None or empty are left out."""
    step("compile, cold and warm")
    compile_s = measure.compile_seconds(job)
    step("generate events")
    batches = measure.batches(job)
    step("memory: kernel and whole batches")
    memory = measure.in_memory(job, batches)
    step("kernel and hand-written loop in turn")
    ratio = measure.ratio(job, batches)
    step("latency of small batches")
    latency = measure.latency(job)
    step("durable: one fsync a batch, then recovery")
    if state is not None:
        state.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=state) as directory:
        durable = measure.durable(job, batches, Path(directory) / "durable")
        recovery = measure.recovery(job, Path(directory) / "recovery")
        durability = f"one log write and one fsync a batch, on {measure.filesystem(Path(directory))}"
    del batches
    step("working memory of one large batch")
    working = measure.working_memory(job)
    report = {
        "workload": job.workload,
        "keys": job.keys,
        "batch": job.batch,
        "policy": job.policy,
        "threads": memory.threads,
        "chosen": memory.chosen,
        "why": memory.why,
        "events_per_s": {
            "kernel": round(memory.kernel),
            "memory": round(memory.whole),
            "durable": round(durable),
        },
        "ratio": {"kernel_to_hand_written": round(ratio, 3)} if ratio else None,
        "compile_s": compile_s,
        "bytes_per_event": round(working["bytes_per_event"], 1),
        "latency_ms": latency,
        "stage_ms": memory.stage_ms,
        "spent_ms": memory.spent_ms,
        "accounts": job.size,
        "theta": job.theta,
        "knobs": job.knobs,
        "committed": memory.committed,
        "aborted": memory.aborted,
        "durability": durability,
        "recovery_changes_per_s": recovery and round(recovery),
        "peak_rss_bytes": working["peak_rss_bytes"],
        "machine": measure.machine(),
        "command": job.command,
    }
    return {name: value for name, value in report.items() if value not in (None, {})}


def as_table(job: Job, report: dict[str, Any]) -> Table:
    title = f"{job.definition.title}: {job.batches} batches of {job.batch:,} events, {job.keys} keys, {job.policy}"
    caption = f"{report['machine']}\n{report['command']}"
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name in ("kernel", "memory", "durable"):
        table.add_row(f"{name}, events/s", f"{report['events_per_s'][name]:,}")
    if "ratio" in report:
        table.add_row("kernel / hand-written loop", f"{report['ratio']['kernel_to_hand_written']:.3f}")
    for name, value in report["stage_ms"].items():
        table.add_row(f"stage {name}, ms a batch", f"{value:.2f}")
    for name, value in report.get("spent_ms", {}).items():
        table.add_row(f"threads: {name}, ms a batch", f"{value:.2f}")
    table.add_row("policy of the last batch", f"{report['chosen']}, threads: {report['threads']}")
    table.add_row("why", report["why"])
    table.add_row("compile cold, s", f"{report['compile_s']['cold']:.2f}")
    table.add_row("compile warm, s", f"{report['compile_s']['warm']:.2f}")
    table.add_row("working memory, bytes an event", f"{report['bytes_per_event']:,}")
    table.add_row("peak memory, MB", f"{report['peak_rss_bytes'] / 1e6:,.0f}")
    table.add_row(f"latency of {measure.SMALL_BATCH} events, p50 ms", f"{report['latency_ms']['p50']:.3f}")
    table.add_row(f"latency of {measure.SMALL_BATCH} events, p99 ms", f"{report['latency_ms']['p99']:.3f}")
    if "recovery_changes_per_s" in report:
        table.add_row("recovery, changes/s", f"{report['recovery_changes_per_s']:,}")
    table.add_row("durability", report["durability"])
    table.add_row("committed", f"{report['committed']:,}")
    for reason, count in report.get("aborted", {}).items():
        table.add_row(f"aborted: {reason}", f"{count:,}")
    return table


@contextmanager
def _steps(*, quiet: bool) -> Iterator[Any]:
    """A function that names the step now begun: a spinner on stderr, or nothing."""
    if quiet:
        yield lambda name: None
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("start")
        yield lambda name: progress.update(task, description=name)
