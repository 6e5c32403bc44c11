"""Nothing behind the last write may abort, so there is nothing to put back."""

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
    a, b = Account[e.key], Account["b"]
    a.n = e.n
    ps.require(b.n > 0, "empty")
    b.n = 0
