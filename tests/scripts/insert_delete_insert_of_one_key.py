"""Each change of a record's presence stands for itself, in order."""

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
    Account.insert(e.key, n=1)
    del Account[e.key]
    again = Account.insert(e.key, n=2)
    return {"n": again.n}
