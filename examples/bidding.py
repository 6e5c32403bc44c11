"""An auction without Spark: bids in event order, whatever order they arrive in, and a buyer's limit over all items.

python examples/bidding.py
"""

import penstock as ps

auction = ps.App("auction")


@auction.table
class Item:
    id: str = ps.key()
    price: int = 0
    winner: str = ""


@auction.table
class Buyer:
    id: str = ps.key()
    budget: int = 0

    @ps.check("over budget")  # holds after every transaction, so no body has to remember it
    def within(self) -> bool:
        return self.budget >= 0


@auction.event
class Bid:
    ts: int = ps.order()
    id: str = ps.id()
    item: str
    buyer: str
    price: int


@auction.transaction
def bid(e: Bid) -> dict[str, int]:
    item, buyer = Item[e.item], Buyer[e.buyer]
    ps.require(e.price > item.price, "bid too low")
    if item.winner != "":
        Buyer[item.winner].budget += item.price  # the one who is outbid has the money back
    buyer.budget -= e.price
    item.price = e.price
    item.winner = e.buyer
    return {"left": buyer.budget}


def main() -> None:
    with auction.open() as db:
        db.load(Item, [{"id": "lamp"}, {"id": "rug"}])
        db.load(Buyer, [{"id": "ann", "budget": 100}, {"id": "bob", "budget": 80}])
        out = db.run(
            [
                Bid(ts=3, id="b3", item="lamp", buyer="ann", price=70),
                Bid(ts=1, id="b1", item="lamp", buyer="ann", price=40),
                Bid(ts=2, id="b2", item="lamp", buyer="bob", price=60),
                Bid(ts=4, id="b4", item="rug", buyer="ann", price=50),  # 70 of her 100 are in the lamp
                Bid(ts=5, id="b5", item="rug", buyer="bob", price=50),
                Bid(ts=6, id="b6", item="rug", buyer="ann", price=20),
            ]
        )
        for o in out.to_pylist():
            print(o["id"], o["status"], o["reason"] or f"left {o['left']}")
        print(db.sql("select id, price, winner from item order by id").to_pylist())
        batch = db.last_batch
        assert batch is not None  # one has run
        print(batch.committed, "committed; aborted:", batch.aborted)


if __name__ == "__main__":
    main()
