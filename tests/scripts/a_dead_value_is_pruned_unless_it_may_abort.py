"""Nobody uses either sum; one cannot abort and goes, the other may overflow and stays."""

import penstock as ps

app = ps.App("app")


@app.event
class Tick:
    ts: int = ps.order()
    x: float
    n: int


@app.transaction
def tick(e: Tick):
    gone = e.x + 1.5
    kept = e.n + 1
    gone = gone * 2.0
    kept = kept == 3
