"""Money between hot accounts: decimals, two checks, one record by two names, events with and without id."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import strategies as st
from values import event, of_type, rows

import penstock as ps
from programs import Case

FEE = Decimal("0.05")
MANY = 4611686018427387904

bank = ps.App("bank")


@bank.table
class Account:
    id: str = ps.key()
    balance: ps.decimal(18, 2) = 0
    moves: int = 0

    @ps.check("insufficient funds")
    def solvent(self):
        return self.balance >= 0

    @ps.check("too busy")
    def calm(self):
        return self.moves != 3 and self.moves * MANY >= 0 or self.balance > 1000


@bank.event
class Transfer:
    ts: int = ps.order()
    id: str = ps.id()
    src: str
    dst: str
    amount: ps.decimal(18, 2)


@bank.event
class Deposit:
    ts: int = ps.order()
    account: str
    amount: ps.decimal(18, 2)


@bank.event
class Close:
    at: int = ps.order()
    name: str = ps.id()
    account: str
    heir: str


@bank.transaction
def transfer(e: Transfer):
    src, dst = Account[e.src], Account[e.dst]
    if src.balance < e.amount:
        ps.abort("not enough")
    src.balance -= e.amount
    dst.balance += e.amount
    src.moves += 1
    return {"left": src.balance, "there": dst.balance}


@bank.transaction
def deposit(e: Deposit):
    account = Account.get(e.account)
    account.balance += e.amount - FEE
    account.moves = 0
    ps.require(e.amount > Decimal("0.5"), "too little")
    return {"left": account.balance}


@bank.transaction
def close(e: Close):
    left = Account[e.account].balance
    del Account[e.account]
    heir = Account[e.heir]
    heir.balance = heir.balance + left
    return {"left": left, "there": heir.balance}


NAMES = ["a", "b", "é", ""]
name = st.sampled_from([*NAMES[:2], *NAMES, "nobody"])
CASE = Case(
    bank,
    {Account: rows(Account, [(n,) for n in NAMES], balance=of_type(ps.decimal(9, 2)).map(abs))},
    st.one_of(
        event(Transfer, id=st.sampled_from(["x", "y", "é", ""]), src=name, dst=name),
        event(Deposit, account=name),
        event(Close, name=st.sampled_from(["x", "z", "\U0001f600", "\uffff"]), account=name, heir=name),
    ),
)
