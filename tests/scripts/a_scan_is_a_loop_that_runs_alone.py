"""A scan is a loop over keys, a sum of one is the loop that it stands for, and both run alone."""

import penstock as ps

app = ps.App("app")


@app.table
class Account:
    id: int = ps.key()
    owner: int = ps.index()
    balance: int = 0
    rank: int = 0


@app.event
class Rank:
    ts: int = ps.order()
    owner: int


@app.transaction
def rank(e: Rank):
    place = 0
    for a in Account.top(3, by="balance"):
        place += 1
        a.rank = place
    return {"all": sum(a.balance for a in Account.where(owner=e.owner) if a.rank > 0)}
