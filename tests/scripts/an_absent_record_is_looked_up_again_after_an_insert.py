"""What was not there may be there after an insert; what was there still is."""

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
    there = Account[e.key]
    if "b" not in Account:
        Account.insert("b", n=e.n)
    return {"now": "b" in Account, "n": there.n}
