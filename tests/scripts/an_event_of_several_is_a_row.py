"""A transaction of several events loops over their rows: a field is read at the turn's row, with its own null test."""

import penstock as ps

app = ps.App("app")


@app.table
class Account:
    id: str = ps.key()
    n: int = 0


@app.event
class Trade:
    ts: int = ps.order()
    id: str = ps.id()
    account: str
    n: int
    fees: list[int]


@app.transaction(batch="ts")
def settle(trades: list[Trade]):
    fees = 0
    for t in trades:
        Account[t.account].n += t.n
        for fee in t.fees:
            fees += fee
    return {"fees": fees, "trades": len(trades)}
