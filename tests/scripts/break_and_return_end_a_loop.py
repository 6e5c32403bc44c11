"""Both end the loop after the turn; a return also skips what is behind the loop."""

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
    seen = 0
    for x in e.xs:
        if x == 0:
            break
        if x < 0:
            return {"seen": seen, "negative": x}
        seen += 1
    Account[e.key].n = seen
    return {"seen": seen}
