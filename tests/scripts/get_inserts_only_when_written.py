"""Reading through get finds a record or its defaults; writing ensures that there is one."""

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
    account = Account.get(e.key)
    if account.n < e.n:
        account.n = e.n
