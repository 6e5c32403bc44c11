"""Online Bidding with knobs: a shop's items are bid for, repriced and topped up (TStream 2 and 6.1.1).

    Bid    (item, price, quantity, rivals)    takes from 1 item, if the price is met and the stock is there
    Alter  (items, prices)                    reprices `length` items
    Top    (items, quantities)                adds to the stock of `length` items

Shares are `bids` to `alters` to `tops`. A bid reads `accesses` items: its own and the accesses - 1 rivals, none of
which may ask for more. Prices lie below what bids offer, so that only what is meant to aborts: a bid of nothing,
a price of nothing, a top that takes away more than there is.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock.workloads.common import Ints, int_keys, lists, split
from penstock.workloads.cost import spin
from penstock.workloads.tuned.knobs import OPENING, TOO_MUCH, Knobs


@dataclass(frozen=True, kw_only=True)
class OnlineBidding(Knobs):
    name: ClassVar[str] = "ob"
    title: ClassVar[str] = "Online Bidding"

    length: int = 20
    accesses: int = 1
    bids: float = 6
    alters: float = 1
    tops: float = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        for count in ("length", "accesses"):
            self.need(count, getattr(self, count) >= 1, "at least 1")
        for share in ("bids", "alters", "tops"):
            self.need(share, getattr(self, share) >= 0, "at least 0")
        self.need("bids", self.bids + self.alters + self.tops > 0, "above 0 where there are no alters and tops")

    def app(self) -> ps.App:
        return app()

    def tables(self) -> dict[str, pa.Table]:
        ids = int_keys(np.arange(self.keys, dtype=np.int64))
        prices = np.random.default_rng(self.keys).integers(1, 101, self.keys)
        return {"Item": pa.table({"id": ids, "price": prices, "quantity": np.full(self.keys, OPENING, np.int64)})}

    def make(self, rng: np.random.Generator, first: int) -> dict[str, pa.Table]:
        ts = split(rng, self.batch, first, {"Bid": self.bids, "Alter": self.alters, "Top": self.tops})
        return {
            "Bid": self._bids(rng, ts["Bid"]),
            "Alter": self._requests(rng, ts["Alter"], "prices", bad=0),
            "Top": self._requests(rng, ts["Top"], "quantities", bad=-TOO_MUCH),
        }

    def _bids(self, rng: np.random.Generator, ts: Ints) -> pa.Table:
        keys = int_keys(self.draw(rng, ts.size, self.accesses))
        prices = rng.integers(101, 151, ts.size)
        prices[rng.random(ts.size) < self.abort_ratio] = 0
        return pa.table(
            {
                "ts": ts,
                "rounds": self.rounds(rng, ts.size),
                "item": np.ascontiguousarray(keys[:, 0]),
                "price": prices,
                "quantity": rng.integers(1, 11, ts.size),
                "rivals": lists(keys[:, 1:]),
            }
        )

    def _requests(self, rng: np.random.Generator, ts: Ints, field: str, bad: int) -> pa.Table:
        keys = int_keys(self.draw(rng, ts.size, self.length))
        values = rng.integers(1, 101, (ts.size, self.length))
        # It is the last item that aborts, so that the others are undone.
        values[rng.random(ts.size) < self.abort_ratio, -1] = bad
        return pa.table({"ts": ts, "rounds": self.rounds(rng, ts.size), "items": lists(keys), field: lists(values)})


def app() -> ps.App:
    shop = ps.App("tuned_online_bidding")

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
        rounds: int
        item: int
        price: int
        quantity: int
        rivals: list[int]

    @shop.event
    class Alter:
        ts: int = ps.order()
        rounds: int
        items: list[int]
        prices: list[int]

    @shop.event
    class Top:
        ts: int = ps.order()
        rounds: int
        items: list[int]
        quantities: list[int]

    @shop.transaction
    def bid(e: Bid):
        item = Item[e.item]
        asked = item.price + spin(item.price, e.rounds)
        for rival in e.rivals:
            asked = max(asked, Item[rival].price)
        if e.price < asked:
            ps.abort("bid too low")
        item.quantity -= e.quantity
        return {"left": item.quantity}

    @shop.transaction
    def alter(e: Alter):
        for key, price in zip(e.items, e.prices):
            item = Item[key]
            item.price = price + spin(price, e.rounds)
            ps.require(item.price > 0, "no price")

    @shop.transaction
    def top(e: Top):
        for key, quantity in zip(e.items, e.quantities):
            item = Item[key]
            item.quantity += quantity + spin(item.quantity, e.rounds)

    return shop
