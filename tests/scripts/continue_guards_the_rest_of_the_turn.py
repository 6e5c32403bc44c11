"""What follows a continue in the body runs only in the other turns."""

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
    xs: list[int]
    ys: list[int]


@app.transaction
def tick(e: Tick):
    for x in e.xs:
        if x < 0:
            continue
        Account[e.key].n += x
