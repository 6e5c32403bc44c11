"""One lookup serves until a delete on the table; after it the record is looked up again."""

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
    account.n += 1
    account.n += 2
    del Account["other"]
    account.n += 3
