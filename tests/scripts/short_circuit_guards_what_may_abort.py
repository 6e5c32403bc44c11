"""The right side of and runs, and may abort, only where the left side holds."""

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
    if e.key in Account and Account[e.key].n > 10 // e.n:
        return {"big": True}
    return {"big": False}
