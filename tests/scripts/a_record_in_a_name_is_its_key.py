"""Choosing between two records chooses between two keys; the lookup comes after."""

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
    account = Account[e.key] if e.n > 0 else Account["b"]
    account.n += 1
