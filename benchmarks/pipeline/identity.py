"""b: Spark alone. The rows go through Python (mapInArrow) unchanged and into Parquet: no state, no transactions."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql import DataFrame

from benchmarks.pipeline import session
from benchmarks.pipeline.ledger import SCHEMA
from benchmarks.pipeline.peers import CannotRun, Done, Job, Peer


def unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def run(job: Job) -> Done:
    if importlib.util.find_spec("pandas") is None:
        raise CannotRun("pyspark's mapInArrow needs pandas: pip install 'pandas<3'")
    out = str(job.work / "outcomes")

    def each(frame: DataFrame, batch_id: int) -> None:
        frame.mapInArrow(unchanged, SCHEMA).write.mode("append").parquet(out)

    query = session.for_each(session.read(job.spark, job.events), each, job.work / "checkpoint")
    durations = session.finish(query)
    rows = ds.dataset(out, format="parquet").count_rows()
    if rows != job.count:
        raise AssertionError(f"the identity pipeline wrote {rows} rows of {job.count}")
    return Done(durations)


PEERS = [Peer("b", "Spark, identity mapInArrow, no state", "none: no state; files not fsynced", run, whole=False)]
