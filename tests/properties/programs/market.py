"""Transactions of several events: of one time, so many, all that a round has emitted; beside one that takes one event.
It emits, so it runs under no schedule but the serial loop, and is not among NAMES."""

from hypothesis import strategies as st
from values import event, rows

import penstock as ps
from programs import Case

market = ps.App("market")


@market.table
class Account:
    id: str = ps.key()
    balance: int = 0
    trades: int = 0

    @ps.check("insufficient funds")
    def solvent(self) -> bool:
        return self.balance >= -50


@market.table
class Seen:
    n: int = ps.key()
    count: int = 0
    sum: int = 0


@market.event
class Trade:
    ts: int = ps.order()
    id: str = ps.id()
    src: str
    dst: str
    amount: int
    fees: list[int]


@market.event
class Order:
    ts: int = ps.order()
    account: str
    amount: int


@market.event
class Deposit:
    ts: int = ps.order()
    id: str = ps.id()
    to: str
    amount: int


@market.event
class Audit:
    account: str
    amount: int


@market.event
class Line:
    n: int


@market.event
class Alarm:
    count: int


@market.transaction(batch="ts")
def settle(trades: list[Trade]):
    fees = 0
    for t in trades:
        Account.get(t.src).balance -= t.amount
        Account.get(t.dst).balance += t.amount
        for fee in t.fees:
            if fee < 0:
                break
            fees += fee
        for other in trades:
            if other.dst == t.src:
                Account.get(t.src).trades += 1
    if fees > 0:
        ps.emit(Audit(account="fees", amount=fees))
        ps.emit(Line(n=fees))
    return {"total": fees, "count": len(trades)}


@market.transaction(batch=3)
def fill(orders: list[Order]):
    total, last = 0, ""
    for o in orders:
        total += o.amount
        last = o.account
        ps.emit(Audit(account=o.account, amount=o.amount))
    for o in orders:
        Account.get(o.account).balance += total
    if total > 10:
        ps.emit(Alarm(count=len(orders)))
    return {"total": total, "count": len(orders), "account": last}


@market.transaction
def deposit(e: Deposit):
    Account.get(e.to).balance += e.amount
    ps.emit(Audit(account=e.to, amount=e.amount))
    if e.amount > 5:
        ps.emit(Audit(account="big", amount=1))
    return {"account": e.to}


@market.transaction
def audit(several: list[Audit]):
    for a in several:
        Seen.get(0).sum += a.amount
        ps.require(a.amount != 7, "seven")
        ps.emit(Line(n=a.amount))
    Seen.get(0).count += len(several)
    ps.emit(Alarm(count=len(several)))
    return {"count": len(several)}


@market.transaction(nested=True)
def line(e: Line):
    """Part of a transaction of several events, and undone with all of them."""
    Seen.get(1).count += 1
    ps.require(e.n != 3, "three")
    Seen.get(e.n).sum += 1


name = st.sampled_from(["a", "a", "b", "é", "nobody"])
few = st.sampled_from([1, 1, 2, 3, 7, 60])
id_ = st.sampled_from(["x", "y", "é", ""])
CASE = Case(
    market,
    {Account: rows(Account, [("a",), ("b",)], balance=st.just(20), trades=st.just(0))},
    st.one_of(
        event(Trade, id=id_, src=name, dst=name, amount=few, fees=st.lists(st.sampled_from([1, 2, -1]), max_size=3)),
        event(Order, account=name, amount=few),
        event(Deposit, id=id_, to=name),
    ),
)
