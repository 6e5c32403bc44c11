"""Decimal arithmetic at 18 digits: every operator, mixed scales, ints beside decimals, rounding where stored."""

from decimal import Decimal

from hypothesis import strategies as st
from values import event, rows

import penstock as ps
from programs import Case

RATE = Decimal("0.0125")
WHOLE = Decimal("1E+3")

decimals = ps.App("decimals")


@decimals.table
class Ledger:
    k: int = ps.key()
    wide: ps.decimal(18, 0) = 0
    money: ps.decimal(18, 2) = 0
    fine: ps.decimal(9, 6) = Decimal("0.5")
    tiny: ps.decimal(3, 3) = 0

    @ps.check("half gone")
    def whole(self):
        return self.money / 2 != Decimal("0.005")

    @ps.check("divides")
    def divides(self):
        return 1 / (self.money + Decimal("0.07")) < 100


@decimals.event
class Book:
    ts: int = ps.order()
    k: int
    a: ps.decimal(18, 2)
    b: ps.decimal(18, 4)
    n: int


@decimals.event
class Divide:
    ts: int = ps.order()
    k: int
    a: ps.decimal(18, 2)
    b: ps.decimal(9, 4)
    n: int
    how: int


@decimals.event
class Total:
    ts: int = ps.order()
    k: int
    parts: list[ps.decimal(18, 4)]


@decimals.transaction
def book(e: Book):
    x = Ledger.get(e.k)
    if e.a > e.b:
        x.money = e.a - e.b
    else:
        x.money = e.b
    x.wide += e.a * 2
    x.fine = e.b * RATE
    if x.fine == 0 or x.money < e.n:
        x.tiny = e.a * Decimal("0.001")
    return {
        "sum": e.a + e.b,
        "product": e.a * e.b,
        "scaled": e.a * e.n + WHOLE,
        "rest": abs(-e.a) - min(x.fine, Decimal("0.250000")),
        "more": e.a > e.n >= e.b,
    }


@decimals.transaction
def divide(e: Divide):
    x = Ledger[e.k]
    if e.how == 0:
        return {"sum": e.a / e.b, "rest": e.a % e.b, "floor": e.a // e.b}
    if e.how == 1:
        x.money /= e.b
        return {"sum": x.money, "rest": e.n % e.b, "floor": e.n // e.a}
    if e.how == 2:
        x.fine = e.a / e.n
        return {"sum": x.fine / 3, "rest": e.b % e.n, "floor": e.b // e.n}
    x.money = e.n / e.a
    x.wide //= e.b
    x.tiny %= Decimal("0.07")
    return {"sum": e.n / e.b, "rest": x.tiny % e.a, "floor": x.wide // 7}


@decimals.transaction
def total(e: Total):
    sum_ = 0
    high = Decimal("0.0000")
    for part in e.parts:
        sum_ += part
        high = max(high, part)
    Ledger.get(e.k).money = sum_
    return {"sum": sum_ + high, "rest": -high, "floor": len(e.parts)}


key = st.sampled_from([1, 1, 2])
CASE = Case(
    decimals,
    {Ledger: rows(Ledger, [(1,), (2,)])},
    st.one_of(
        event(Book, k=key),
        event(Divide, k=key, how=st.integers(0, 3)),
        event(Total, k=key),
    ),
)
