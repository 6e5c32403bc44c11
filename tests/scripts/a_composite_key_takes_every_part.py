"""Every part of the key is an argument of the lookup; another order of parts is another key."""

import penstock as ps

app = ps.App("app")


@app.table
class Stock:
    warehouse: int = ps.key()
    item: str = ps.key()
    quantity: int = 0


@app.event
class Move:
    ts: int = ps.order()
    source: int
    target: int
    item: str
    quantity: int


@app.transaction
def move(e: Move):
    source = Stock[e.source, e.item]
    ps.require(source.quantity >= e.quantity, "too few")
    source.quantity -= e.quantity
    if (e.target, e.item) not in Stock:
        Stock.insert(e.target, e.item)
    Stock[e.target, e.item].quantity += e.quantity
