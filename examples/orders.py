"""An order causes others: items are reserved and the customer charged, all or nothing; then it ships, on its own.

python examples/orders.py
"""

import os
import sys
import tempfile
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps

shop = ps.App("orders")


@shop.table
class Stock:
    item: str = ps.key()
    free: int = 0


@shop.table
class Account:
    id: str = ps.key()
    balance: Decimal = ps.decimal(18, 2, default=0)
    parcels: int = 0

    @ps.check("insufficient funds")
    def solvent(self) -> bool:
        return self.balance >= 0


@shop.event
class Order:
    ts: int = ps.order()
    id: str = ps.id()
    customer: str
    items: list[str]
    quantities: list[int]
    price: Decimal = ps.decimal(18, 2)


@shop.event
class Reserve:  # without ps.order(): transactions emit it
    item: str
    quantity: int


@shop.event
class Charge:
    customer: str
    price: Decimal = ps.decimal(18, 2)


@shop.event
class Ship:
    customer: str


@shop.event
class Shipped:  # no transaction takes it: it goes out
    customer: str
    parcel: int


@shop.transaction
def place(e: Order) -> None:
    for item, quantity in zip(e.items, e.quantities):
        ps.emit(Reserve(item=item, quantity=quantity))
    ps.emit(Charge(customer=e.customer, price=e.price))
    ps.emit(Ship(customer=e.customer))


@shop.transaction(nested=True)  # part of the transaction that emitted it
def reserve(e: Reserve) -> None:
    stock = Stock[e.item]
    ps.require(stock.free >= e.quantity, "out of stock")  # the whole order is undone
    stock.free -= e.quantity


@shop.transaction(nested=True)
def charge(e: Charge) -> None:
    Account[e.customer].balance -= e.price


@shop.transaction  # after the order has committed; may abort alone
def ship(e: Ship) -> None:
    customer = Account[e.customer]
    customer.parcels += 1
    ps.emit(Shipped(customer=e.customer, parcel=customer.parcels))


def main(folder: Path) -> None:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()
    state = folder / "state"
    shop.load(Stock, [{"item": "pen", "free": 5}, {"item": "ink", "free": 1}], state=state)
    shop.load(Account, [{"id": "ann", "balance": 20}], state=state)
    wanted, same = [([2, 1], 9), ([1, 1], 7), ([3, 0], 12), ([1, 0], 3)], {"customer": "ann", "items": ["pen", "ink"]}
    orders = [
        {"ts": ts, "id": f"o{ts}", **same, "quantities": n, "price": Decimal(price)}
        for ts, (n, price) in enumerate(wanted, 1)
    ]
    (folder / "orders").mkdir()
    pq.write_table(pa.Table.from_pylist(orders), folder / "orders" / "0.parquet")
    shop.start(
        {Order: ps.parquet(folder / "orders")},
        state=state,
        outcomes=folder / "out",
        outputs={Shipped: folder / "shipped"},
        trigger={"availableNow": True},
    ).awaitTermination()
    for o in pq.read_table(folder / "out").to_pylist():
        print(o["id"], o["step"], o["transaction"], o["status"], o["reason"] or "-")
    print([(o["id"], o["parcel"]) for o in pq.read_table(folder / "shipped").to_pylist()])
    with shop.open(state) as db:
        print(db.sql("select item, free from stock order by item").to_pylist())
    spark.stop()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(Path(directory))
