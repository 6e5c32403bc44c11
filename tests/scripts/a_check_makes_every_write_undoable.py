"""A check runs after the body and may abort, so even the last write is put back then."""

import penstock as ps

app = ps.App("app")


@app.table
class Account:
    id: str = ps.key()
    n: int = 0
    limit: int = 10

    @ps.check("over the limit")
    def within(self):
        return self.n <= self.limit

    @ps.check("negative")
    def positive(self):
        if self.n < 0:
            return False
        return True


@app.event
class Tick:
    ts: int = ps.order()
    key: str
    n: int


@app.transaction
def tick(e: Tick):
    Account[e.key].n = e.n
