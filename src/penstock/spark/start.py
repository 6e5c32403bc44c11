"""Start, apply, load: an app's transactions over DataFrames. Read this file first.

    sources ──pack──> one streaming DataFrame ──foreachBatch──> MicroBatch ──> database ──> outcomes
    (events.py, direct_source.py)                               (batch.py)     (databases.py)

Spark does the sources, the offsets and the restarts; its checkpoint lies in the state directory.
"""

from __future__ import annotations

import datetime
import logging
import os
import shutil
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from penstock.commit import Disk
from penstock.declare.model import EventDef, Program
from penstock.declare.objects import EventType, Table
from penstock.declare.spans import microseconds_of
from penstock.errors import InputError
from penstock.execute.called import events_called
from penstock.execute.loading import OnConflict
from penstock.execute.request import AHEAD, Admission, Ahead, OnBad, checked_on_bad, is_default
from penstock.plan.ir import Plan
from penstock.publish.files import OutcomeFiles, plain
from penstock.serve.http.child import Served
from penstock.serve.http.options import Options, need_extra
from penstock.spark import databases, events, same_sources
from penstock.spark.batch import MicroBatch
from penstock.spark.checkpoint import CHECKPOINT, last_done
from penstock.spark.databases import DatabaseSpec
from penstock.spark.direct_source import DirectInput, DirectSource
from penstock.spark.files import Files
from penstock.spark.idle import Idle
from penstock.spark.outcome_sink import OutcomeSink, SinkInput
from penstock.spark.query import closing_query
from penstock.spark.workers import is_connect
from penstock.store.durable import SOURCE

Outcomes = str | os.PathLike[str] | SinkInput | Callable[[DataFrame, int], Any]


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
    _refuse_odd(program, outcomes, trigger)
    spark = _session(wanted)
    spec = databases.spec(plan, state, **options)
    if not is_connect(spark):
        wanted = _as_before(program, wanted, spec)
    delay, admission = delay_of(program, watermark), _admission(program, on_bad, ahead)
    idle_after = _idle_after(program, idle, outcomes, spark)
    # Under Spark Connect the database lives on the server's side; in classic Spark it is this process that opens it,
    # and what is wrong with the directory is said here and now.
    local = not is_connect(spark)
    serves = None if serve is None else _serves(program, serve, spec, local=local)
    only = events.alone(wanted)
    batch = MicroBatch(
        spec,
        _sink(outcomes, spec),
        delay,
        _outputs(program, outputs or {}, outcomes, spec),
        direct=_direct(wanted, spec),
        all_direct=all(isinstance(source, DirectInput) for source in wanted.values()),
        alone=only.name if only else None,
        all_listed="availableNow" in (trigger or {}),
        calls=calls if isinstance(calls, bool) else events_called(program, calls),
        awaits=not local,
        admission=admission,
    )
    for event, source in wanted.items():
        # Beside a stream, a static one would be read again with every batch.
        if isinstance(source, DataFrame) and not source.isStreaming:
            raise InputError(f"event '{event.name}': start takes streaming DataFrames; for static ones use apply")
    packed = events.pack(spark, program, wanted, spec.path)
    _warn_of_lost(program, outputs or {})
    held, served = False, None
    if local:
        opened = databases.reserve(spec)
        try:
            batch.catch_up(opened, spark)
            if opened.database.source is None and last_done(spec.path) is None:
                _sweep(spec.path, wanted)
            held = bool(opened.database.held)
            served = serves() if serves is not None else None
        except BaseException:
            databases.release(spec.path)
            raise
    try:
        writer = packed.writeStream.foreachBatch(batch).option("checkpointLocation", str(Path(spec.path) / CHECKPOINT))
        writer = writer.queryName(name) if name else writer
        query = (writer.trigger(**trigger) if trigger else writer).start()
    except BaseException:
        if served is not None:
            served.stop()
        databases.release(spec.path)
        raise
    if local:
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


def _serves(program: Program, listen: Any, spec: DatabaseSpec, *, local: bool) -> Callable[[], Served]:
    """Starts a server over the state directory, once that is there."""
    if not isinstance(listen, str):
        raise InputError(f"app '{program.name}': serve={listen!r} is not an address, such as '127.0.0.1:7400'")
    if not local:
        raise InputError(
            f"app '{program.name}': serve= is not there under Spark Connect, whose engine runs elsewhere; run penstock "
            "serve where the state directory is"
        )
    need_extra()
    options = Options(Path(spec.path), listen)
    options.check()
    return partial(Served, options)


def _refuse_odd(program: Program, outcomes: Any, trigger: Any) -> None:
    """What pyspark or pathlib would refuse in words of their own, which do not say what to give."""
    if not (callable(outcomes) or isinstance(outcomes, str | os.PathLike | SinkInput)):
        raise InputError(
            f"app '{program.name}': outcomes={outcomes!r} is not a directory, ps.kafka_sink(…) or "
            "f(dataframe, batch_id)"
        )
    if trigger is not None and not isinstance(trigger, dict):
        raise InputError(f"app '{program.name}': trigger={trigger!r} is not a dict, such as {{'availableNow': True}}")


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


def _as_before(program: Program, sources: dict[EventDef, Any], spec: DatabaseSpec) -> dict[EventDef, Any]:
    """The sources in their places; as they are given, where no batch of an earlier query has come to the engine."""
    try:
        return same_sources.as_before(program, sources, spec.path)
    except InputError:
        if last_done(spec.path) is not None:
            raise
        with databases.using(spec) as database:
            if database.source is not None:
                raise
            same_sources.forget(spec.path)
        return sources


def _sweep(state: str, sources: dict[EventDef, Any]) -> None:
    """Before the first batch has reached the engine. What direct sources have planned by then is found again, and may
    have been of a wrong directory; a DataFrame's plan may say where it began. Spark refuses a checkpoint in which a
    kill or a full disk left parts of its very first batch: without a plan there is nothing in it to keep."""
    if all(isinstance(source, Files) for source in sources.values()):
        same_sources.forget(state)
        return
    checkpoint = Path(state) / CHECKPOINT
    offsets = checkpoint / "offsets"
    if offsets.is_dir() and not any(entry.name.isdigit() for entry in offsets.iterdir()):
        for entry in checkpoint.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)


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
    admission = _admission(program, on_bad, ahead)
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


def _admission(program: Program, on_bad: Any, ahead: Any) -> Admission:
    """What becomes of rows that cannot be events; the default is for datetimes, where they are to be rejected."""
    on_bad, ts = checked_on_bad(program, on_bad), program.order_type()
    if is_default(ahead) and (on_bad == "fail" or ts is None or ts.kind != "datetime"):
        ahead = None
    return Admission(on_bad, delay_of(program, ahead, "ahead"))


def _idle_after(program: Program, idle: Any, outcomes: Any, spark: Any) -> int | None:
    """After how many microseconds a stream is idle."""
    if idle is None:
        return None
    ts, where = program.order_type(), f"app '{program.name}': idle={idle!r} "
    if ts is None or ts.kind != "datetime":
        raise InputError(
            f"{where}moves the clock by the wall clock, and ts is {ts}; declare the order as a datetime, or call "
            "db.advance yourself"
        )
    if callable(outcomes):
        raise InputError(
            f"{where}makes versions between Spark's batches; give a directory for outcomes, not a function"
        )
    if is_connect(spark):
        raise InputError(f"{where}is not there under Spark Connect; use a session of classic Spark")
    after = delay_of(program, idle, "idle")
    if not after:
        raise InputError(f"{where}is no time to wait for; give one, such as '30 seconds'")
    return after


def delay_of(
    program: Program, watermark: str | int | datetime.timedelta | None, option: str = "watermark"
) -> int | None:
    """A watermark in the unit of the order column: "5 seconds" or a timedelta for datetimes, an int for ints."""
    if watermark is None:
        return None
    ts = program.order_type()
    is_time = ts is not None and ts.kind == "datetime"
    if isinstance(watermark, int) and not isinstance(watermark, bool) and watermark >= 0:
        return watermark
    told = microseconds_of(watermark)
    if told is not None and is_time:
        return told
    if is_time and isinstance(watermark, datetime.timedelta) and watermark >= datetime.timedelta(0):
        return watermark // datetime.timedelta(microseconds=1)
    takes = "an int, in the unit of its order column"
    if is_time:
        takes = '"5 seconds", a timedelta or a number of microseconds'
    raise InputError(f"app '{program.name}': {option}={watermark!r} is not {takes}")


def _sink(outcomes: Outcomes, spec: DatabaseSpec) -> OutcomeSink | Callable[[Any, int], Any]:
    if callable(outcomes):
        return outcomes
    return outcomes.of("outcomes", spec.path) if isinstance(outcomes, SinkInput) else _files(outcomes, spec)


def _outputs(
    program: Program, outputs: dict[Any, Any], outcomes: Outcomes, spec: DatabaseSpec
) -> tuple[tuple[str, OutcomeSink], ...]:
    """Each event that goes out, and where to."""
    known = [event.name for event in program.outputs()]
    taken = {} if callable(outcomes) else {_place(outcomes): "outcomes"}
    out = list[tuple[str, OutcomeSink]]()
    for event, path in outputs.items():
        name = event.definition.name if isinstance(event, EventType) else event
        if name not in known:
            raise InputError(
                f"app '{program.name}' has no output {name!r}: an output is an event that is emitted, and that no "
                f"transaction takes; its outputs are {', '.join(known) or 'none'}"
            )
        if not isinstance(path, str | os.PathLike | SinkInput):
            raise InputError(f"output '{name}': {path!r} is not a directory, or ps.kafka_sink(…)")
        twin = taken.setdefault(_place(path), f"output '{name}'")
        if twin != f"output '{name}'":
            what = f"topic, '{path.place[1]}'" if isinstance(path, SinkInput) else f"directory, {path}"
            raise InputError(f"output '{name}' and {twin} have one {what}; give each its own")
        out.append((name, path.of(f"output-{name}", spec.path) if isinstance(path, SinkInput) else _files(path, spec)))
    return tuple(out)


def _place(given: Any) -> object:
    return given.place if isinstance(given, SinkInput) else Path(given).absolute()


def _warn_of_lost(program: Program, outputs: dict[Any, Any]) -> None:
    """Somebody wrote these emits for somebody to read them. It is no error: they may be read by `db.emitted`."""
    given = {event.definition.name if isinstance(event, EventType) else event for event in outputs}
    for event in program.outputs():
        if event.name not in given:
            logging.getLogger("penstock").warning(
                "app '%s' emits '%s', no transaction takes it, and outputs= does not name it: it goes to no file; give "
                "outputs={%s: DIR} (penstock run: --output %s=DIR)",
                *(program.name, event.name, event.name, event.name),
            )


def _files(path: str | os.PathLike[str], spec: DatabaseSpec) -> OutcomeFiles:
    return OutcomeFiles(str(Path(path).absolute()), spec.path, spec.options.get("disk") or Disk())


def _session(sources: dict[Any, Any]) -> Any:
    for source in sources.values():
        if isinstance(source, DataFrame):
            return source.sparkSession
    session = SparkSession.getActiveSession()
    if session is None:
        raise InputError("there is no Spark session; make one first: SparkSession.builder.getOrCreate()")
    return session
