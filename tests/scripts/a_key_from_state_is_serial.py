"""The second lookup's key is only known once the first record has been read."""

import penstock as ps

app = ps.App("app")


@app.table
class Link:
    id: int = ps.key()
    next: int = 0
    visits: int = 0


@app.event
class Step:
    ts: int = ps.order()
    start: int


@app.transaction
def step(e: Step):
    first = Link[e.start]
    second = Link[first.next]
    second.visits += 1
    return {"at": second.id}
