"""What the event computes and a constant range counts is a key foreseen; two lists at once, or state, are not."""

import penstock as ps

app = ps.App("app")


@app.table
class Cell:
    x: int = ps.key()
    y: int = ps.key()
    n: int = 0


@app.event
class Computed:
    ts: int = ps.order()
    x: int


@app.event
class Counted:
    ts: int = ps.order()
    x: int


@app.event
class Crossed:
    ts: int = ps.order()
    xs: list[int]
    ys: list[int]


@app.event
class Listed:
    ts: int = ps.order()
    xs: list[int]
    y: int


@app.event
class Chosen:
    ts: int = ps.order()
    x: int
    y: int


@app.transaction
def computed(e: Computed):
    Cell.get(e.x, e.x + 1).n += 1


@app.transaction
def counted(e: Counted):
    for y in range(3):
        Cell.get(e.x, y).n += 1


@app.transaction
def crossed(e: Crossed):
    for x in e.xs:
        for y in e.ys:
            Cell.get(x, y).n += 1


@app.transaction
def listed(e: Listed):
    for x in e.xs:
        Cell.get(x, e.y).n += 1


@app.transaction
def chosen(e: Chosen):
    y = e.y
    if Cell.get(e.x, 0).n > 3:
        y = 0
    Cell.get(e.x, y).n += 1
