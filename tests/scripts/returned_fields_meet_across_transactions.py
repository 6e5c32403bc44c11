"""One transaction returns an int, another a decimal: the field is a decimal for both."""

import penstock as ps

app = ps.App("app")


@app.event
class Count:
    ts: int = ps.order()
    n: int


@app.event
class Weigh:
    ts: int = ps.order()
    weight: ps.decimal(10, 3)
    share: float


@app.transaction
def count(e: Count):
    return {"amount": e.n, "share": 1}


@app.transaction
def weigh(e: Weigh):
    return {"amount": e.weight, "share": e.share, "heavy": e.weight > 100}
