"""Two keys may be equal, so a read after a write is read again, never remembered."""

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
    b.n = a.n + 1
    a.n += b.n
