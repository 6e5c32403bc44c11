"""What follows a return runs only where it was not taken."""

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
    if account.n > e.n:
        return {"left": account.n}
    account.n = e.n
    return {"left": 0}
