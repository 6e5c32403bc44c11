"""The measurements of `penstock bench`, each a function of the Job.

Those that need a process of their own, so that nothing else is counted, are in probe.py and are
started from here. Times are medians over batches, the first of which is left out as a warm-up.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.cli.job import Job
from penstock.errors import PenstockError
from penstock.workloads import bind, hand_written

Batch = dict[str, pa.Table]

SMALL_BATCH = 500  # events; a batch of a stream that is asked for low latency
SMALL_BATCHES = 400  # enough for a 99th percentile of four samples
NO_SNAPSHOTS = 10**9  # batches between snapshots; recovery then replays the log alone


@dataclass(frozen=True, slots=True)
class InMemory:
    kernel: float  # events a second, as is `whole`
    whole: float
    ratio: float | None
    threads: int
    stage_ms: dict[str, float]
    committed: int
    aborted: dict[str, int]


@dataclass(frozen=True, slots=True)
class Durable:
    events_per_s: float
    how: str
    recovery_changes_per_s: float | None


def batches(job: Job) -> list[Batch]:
    """One to warm up, then those that count; all distinct, so that no predictor can learn them."""
    return [batch_of(job, job.batch, i * job.batch) for i in range(job.batches + 1)]


def batch_of(job: Job, events: int, first: int) -> Batch:
    return job.definition.batch(events, first=first, size=job.size, theta=job.theta, keys=job.keys)


def loaded(job: Job, path: Path | None = None, **options: Any) -> tuple[Any, Any]:
    """The app, and a database of it with the workload's initial rows."""
    app = job.definition.app(keys=job.keys)
    db = app.open(path, **options) if path else app.open()
    for table, rows in bind(app, job.definition.tables(size=job.size, keys=job.keys)).items():
        db.load(table, rows)
    return app, db


def policy(job: Job) -> Any:
    import penstock as ps

    return getattr(ps.Policy, job.policy)()


def in_memory(job: Job, given: Sequence[Batch]) -> InMemory:
    """Kernel and whole batches; where there is a hand-written loop, it runs each batch in turn with the kernel."""
    app, db = loaded(job)
    loop = HandWritten(job) if job.workload == "sl" and job.keys == "int" else None
    how = policy(job)
    kernel, whole, ratios, stages = [], [], [], []
    committed, aborted = 0, dict[str, int]()
    with db:
        for i, batch in enumerate(given):
            events = bind(app, batch)
            begun = time.perf_counter()
            db.run(events, policy=how)
            seconds = time.perf_counter() - begun
            last = db.last_batch
            by_hand = loop.seconds(batch, committed=last.committed) if loop else None
            if i == 0:
                continue
            kernel.append(last.seconds["execute"])
            whole.append(seconds)
            stages.append(last.seconds)
            if by_hand:
                ratios.append(by_hand / last.seconds["execute"])
            committed += last.committed
            for reason, count in last.aborted.items():
                aborted[reason] = aborted.get(reason, 0) + count
    return InMemory(
        kernel=job.batch / float(np.median(kernel)),
        whole=job.batch / float(np.median(whole)),
        ratio=float(np.median(ratios)) if ratios else None,
        threads=getattr(last.policy, "threads", None) or 1,
        stage_ms={name: round(1000 * float(np.median([s.get(name, 0.0) for s in stages])), 3) for name in stages[0]},
        committed=committed,
        aborted=aborted,
    )


class HandWritten:
    """The hand-written loop with its own state, kept in step with the database's."""

    def __init__(self, job: Job) -> None:
        self.state = hand_written.ledger(job.definition.tables(size=job.size, keys=job.keys))
        self.status = np.zeros(job.batch, np.uint8)
        self.balance = np.zeros(job.batch, np.int64)

    def seconds(self, batch: Batch, *, committed: int) -> float:
        """Time of the loop alone, on the same events; it must commit what the engine committed."""
        merged = hand_written.merge(batch)
        begun = time.perf_counter()
        count = hand_written.run(self.state, merged, self.status, self.balance)
        seconds = time.perf_counter() - begun
        if count != committed:
            raise PenstockError(f"the hand-written loop committed {count} events, the engine {committed}: one is wrong")
        return seconds


def durable(job: Job, given: Sequence[Batch], directory: Path) -> Durable:
    """Whole batches with a state directory, then the time to replay their log."""
    path, how, seconds = directory / "state", policy(job), []
    app, db = loaded(job, path, snapshot_every=NO_SNAPSHOTS)
    with db:
        for batch in given:
            events = bind(app, batch)
            begun = time.perf_counter()
            db.run(events, policy=how)
            seconds.append(time.perf_counter() - begun)
    with app.open(path, snapshot_every=NO_SNAPSHOTS) as again:
        recovered = again.recovered
    replayed = recovered.changes / recovered.seconds if recovered and recovered.changes else None
    return Durable(
        events_per_s=job.batch / float(np.median(seconds[1:])),
        how=f"one log write and one fsync a batch, on {filesystem(directory)}",
        recovery_changes_per_s=replayed,
    )


def latency(job: Job) -> dict[str, float]:
    """Wall time of db.run in memory, over many small batches."""
    app, db = loaded(job)
    how, seconds = policy(job), []
    with db:
        for i in range(SMALL_BATCHES + 20):
            events = bind(app, batch_of(job, SMALL_BATCH, i * SMALL_BATCH))
            begun = time.perf_counter()
            db.run(events, policy=how)
            seconds.append(time.perf_counter() - begun)
    p50, p99 = np.percentile(seconds[20:], [50, 99]) * 1000
    return {"p50": round(float(p50), 3), "p99": round(float(p99), 3)}


def compile_seconds(job: Job) -> dict[str, float]:
    """db.compile_s in two new processes that share one cache directory, empty for the first."""
    with tempfile.TemporaryDirectory(prefix="penstock-cache-") as cache:
        cold, warm = (_elsewhere("compile", job, PENSTOCK_CACHE_DIR=cache)["compile_s"] for _ in range(2))
    return {"cold": round(cold, 3), "warm": round(warm, 3)}


def working_memory(job: Job) -> dict[str, float]:
    return _elsewhere("working-memory", job)


def machine() -> str:
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return (
        f"{model}, {os.cpu_count()} cores, {platform.system()} {platform.release()}, Python {platform.python_version()}"
    )


def filesystem(path: Path) -> str:
    """The type of the file system that holds this path, as the kernel names it."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "an unknown file system"
    inside = [(where, kind) for where, kind in mounts if path.resolve().is_relative_to(where)]
    return max(inside, key=lambda m: len(m[0]))[1] if inside else "an unknown file system"


def _elsewhere(mode: str, job: Job, **environment: str) -> dict[str, float]:
    command = [sys.executable, "-m", "penstock.cli.probe", mode, json.dumps(asdict(job))]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise PenstockError(f"measuring {mode} in another process failed: {last}")
    return dict(json.loads(done.stdout))
