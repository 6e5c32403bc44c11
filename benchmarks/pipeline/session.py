"""Spark: the session, a query run to its end, seconds by batch."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from benchmarks.pipeline.ledger import SCHEMA

CORES = 2
# Spark's own choice starts a process for each file that it makes, unless Hadoop's native library is there.
QUICK = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@contextmanager
def session(work: Path, quick: bool = False) -> Iterator[SparkSession]:
    """The one session that all peers run in. Its settings are Spark's own, but for places, memory and silence;
    quick: and for the way in which checkpoint files are made."""
    os.environ["PYSPARK_PYTHON"] = sys.executable  # workers start with this interpreter, and find this package
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in paths if p)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder
    for key, value in (QUICK if quick else {}).items():
        builder = builder.config(key, value)
    spark = (
        builder.master(f"local[{CORES}]")
        .appName("penstock-benchmarks")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.memory", "4g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.local.dir", str(work / "spark"))
        .config("spark.sql.warehouse.dir", str(work / "warehouse"))
        .config("spark.sql.shuffle.partitions", str(CORES))
        .config("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        .config("spark.sql.streaming.numRecentProgressUpdates", "1000")
        .getOrCreate()
    )
    try:
        yield spark
    finally:
        for query in spark.streams.active:
            query.stop()
        spark.stop()


def read(spark: SparkSession, path: Path) -> DataFrame:
    """The events as a stream, one file a batch."""
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(path))


def for_each(frame: DataFrame, function: Callable[[DataFrame, int], None], checkpoint: Path) -> Any:
    """The query, started; it ends when all files are read."""
    writer = frame.writeStream.foreachBatch(function).option("checkpointLocation", str(checkpoint))
    return writer.trigger(availableNow=True).start()


def finish(query: Any) -> list[dict[str, int]]:
    """Run to the end; durationMs of each batch, in order."""
    try:
        query.awaitTermination()
    finally:
        if query.isActive:
            query.stop()
    batches = {p["batchId"]: p["durationMs"] for p in query.recentProgress if "addBatch" in p["durationMs"]}
    return [dict(batches[i]) for i in sorted(batches)]


def seconds(durations: list[dict[str, int]]) -> list[float]:
    return [d["triggerExecution"] / 1000 for d in durations]


def write_outcomes(path: Path, batch: int, outcomes: pa.Table) -> None:
    """For peers that write outcomes from the driver: one file a batch, on disk before the batch is done."""
    path.mkdir(exist_ok=True)
    making, final = path / f".batch-{batch:05d}.tmp", path / f"batch-{batch:05d}.parquet"
    with open(making, "wb") as file:
        pq.write_table(outcomes, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(making, final)
