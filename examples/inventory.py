"""A shop's stock on Spark: orders of many items, taken whole or not at all, and restocking, from two streams.

python examples/inventory.py
"""

import datetime as dt
import os
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps

shop = ps.App("shop")


@shop.table
class Stock:
    warehouse: str = ps.key()
    item: str = ps.key()
    quantity: int = 0
    sold: int = 0


@shop.event
class Order:
    at: dt.datetime = ps.order()
    id: str = ps.id()
    warehouse: str
    items: list[str]
    quantities: list[int]


@shop.event
class Restock:
    at: dt.datetime = ps.order()
    warehouse: str
    item: str
    quantity: int


@shop.transaction
def order(e: Order) -> dict[str, int]:
    units = 0
    for item, quantity in zip(e.items, e.quantities):
        stock = Stock[e.warehouse, item]
        ps.require(stock.quantity >= quantity, "out of stock")
        stock.quantity -= quantity
        stock.sold += quantity
        units += quantity
    return {"units": units}


@shop.transaction
def restock(e: Restock) -> None:
    Stock.get(e.warehouse, e.item).quantity += e.quantity  # a new record where there is none


def main(folder: Path) -> None:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()
    place, noon = {"warehouse": "north"}, dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
    # o2 finds no ink, so it takes no pens either; o3 is the same order after the restocking.
    wanted = [(10, "o1", [2, 1]), (20, "o2", [5, 9]), (40, "o3", [5, 9])]
    orders = [
        {"at": noon.replace(second=s), "id": i, **place, "items": ["pen", "ink"], "quantities": n} for s, i, n in wanted
    ]
    came = [(1, "pen", 9), (2, "ink", 3), (30, "ink", 7)]
    restocks = [{"at": noon.replace(second=s), **place, "item": item, "quantity": n} for s, item, n in came]
    for name, rows in {"orders": orders, "restocks": restocks}.items():
        (folder / name).mkdir()
        pq.write_table(pa.Table.from_pylist(rows), folder / name / "0.parquet")
    sources = {Order: ps.parquet(folder / "orders"), Restock: ps.parquet(folder / "restocks")}
    now = {"availableNow": True}
    shop.start(sources, state=folder / "state", outcomes=folder / "out", trigger=now).awaitTermination()
    for o in pq.read_table(folder / "out").to_pylist():
        print(o["ts"].strftime("%H:%M:%S"), o["transaction"], o["id"] or "-", o["status"], o["reason"] or o["units"])
    with shop.open(folder / "state") as db:
        print(db.sql("select item, quantity, sold from stock order by item").to_pylist())
    spark.stop()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(Path(directory))
