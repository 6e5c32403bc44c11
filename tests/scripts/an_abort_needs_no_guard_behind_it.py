"""An abort ends the transaction, so the write behind it is not guarded."""

import penstock as ps

app = ps.App("app")


@app.table
class Account:
    id: str = ps.key()
    n: int = 0


@app.event
class Tick:
    ts: int = ps.order()
    key: str
    n: int


@app.transaction
def tick(e: Tick):
    account = Account[e.key]
    if account.n > 100:
        ps.abort("full")
    ps.require(e.n > 0, "not positive")
    account.n = e.n
