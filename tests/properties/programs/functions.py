"""Functions marked @ps.function: of values, records, lists and the event; that write, abort, call others, return from
loops; methods of a table; and keys that they are handed. Items and slices of lists besides."""

from decimal import Decimal

from hypothesis import strategies as st
from values import event, rows

import penstock as ps
from programs import Case

RATE = Decimal("0.05")

functions = ps.App("functions")


@ps.function
def available(account):
    return account.balance - account.held


@functions.table
class Account:
    id: str = ps.key()
    balance: ps.decimal(18, 2) = 0
    held: ps.decimal(18, 2) = 0

    @ps.check("short")
    def solvent(self):
        return available(self) >= 0 or self.left() < -50

    @ps.function
    def left(self, more=Decimal("0.00")):
        return self.balance - self.held + more


@functions.event
class Move:
    ts: int = ps.order()
    src: str
    dst: str
    amount: ps.decimal(9, 2)
    xs: list[int]
    ks: list[str]
    i: int


@ps.function
def fee(amount, rate=RATE, *, least=Decimal("1.00")):
    """What it costs."""
    if amount < least:
        return Decimal("0.0000")
    if amount > 100:
        ps.abort("too much", by=amount)
    return round(amount * rate, 2)


@ps.function
def move(src, dst, x):
    a, b = Account[src], Account.get(dst)
    ps.require(a.left(x) >= x, "not enough")
    if x == 0:
        return
    a.balance -= x
    b.balance += x


@ps.function
def first_over(e, limit):
    for x in e.xs:
        if x > limit:
            for y in e.xs[1:]:
                if y > x:
                    return y
            return x
    for k in range(3):
        if k == limit:
            return k
    return 0


@ps.function
def richest(keys, least):
    """The first account of some that has so much."""
    for key in keys:
        if key in Account and Account[key].balance >= least:
            return Account[key]
    return Account["a"]


@ps.function
def second(e, least):
    """The second item of those that are large, if there are two."""
    seen = 0
    for x in e.xs:
        if x > 4:
            return None
        if x >= least:
            seen += 1
            if seen == 2:
                return x
    if e.i == 0:
        return 7


@ps.function
def drain(e, account):
    for _ in e.xs:
        if account.held <= 0:
            return
        account.held -= 1


@ps.function
def price(e):
    if e.i > 2:
        return e.amount * Decimal("1.00"), e.i
    return fee(e.amount), -1


@functions.transaction
def go(e: Move):
    move(e.src, e.dst, fee(e.amount, least=Decimal("2.00")))
    if len(e.ks) > 0:
        move(x=fee(e.amount), src=e.ks[0], dst=e.ks[-1])
    cost, many = price(e)
    rich = richest(e.ks[e.i :], cost)
    rich.held += 1
    tail = e.xs[: e.i]
    two = second(e, 0)
    if two is None and e.i < 0:
        drain(e, rich)
    return {
        "over": first_over(e, e.i),
        "n": len(tail),
        "cost": cost,
        "many": many,
        "rich": rich.id,
        "two": two,
        "sum": e.i + (second(e, 1) if e.i > 0 else 0),
    }


@functions.event
class Pick:
    ts: int = ps.order()
    src: str
    amount: ps.decimal(9, 2)
    ks: list[str]
    i: int


@functions.transaction
def pick(e: Pick):
    move(e.src, e.ks[e.i], fee(e.amount))
    return {"n": len(e.ks), "left": Account[e.src].left()}


key = st.sampled_from("aaabc")
keys = st.lists(key, max_size=3)
CASE = Case(
    functions,
    {Account: rows(Account, [(k,) for k in "ab"])},
    st.one_of(
        event(Move, src=key, dst=key, ks=keys, xs=st.lists(st.integers(-3, 5), max_size=4), i=st.integers(-2, 4)),
        event(Pick, src=key, ks=keys, i=st.integers(-4, 3)),
    ),
)
