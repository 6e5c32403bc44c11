"""Start, apply, load: an app's transactions over DataFrames. Read this file first.

    sources ──pack──> one streaming DataFrame ──foreachBatch──> MicroBatch ──> database ──> outcomes
    (events.py, direct_source.py)                               (batch.py)     (databases.py)

Spark does the sources, the offsets and the restarts; its checkpoint lies in the state directory.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from penstock.declare.model import EventDef
from penstock.declare.objects import Table
from penstock.errors import InputError
from penstock.execute.called import events_called
from penstock.execute.loading import OnConflict
from penstock.execute.request import AHEAD, Ahead, OnBad
from penstock.plan.ir import Plan
from penstock.publish.files import plain
from penstock.serve.http.child import Served
from penstock.serve.http.options import Options
from penstock.spark import arguments, databases, events, same_sources, sinks
from penstock.spark.batch import MicroBatch
from penstock.spark.checkpoint import CHECKPOINT
from penstock.spark.databases import DatabaseSpec, OpenDatabase
from penstock.spark.direct_source import DirectInput, DirectSource
from penstock.spark.idle import Idle
from penstock.spark.query import closing_query
from penstock.spark.sinks import Outcomes
from penstock.spark.workers import is_connect
from penstock.store.durable import SOURCE


def start(
    plan: Plan,
    sources: dict[Any, Any],
    *,
    state: str | os.PathLike[str],
    outcomes: Outcomes,
    watermark: str | int | datetime.timedelta | None = None,
    trigger: dict[str, Any] | None = None,
    name: str | None = None,
    outputs: dict[Any, Any] | None = None,
    calls: bool | Iterable[Any] = False,
    serve: str | None = None,
    idle: str | int | datetime.timedelta | None = None,
    on_bad: OnBad = "reject",
    ahead: Ahead = AHEAD,
    **options: Any,
) -> Any:
    """Start a streaming query; pyspark's own StreamingQuery."""
    program = plan.program
    wanted = events.by_event(program, sources)
    arguments.refuse_odd(program, outcomes, trigger)
    spark = _session(wanted)
    spec = databases.spec(plan, state, **options)
    # Under Spark Connect the database lives on the server's side; in classic Spark it is this process that opens it,
    # and what is wrong with the directory is said here and now.
    local = not is_connect(spark)
    if local:
        wanted = same_sources.of_query(program, wanted, spec)
    delay, admission = arguments.span(program, "watermark", watermark), arguments.admission(program, on_bad, ahead)
    idle_after = arguments.idle_after(program, idle, outcomes, spark)
    serving = None if serve is None else arguments.serving(program, serve, spec.path, spark)
    only = events.alone(wanted)
    batch = MicroBatch(
        spec,
        sinks.of_outcomes(outcomes, spec),
        delay,
        sinks.of_outputs(program, outputs or {}, outcomes, spec),
        direct=_direct(wanted, spec),
        all_direct=all(isinstance(source, DirectInput) for source in wanted.values()),
        alone=only.name if only else None,
        all_listed="availableNow" in (trigger or {}),
        calls=calls if isinstance(calls, bool) else events_called(program, calls),
        awaits=not local,
        admission=admission,
    )
    _refuse_static(wanted)
    packed = events.pack(spark, program, wanted, spec.path)
    sinks.warn_of_lost(program, outputs or {})
    opened = _opened(batch, spark, wanted) if local else None
    held = opened is not None and bool(opened.database.held)  # before the query takes any of it
    served = None if serving is None else _served(serving)
    query = _query(packed, batch, trigger, name, served)
    if opened is not None:
        databases.attach(spec.path, query)
        if idle_after is not None:
            opened.idle = Idle(partial(batch.go_on, opened), idle_after, delay or 0)
            opened.idle.start()
    ends = bool({"availableNow", "once"} & set(trigger or {}))
    drains = ends and (delay is not None or held or bool(program.batches))
    if not (local or drains):
        return query
    drain = batch.drain if local else partial(_drain_remotely, batch)
    return closing_query(query, spec.path, partial(drain, spark) if drains else None, served)


def _refuse_static(sources: dict[EventDef, Any]) -> None:
    """Beside a stream, a static DataFrame would be read again with every batch."""
    for event, source in sources.items():
        if isinstance(source, DataFrame) and not source.isStreaming:
            raise InputError(f"event '{event.name}': start takes streaming DataFrames; for static ones use apply")


def _opened(batch: MicroBatch, spark: Any, sources: dict[EventDef, Any]) -> OpenDatabase:
    """The database that the query will use, with what a crash kept from being written."""
    path = batch.spec.path
    opened = databases.reserve(batch.spec)
    try:
        batch.catch_up(opened, spark)
        same_sources.sweep(opened.database, path, sources)
    except BaseException:
        databases.release(path)
        raise
    return opened


def _served(options: Options) -> Served:
    """The server of the query's state directory, which is there by now."""
    try:
        return Served(options)
    except BaseException:
        databases.release(os.fspath(options.state))
        raise


def _query(
    packed: DataFrame, batch: MicroBatch, trigger: dict[str, Any] | None, name: str | None, served: Served | None
) -> Any:
    """Spark's own query; where it does not start, nobody keeps the directory."""
    path = batch.spec.path
    try:
        writer = packed.writeStream.foreachBatch(batch).option("checkpointLocation", str(Path(path) / CHECKPOINT))
        writer = writer.queryName(name) if name else writer
        return (writer.trigger(**trigger) if trigger else writer).start()
    except BaseException:
        if served is not None:
            served.stop()
        databases.release(path)
        raise


def _direct(sources: dict[Any, Any], spec: DatabaseSpec) -> tuple[DirectSource, ...]:
    """The sources that the engine reads itself."""
    direct = {event: source for event, source in sources.items() if isinstance(source, DirectInput)}
    for event, source in direct.items():
        if spec.options.get("log") == SOURCE and not source.can_be_log:
            raise InputError(
                f"event '{event.name}': log=\"source\" would read {source.way} again to recover, and what is there by "
                'then is not for Penstock to say; use log="changes" or log="input"'
            )
    return tuple(source.of(event.name, spec.path) for event, source in direct.items())


def _drain_remotely(batch: MicroBatch, spark: Any) -> None:
    """The engine is on the server's side, where only a query's function gets to: here a query of one batch."""
    once = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()

    def drain(frame: Any, _: int) -> None:
        batch.drain(frame.sparkSession)

    once.writeStream.foreachBatch(drain).trigger(availableNow=True).start().awaitTermination()


def apply(
    plan: Plan,
    sources: dict[Any, Any],
    *,
    state: str | os.PathLike[str],
    on_bad: OnBad = "reject",
    ahead: Ahead = None,
    **options: Any,
) -> DataFrame:
    """Run static DataFrames as one batch; its outcomes."""
    program = plan.program
    admission = arguments.admission(program, on_bad, ahead)
    wanted = events.by_event(program, sources)
    spark = _session(wanted)
    for event, frame in wanted.items():
        if isinstance(frame, DirectInput) or frame.isStreaming:
            raise InputError(f"event '{event.name}': apply takes static DataFrames; for streams use start")
        events.check(event, frame)
    batch = {e.name: f.select(*events.fields(e, f)).toArrow() for e, f in wanted.items()}
    with databases.using(databases.spec(plan, state, **options)) as database:
        return spark.createDataFrame(plain(database.run(batch, _admission=admission)))


def load(
    plan: Plan,
    table: Table | str,
    rows: Any,
    on_conflict: OnConflict,
    check: bool,
    *,
    state: str | os.PathLike[str],
    **options: Any,
) -> None:
    """Fill a table of a state directory: rows, Arrow or a DataFrame."""
    with databases.using(databases.spec(plan, state, **options)) as database:
        database.load(table, rows.toArrow() if isinstance(rows, DataFrame) else rows, on_conflict, check)


def _session(sources: dict[Any, Any]) -> Any:
    for source in sources.values():
        if isinstance(source, DataFrame):
            return source.sparkSession
    session = SparkSession.getActiveSession()
    if session is None:
        raise InputError("there is no Spark session; make one first: SparkSession.builder.getOrCreate()")
    return session
