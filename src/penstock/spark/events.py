"""DataFrames of events: checked against the declaration, packed into one stream, and unpacked in the engine.

Several types of event make one stream, so that they can be merged in event order:

    kind   place   piece                 Transfer             Deposit
    0      null    null                  {ts, src, dst, …}    null
    1      null    null                  null                 {ts, account, …}
    2      7       in/part-7.parquet     null                 null          a direct source: the engine reads it

A DataFrame that is alone has nothing to be merged with, and goes as it is: half of the columns, and half of the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from penstock.declare.kinds import KINDS
from penstock.declare.model import EventDef, Program
from penstock.declare.types import Type
from penstock.errors import InputError
from penstock.spark.direct_source import DirectInput, DirectSource
from penstock.spark.threads import FEW_CORES

_TAKES = {row.name: tuple(getattr(T, name) for name in row.spark) for row in KINDS.values()}


def check(event: EventDef, frame: Any) -> None:
    """InputError that names every column that is missing or of another type."""
    if not isinstance(frame, DataFrame):
        raise InputError(
            f"event '{event.name}': its source is {type(frame).__name__}; give a DataFrame, ps.parquet(…) or "
            "ps.kafka(…)"
        )
    given = {f.name: f.dataType for f in frame.schema.fields}
    wrong = []
    for field in event.fields:
        if field.name not in given and not field.required:
            continue
        if field.name not in given:
            wrong.append(f"column '{field.name}' ({field.type}) is missing")
        elif not _fits(field.type, given[field.name]):
            wrong.append(f"column '{field.name}' is {given[field.name].simpleString()}, not {field.type}")
    if wrong:
        raise InputError(
            f"event '{event.name}': {'; '.join(wrong)}; its DataFrame has {', '.join(given) or 'no columns'}"
        )


def _fits(type_: Type, given: T.DataType) -> bool:
    if not isinstance(given, _TAKES[type_.kind]):
        return False
    return type_.item is None or _fits(type_.item, given.elementType)  # an ArrayType


def by_event(program: Program, sources: dict[Any, Any]) -> dict[EventDef, Any]:
    """Sources by the event they are of; keys may be event types or names."""
    if not isinstance(sources, dict) or not sources:
        raise InputError(f"app '{program.name}': give a source for each event, {{Transfer: dataframe}}")
    out = {}
    for key, source in sources.items():
        name = key if isinstance(key, str) else getattr(getattr(key, "definition", None), "name", repr(key))
        event = program.event(name)
        if event is None or program.transaction_of(event) is None:
            names = ", ".join(t.event.name for t in program.transactions)
            raise InputError(f"app '{program.name}' has no transaction for event {name}; it has {names}")
        out[event] = source
    return out


def alone(sources: dict[EventDef, Any]) -> EventDef | None:
    """The event whose DataFrame is the only source."""
    event, *others = sources
    return None if others or isinstance(sources[event], DirectInput) else event


def pack(spark: Any, program: Program, sources: dict[EventDef, Any], state: str) -> DataFrame:
    """All sources as one streaming DataFrame."""
    frames = []
    for event, source in sources.items():
        if not isinstance(source, DirectInput):
            check(event, source)
    only = alone(sources)
    if only is not None:
        return sources[only].select(*fields(only, sources[only]))
    for event, source in sources.items():
        direct = isinstance(source, DirectInput)
        frame = source.of(event.name, state).stream(spark) if direct else source
        columns = [
            F.lit(program.kind(event.name)).alias("kind"),
            (F.col("place") if direct else F.lit(None).cast("long")).alias("place"),
            (F.col("piece") if direct else F.lit(None).cast("string")).alias("piece"),
        ]
        for other, its in sources.items():
            if isinstance(its, DirectInput):
                continue
            struct = F.struct(*fields(other, its)) if other is event else None
            wanted = _struct_type(other, its)
            columns.append((F.lit(None).cast(wanted) if struct is None else struct).alias(other.name))
        frames.append(frame.select(*columns))
    return reduce(lambda a, b: a.unionByName(b), frames)


def fields(event: EventDef, frame: DataFrame) -> list[Any]:
    """The columns of an event that its DataFrame has: intake fills in the others."""
    # The names may be written in any case in Spark; the engine wants them as they were declared.
    return [F.col(f"`{f.name}`").alias(f.name) for f in event.fields if f.name in frame.columns]


def _struct_type(event: EventDef, frame: DataFrame) -> T.StructType:
    given = {f.name: f.dataType for f in frame.schema.fields}
    return T.StructType([T.StructField(f.name, given[f.name]) for f in event.fields if f.name in given])


def unpack(
    program: Program, packed: pa.Table, only: str | None = None, sources: Sequence[DirectSource] = ()
) -> dict[str, Any]:
    """The batch's events as the engine takes them: event name -> Arrow table. only: the event that came alone.
    sources: the direct ones, which read what the batch has only the names of."""
    if only is not None:
        return {only: packed} if packed.num_rows else {}
    kinds = packed.column("kind")
    out = {}
    for number, event in enumerate(program.events):
        mine = packed.filter(pa.compute.equal(kinds, number))
        if mine.num_rows == 0:
            continue
        pieces = mine.filter(mine.column("piece").is_valid()).sort_by("place").column("piece").to_pylist()
        if pieces:
            source = next(s for s in sources if s.event == event.name)
            out[event.name] = source.read(event, pieces, named=False, threads=not FEW_CORES)
        else:
            rows = mine.column(event.name)
            out[event.name] = pa.Table.from_arrays(rows.flatten(), names=[f.name for f in rows.type])
    return out
