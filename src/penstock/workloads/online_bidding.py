"""Online Bidding: a shop's items are bid for, repriced and topped up (TStream 2 and 6.1.1).

    Bid    (item, price, quantity)    takes from 1 item, if the price is met and the stock is there
    Alter  (items, prices)            reprices 20 items
    Top    (items, quantities)        adds to the stock of 20 items

Six to one to one. A bid below the asked price aborts, and so does one that the stock cannot meet:
the latter by the table's check. A share of the bids (`abort_ratio`) offers nothing at all. A list may
name an item twice.
"""

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock.workloads.common import Workload, draw, int_keys, lists, split, spoil

SIZE = 10_000
THETA = 0.6
LENGTH = 20  # items in an alter or a top request


def app(keys: str = "int") -> "ps.App":
    shop = ps.App("online_bidding")

    @shop.table
    class Item:
        id: int = ps.key()
        price: int = 0
        quantity: int = 0

        @ps.check("sold out")
        def in_stock(self):
            return self.quantity >= 0

    @shop.event
    class Bid:
        ts: int = ps.order()
        item: int
        price: int
        quantity: int

    @shop.event
    class Alter:
        ts: int = ps.order()
        items: list[int]
        prices: list[int]

    @shop.event
    class Top:
        ts: int = ps.order()
        items: list[int]
        quantities: list[int]

    @shop.transaction
    def bid(e: Bid):
        item = Item[e.item]
        if e.price < item.price:
            ps.abort("bid too low")
        item.quantity -= e.quantity
        return {"left": item.quantity}

    @shop.transaction
    def alter(e: Alter):
        for key, price in zip(e.items, e.prices):
            ps.require(price > 0, "no price")
            Item[key].price = price

    @shop.transaction
    def top(e: Top):
        for key, quantity in zip(e.items, e.quantities):
            Item[key].quantity += quantity

    return shop


def tables(*, size: int = SIZE, keys: str = "int") -> dict[str, pa.Table]:
    rng = np.random.default_rng(size)
    ids = int_keys(np.arange(size, dtype=np.int64))
    return {"Item": pa.table({"id": ids, "price": rng.integers(1, 101, size), "quantity": rng.integers(1, 1001, size)})}


def batch(
    events: int,
    *,
    seed: int = 0,
    first: int = 0,
    size: int = SIZE,
    theta: float = THETA,
    abort_ratio: float = 0.01,
    keys: str = "int",
) -> dict[str, pa.Table]:
    rng = np.random.default_rng((seed, first))
    ts = split(rng, events, first, {"Bid": 6, "Alter": 1, "Top": 1})

    def items(count):
        return int_keys(draw(rng, count, size, theta))

    def item_lists(count):
        return lists(int_keys(draw(rng, (count, LENGTH), size, theta)))

    bids, alters, tops = (ts[name].size for name in ("Bid", "Alter", "Top"))
    return {
        "Bid": pa.table(
            {
                "ts": ts["Bid"],
                "item": items(bids),
                "price": spoil(rng, rng.integers(50, 151, bids), abort_ratio, 0),
                "quantity": rng.integers(1, 11, bids),
            }
        ),
        "Alter": pa.table(
            {"ts": ts["Alter"], "items": item_lists(alters), "prices": lists(rng.integers(1, 101, (alters, LENGTH)))}
        ),
        "Top": pa.table(
            {"ts": ts["Top"], "items": item_lists(tops), "quantities": lists(rng.integers(1, 11, (tops, LENGTH)))}
        ),
    }


WORKLOAD = Workload("ob", "Online Bidding", app, tables, batch, SIZE, THETA)
