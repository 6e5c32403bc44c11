"""A write in a loop that another record guards or ends needs that record."""

import penstock as ps

app = ps.App("app")


@app.table
class Account:
    id: str = ps.key()
    n: int = 0


@app.event
class Tick:
    ts: int = ps.order()
    gate: str
    last: str
    only: str
    keys: list[str]


@app.transaction
def tick(e: Tick):
    there = Account[e.only]
    if Account[e.gate].n > 0:
        for key in e.keys:
            Account[key].n = 1
            if Account[e.last].n > 0:
                break
