"""Tables, events and apps that are declared in another module, in a function, or known by an annotation only."""

from decimal import Decimal
from typing import assert_type

import typed
from typed import Account, Transfer, bank

import penstock as ps


@typed.bank.event
class Close:
    ts: int = ps.order()
    id: str = ps.id()
    account: str


@bank.transaction
def close(e: Close) -> None:
    account = Account[e.account]
    ps.require(account.balance == 0, "not empty")
    ps.require(account.balanse == 0, "not empty")  # refused
    stock = typed.Stock[3, "pen"]
    stock.quantity = "many"  # refused
    del Account[e.account]


def make(app: ps.App) -> ps.App:
    @app.table
    class Meter:
        id: int = ps.key()
        count: int = 0

    @app.event
    class Tick:
        ts: int = ps.order()

    @app.transaction
    def tick(e: Tick) -> None:
        meter = Meter[e.ts]
        assert_type(meter.count, int)
        meter.count = "one"  # refused

    other = ps.App("other")

    @other.table
    class Inner:
        id: int = ps.key()

    inner = Inner[3]
    assert_type(inner.id, int)
    Tick(ts=1, more=2)  # refused
    Transfer(ts=1)  # refused
    return app


made: ps.App = make(ps.App("made"))


def early() -> Decimal:
    late = Late[1]
    return late.balance


@made.table
class Late:
    id: int = ps.key()
    balance: Decimal = ps.decimal(18, 2)
