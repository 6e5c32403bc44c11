"""Whether the second record is looked up depends on state; which one it would be, the event says."""

import penstock as ps

app = ps.App("app")


@app.table
class Account:
    id: int = ps.key()
    balance: int = 0
    open: bool = True


@app.event
class Move:
    ts: int = ps.order()
    src: int
    dst: int
    amount: int


@app.transaction
def move(e: Move):
    src = Account[e.src]
    if src.open and src.balance >= e.amount:
        dst = Account.get(e.dst)
        dst.balance += e.amount
        src.balance -= e.amount
