"""DataFrames and files may lack a field that has a default; None goes in, and comes out of the reader."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:pyspark")]

NOW = {"availableNow": True}

shop = ps.App("shop")


@shop.table
class Order:
    id: str = ps.key()
    kind: str | None
    count: int = 0


@shop.event
class Change:
    ts: int = ps.order()
    id: str
    kind: str | None
    by: int = 3
    note: str | None = None


@shop.transaction
def change(e: Change):
    order = Order.get(e.id)
    order.kind = e.kind
    order.count += e.by
    return {"note": e.note, "was": e.kind or "none"}


def test_what_a_dataframe_lacks_takes_its_default(spark: Any, tmp_path: Path) -> None:
    frame = spark.createDataFrame([(1, "a", "x"), (2, "b", None), (3, "a", None)], "ts long, id string, kind string")
    out = shop.apply({Change: frame}, state=tmp_path / "applied").toPandas()
    assert list(out.sort_values("ts")["was"]) == ["x", "none", "none"]
    frame.write.parquet(str(tmp_path / "in"))
    source = spark.readStream.schema("ts long, id string, kind string").parquet(str(tmp_path / "in"))
    query = shop.start({Change: source}, state=tmp_path / "streamed", outcomes=str(tmp_path / "out"), trigger=NOW)
    query.awaitTermination()
    session = spark.newSession()  # the tests' own one stays without the format, or no other could have it
    ps.register(session)
    for state in ("applied", "streamed"):
        read = session.read.format("penstock").option("table", "Order").load(str(tmp_path / state))
        assert read.schema["kind"].nullable and not read.schema["count"].nullable
        rows = {row["id"]: (row["kind"], row["count"]) for row in read.collect()}
        assert rows == {"a": (None, 6), "b": (None, 3)}
        assert read.where("kind is null").count() == 2


def test_files_of_a_direct_source_may_differ(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    bare = pa.table({"ts": [1, 2], "id": ["a", "b"], "kind": ["x", None]})
    pq.write_table(bare, tmp_path / "in" / "1.parquet")
    more = pa.table({"ts": [3, 4], "id": ["a", "b"], "kind": [None, "y"], "by": [10, 20], "note": [None, "n"]})
    pq.write_table(more, tmp_path / "in" / "2.parquet")
    query = shop.start(
        {Change: ps.parquet(tmp_path / "in")}, state=tmp_path / "state", outcomes=str(tmp_path / "out"), trigger=NOW
    )
    query.awaitTermination()
    with shop.open(tmp_path / "state") as db:
        rows = {row["id"]: (row["kind"], row["count"]) for row in db.table(Order).to_pylist()}
    assert rows == {"a": (None, 13), "b": ("y", 23)}
