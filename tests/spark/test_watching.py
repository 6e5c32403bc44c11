"""What a team watches: a StreamingQueryListener that knows of each batch of a query what Penstock made of it."""

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

import penstock as ps
from penstock import observe

shop = ps.App("watched")


@shop.table
class Stock:
    item: str = ps.key()
    left: int = 4


@shop.event
class Sale:
    ts: int = ps.order()
    id: str = ps.id(unique=100)
    item: str


@shop.transaction
def sell(e: Sale) -> None:
    stock = Stock.get(e.item)
    ps.require(stock.left > 0, "sold out")
    stock.left -= 1


class Watch(StreamingQueryListener):
    """Spark's progress of a batch beside Penstock's report of it: the report is there first."""

    def __init__(self) -> None:
        self.reports: dict[tuple[Any, Any], observe.BatchReport] = {}
        self.batches: list[tuple[int, int, observe.BatchReport | None]] = []
        self.ended = False

    def on_batch(self, report: observe.BatchReport) -> None:
        self.reports[report.query, report.id] = report

    def onQueryStarted(self, event: Any) -> None:
        pass

    def onQueryProgress(self, event: Any) -> None:
        progress = event.progress
        report = self.reports.pop((str(progress.id), progress.batchId), None)
        self.batches.append((progress.batchId, progress.numInputRows, report))

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        self.ended = True


def _put(folder: Path, name: str, rows: list[tuple[int | None, str]]) -> None:
    folder.mkdir(exist_ok=True)
    schema = pa.schema([("ts", pa.int64()), ("id", pa.string()), ("item", pa.string())])
    table = pa.Table.from_pylist([{"ts": ts, "id": id_, "item": "a"} for ts, id_ in rows], schema)
    pq.write_table(table, folder / f"{name}.parquet")


def test_a_listener_joins_sparks_progress_and_the_report(spark: SparkSession, tmp_path: Path) -> None:
    _put(tmp_path / "in", "0", [(1, "a"), (2, "b"), (2, "a"), (None, "n")])
    _put(tmp_path / "in", "1", [(0, "z"), (3, "c"), (4, "d"), (5, "e")])
    watch = Watch()
    observe.subscribe(watch.on_batch)
    spark.streams.addListener(watch)
    try:
        query = shop.start(
            {Sale: ps.parquet(tmp_path / "in", files_per_batch=1)},
            state=tmp_path / "state",
            outcomes=tmp_path / "out",
            watermark=0,
            trigger={"availableNow": True},
        )
        query.awaitTermination()
        end = time.monotonic() + 120
        while not watch.ended:
            assert time.monotonic() < end
            time.sleep(0.05)
    finally:
        spark.streams.removeListener(watch)
        observe.unsubscribe(watch.on_batch)
    found = {
        id_: (report.committed, report.aborted, report.late, report.rejected, report.duplicate, report.held)
        for id_, _, report in watch.batches
        if report is not None
    }
    assert found[0] == (2, {}, 0, 1, 1, 0)
    assert found[1] == (2, {"sold out": 1}, 1, 0, 0, 0)
