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
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.cli.job import Job
from penstock.errors import PenstockError
from penstock.observe.report import BatchReport
from penstock.schedule.policy import Policy
from penstock.workloads import bind, hand_written

Batch = dict[str, pa.Table]

SMALL_BATCH = 500  # events; a batch of a stream that is asked for low latency
SMALL_BATCHES = 400  # enough for a 99th percentile of four samples
NO_SNAPSHOTS = 10**9  # batches between snapshots; recovery then replays the log alone
LOG_BYTES = 32 << 20  # a log much longer than this gets a snapshot in any case


@dataclass(frozen=True, slots=True)
class InMemory:
    kernel: float  # events a second, as is `whole`
    whole: float
    threads: int  # of the last batch, as are `chosen` and `why`
    chosen: str
    why: str
    spent_ms: dict[str, float]  # of all threads together, by what it went to; the median over the batches
    stage_ms: dict[str, float]
    committed: int
    aborted: dict[str, int]


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


def policy(job: Job) -> Policy:
    return Policy.parse(job.policy, job.threads)


def in_memory(job: Job, given: Sequence[Batch]) -> InMemory:
    """Kernel and whole batches, and what became of the events."""
    app, db = loaded(job)
    how = policy(job)
    whole, reports = [], []
    with db:
        for batch in given:
            events = bind(app, batch)
            begun = time.perf_counter()
            db.run(events, policy=how)
            whole.append(time.perf_counter() - begun)
            reports.append(db.last_batch)
    counted = reports[1:]
    stages = {name: float(np.median([r.seconds[name] for r in counted])) for name in counted[0].seconds}
    aborted = Counter[str]()
    for report in counted:
        aborted.update(report.aborted)
    return InMemory(
        kernel=job.batch / stages["execute"],
        whole=job.batch / float(np.median(whole[1:])),
        threads=counted[-1].threads,
        chosen=counted[-1].policy,
        why=counted[-1].why,
        spent_ms=_spent_ms(counted),
        stage_ms={name: round(1000 * seconds, 3) for name, seconds in stages.items()},
        committed=sum(r.committed for r in counted),
        aborted=dict(aborted),
    )


def _spent_ms(reports: Sequence[BatchReport]) -> dict[str, float]:
    """Over those batches that ran as the last one did."""
    alike = [r.spent for r in reports if r.policy == reports[-1].policy]
    return {name: round(1000 * float(np.median([s[name] for s in alike])), 3) for name in alike[-1]}


def ratio(job: Job, given: Sequence[Batch]) -> float | None:
    """Kernel throughput / hand-written throughput, where there is a hand-written loop.

    Both run every batch, taking turns to be first: the second finds the events in the cache.
    """
    if job.workload != "sl" or job.keys != "int" or job.tuned:
        return None
    app, db = loaded(job)
    loop = HandWritten(job)
    how, ratios = policy(job), []
    with db:
        for i, batch in enumerate(given):
            by_hand = loop.run(batch) if i % 2 else None
            db.run(bind(app, batch), policy=how)
            by_hand = by_hand or loop.run(batch)
            ratios.append(by_hand.seconds / db.last_batch.seconds["execute"])
            if by_hand.committed != db.last_batch.committed:
                said = f"{by_hand.committed} events, the engine {db.last_batch.committed}"
                raise PenstockError(f"the hand-written loop committed {said}: one of them is wrong")
    return float(np.median(ratios[1:]))


@dataclass(frozen=True, slots=True)
class ByHand:
    seconds: float
    committed: int


class HandWritten:
    """The hand-written loop with its own state, kept in step with the database's."""

    def __init__(self, job: Job) -> None:
        self.state = hand_written.ledger(job.definition.tables(size=job.size, keys=job.keys))
        self.status = np.zeros(job.batch, np.uint8)
        self.balance = np.zeros(job.batch, np.int64)

    def run(self, batch: Batch) -> ByHand:
        """One batch; the time is that of the loop alone."""
        merged = hand_written.merge(batch)
        begun = time.perf_counter()
        committed = hand_written.run(self.state, merged, self.status, self.balance)
        return ByHand(time.perf_counter() - begun, committed)


def durable(job: Job, given: Sequence[Batch], path: Path) -> float:
    """Events a second of whole batches with a state directory, snapshots in the background as by default."""
    how, seconds = policy(job), []
    app, db = loaded(job, path)
    with db:
        for batch in given:
            events = bind(app, batch)
            begun = time.perf_counter()
            db.run(events, policy=how)
            seconds.append(time.perf_counter() - begun)
    return job.batch / float(np.median(seconds[1:]))


def recovery(job: Job, path: Path) -> float | None:
    """Changes a second of opening a directory whose log has no snapshot but the empty start.

    Its batches are at most 50,000 events each, so that the log can end before a snapshot is due.
    """
    events = min(job.batch, 50_000)
    app, db = loaded(job, path, snapshot_every=NO_SNAPSHOTS)
    with db:
        for i in range(job.batches + 1):
            db.run(bind(app, batch_of(job, events, i * events)), policy=policy(job))
            if sum(f.stat().st_size for f in path.rglob("*") if f.is_file()) > LOG_BYTES:
                break
    with app.open(path, snapshot_every=NO_SNAPSHOTS) as again:
        found = again.recovered
    return found.changes / found.seconds if found.changes else None


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
