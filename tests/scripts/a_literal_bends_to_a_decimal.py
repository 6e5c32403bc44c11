"""The literals meet decimals of scale 2, so they are constants of that scale."""

from decimal import Decimal

import penstock as ps

app = ps.App("app")


@app.table
class Account:
    id: str = ps.key()
    balance: ps.decimal(18, 2) = 0


@app.event
class Pay:
    ts: int = ps.order()
    key: str
    amounts: list[ps.decimal(18, 2)]


@app.transaction
def pay(e: Pay):
    total = 0
    for amount in e.amounts:
        total += amount
    ps.require(total < Decimal("99.5"), "too much")
    Account[e.key].balance += total
    return {"total": total if total > 1 else 1}
