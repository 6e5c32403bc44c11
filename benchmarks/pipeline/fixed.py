"""Penstock alone: what a micro-batch costs before the first event, what an event costs, and where the time goes."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import penstock as ps
from benchmarks.pipeline import session
from benchmarks.pipeline.ledger import Stream
from benchmarks.pipeline.peers import Job
from benchmarks.pipeline.penstock_peer import stream as run_penstock

SOURCES = {"a1": "a DataFrame", "a2": "ps.parquet"}
Fresh = Callable[[], Path]  # an empty directory


def source(name: str, job: Job) -> Any:
    return session.read(job.spark, job.events) if name == "a1" else ps.parquet(job.events, files_per_batch=1)


def overhead(spark: Any, stream: Stream, fresh: Fresh, batches: int = 20) -> list[dict[str, Any]]:
    """A batch of 1000 events against one of which nothing is made, from the same source."""
    thousand, none = fresh() / "events", fresh() / "events"
    stream.write(thousand, 1000, batches + 1)
    stream.write(none, 0, batches + 1)
    rows = []
    for name, title in SOURCES.items():
        ms = {}
        for what, events, batch in (("thousand", thousand, 1000), ("no_events", none, 0)):
            job = Job(spark, stream, events, fresh(), batch, batches + 1)
            ms[what] = _median_ms(run_penstock(job, source(name, job)))
        job = Job(spark, stream, thousand, fresh(), 1000, batches + 1)
        ms["empty"] = _median_ms(_nothing(name, job))
        rows.append({"source": title, "batches": batches, **ms, "added": ms["thousand"] - ms["empty"]})
    return rows


def _nothing(name: str, job: Job) -> list[dict[str, int]]:
    given = source(name, job)
    if name == "a2":
        given = given.of("Payment", str(job.work / "state")).stream(job.spark)
    return session.finish(session.for_each(given, lambda frame, batch_id: None, job.work / "checkpoint"))


def _median_ms(durations: list[dict[str, int]]) -> float:
    return statistics.median(d["triggerExecution"] for d in durations[1:])


def flat(spark: Any, stream: Stream, fresh: Fresh, sizes: tuple[int, ...]) -> list[dict[str, Any]]:
    """The price of an event at each size of batch: of all, of what a batch costs beside one that does nothing, and of
    each event more than the next smaller size has, which says whether the price is flat."""
    rows: list[dict[str, Any]] = []
    few = fresh() / "events"
    stream.write(few, 1000, 11)
    empty = {name: _median_ms(_nothing(name, Job(spark, stream, few, fresh(), 1000, 11))) for name in SOURCES}
    for size in sorted(sizes):
        batches = 1 + (10 if size <= 100_000 else 4)
        events = fresh() / "events"
        stream.write(events, size, batches)
        for name in SOURCES:
            job = Job(spark, stream, events, fresh(), size, batches)
            ms = _median_ms(run_penstock(job, source(name, job)))
            price = {"us_per_event": 1000 * ms / size, "us_per_event_added": 1000 * (ms - empty[name]) / size}
            smaller = [row for row in rows if row["peer"] == name and row["batch"] < size][-1:]
            for row in smaller:
                price["us_per_event_more"] = 1000 * (ms - row["ms"]) / (size - row["batch"])
            rows.append({"peer": name, "batch": size, "batches": batches - 1, "ms": ms, "empty": empty[name], **price})
    return rows


def profile(spark: Any, stream: Stream, fresh: Fresh, batch: int, batches: int = 5) -> list[dict[str, Any]]:
    """Milliseconds by stage. What is inside another stage is set in under it."""
    events = fresh() / "events"
    stream.write(events, batch, batches + 1)
    rows = []
    for name in SOURCES:
        job = Job(spark, stream, events, fresh(), batch, batches + 1)
        with watched() as spent:
            durations = run_penstock(job, source(name, job))
        ms = {"all (triggerExecution)": _median_ms(durations)}
        for stage, times in spent.items():
            # The first of each is the warm-up's.
            ms[f"  {stage}"] = 1000 * statistics.median(times[1:]) if len(times) > 1 else 1000 * times[0]
        for stage in durations[-1]:
            if stage != "triggerExecution":
                ms[f"Spark: {stage}"] = statistics.median(d.get(stage, 0) for d in durations[1:])
        rows.append({"peer": name, "batch": batch, "batches": batches, "ms": ms})
    return rows


@contextmanager
def watched() -> Iterator[dict[str, list[float]]]:
    """Seconds of each call inside a micro-batch, by stage, while the block runs."""
    from pyspark.sql.classic.dataframe import DataFrame

    from penstock.database import Database
    from penstock.publish.files import OutcomeFiles
    from penstock.spark import events

    spent: dict[str, list[float]] = defaultdict(list)
    replaced = []

    def watch(owner: Any, name: str, stage: str, after: Callable[[Any], None] | None = None) -> None:
        original = getattr(owner, name)

        def timed(*args: Any, **named: Any) -> Any:
            begun = time.perf_counter()
            out = original(*args, **named)
            spent[stage].append(time.perf_counter() - begun)
            if after is not None:
                after(args[0])
            return out

        replaced.append((owner, name, original))
        setattr(owner, name, timed)

    def stages(database: Any) -> None:
        for stage, seconds in database.last_batch.seconds.items():
            spent[f"  {stage}"].append(seconds)

    watch(DataFrame, "toArrow", "toArrow")
    watch(events, "unpack", "unpack (a2: reads the file)")
    watch(Database, "run", "engine", stages)
    watch(OutcomeFiles, "write", "outcomes to Parquet, fsync")
    try:
        yield spent
    finally:
        for owner, name, original in replaced:
            setattr(owner, name, original)
