"""A name that a turn changes is a carry: its value before the loop, then the last turn's."""

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
    total = 0
    best = e.n
    for x, y in zip(e.xs, e.ys):
        total += x * y
        best = max(best, x)
    return {"total": total, "best": best}
