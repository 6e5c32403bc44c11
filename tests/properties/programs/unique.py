"""Ids that run once within a span of time, of several events; beside events without one, and with ids that may come
again. Few ids and few times, so that they meet."""

from hypothesis import strategies as st
from values import event, rows

import penstock as ps
from programs import Case

unique = ps.App("unique")


@unique.table
class Account:
    id: str = ps.key()
    balance: int = 0

    @ps.check("insufficient funds")
    def solvent(self) -> bool:
        return self.balance >= 0


@unique.event
class Payment:
    ts: int = ps.order()
    id: str = ps.id(unique=3)
    src: str
    dst: str
    amount: int


@unique.event
class Deposit:
    ts: int = ps.order()
    key: str = ps.id(unique=2**62)
    to: str


@unique.event
class Touch:
    ts: int = ps.order()
    id: str = ps.id()
    account: str


@unique.event
class Tick:
    ts: int = ps.order()
    account: str


@unique.transaction
def pay(e: Payment):
    Account[e.src].balance -= e.amount
    Account.get(e.dst).balance += e.amount
    return {"left": Account[e.src].balance}


@unique.transaction
def deposit(e: Deposit):
    Account.get(e.to).balance += 5
    return {"left": Account[e.to].balance}


@unique.transaction
def touch(e: Touch):
    Account[e.account].balance += 1


@unique.transaction
def tick(e: Tick):
    return {"left": Account[e.account].balance}


name = st.sampled_from(["a", "a", "b", "é", "nobody"])
id_ = st.sampled_from(["x", "y", "é", ""])
ts = st.one_of(st.integers(-3, 12), st.sampled_from([0, 1, 3, 2**63 - 1, -(2**63)]))
CASE = Case(
    unique,
    {Account: rows(Account, [("a",), ("b",)], balance=st.sampled_from([0, 20]))},
    st.one_of(
        event(Payment, ts=ts, id=id_, src=name, dst=name, amount=st.sampled_from([1, 2, 60])),
        event(Payment, ts=ts, id=id_, src=name, dst=name, amount=st.sampled_from([1, 2, 60])),
        event(Deposit, ts=ts, key=id_, to=name),
        event(Touch, ts=ts, id=id_, account=name),
        event(Tick, ts=ts, account=name),
    ),
)
