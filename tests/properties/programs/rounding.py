"""round() of floats and decimals: fine and coarse, to ints and to their own kind, in checks and in guards."""

from decimal import Decimal

from hypothesis import strategies as st
from values import event, rows

import penstock as ps
from programs import Case

CENTS = 2

rounding = ps.App("rounding")


@rounding.table
class Shelf:
    k: int = ps.key()
    f: float = 0.0
    money: ps.decimal(18, 2) = 0
    fine: ps.decimal(9, 6) = Decimal("0.5")

    @ps.check("uneven")
    def even(self):
        return round(self.money) % 7 != 3 or round(self.f, -1) < 50.0


@rounding.event
class Real:
    ts: int = ps.order()
    k: int
    x: float
    eighths: int
    how: int


@rounding.event
class Exact:
    ts: int = ps.order()
    k: int
    a: ps.decimal(18, 4)
    w: ps.decimal(18, 0)
    how: int


@rounding.transaction
def real(e: Real):
    s = Shelf.get(e.k)
    half = e.eighths / 8
    if e.how == 0:
        s.f = round(e.x, CENTS)
    elif e.how == 1:
        s.f = round(half, 1) + round(half, 0)
    elif e.how == 2:
        s.f = round(e.x, 22)
    elif e.how == 3:
        s.f = round(e.x, -18)
    elif e.how == 4:
        s.f = round(half, -1)
    else:
        s.money = round(e.x)
    return {"f": s.f, "n": round(half), "d": round(s.money, 1), "some": round(e.x, 3) if round(e.x, 3) else 1.5}


@rounding.transaction
def exact(e: Exact):
    s = Shelf[e.k]
    if e.how == 0:
        s.money = round(e.a, CENTS)
    elif e.how == 1:
        s.money += round(e.a, -2)
    elif e.how == 2:
        s.fine = round(s.fine / 3, 4)
    elif e.how == 3:
        s.money = round(e.w, -18) + round(e.a, 22)
    else:
        s.money = round(e.a / 3)
    return {"n": round(e.a) - round(e.w), "d": round(e.w, -1) + round(Decimal("2.5"), 0)}


key = st.sampled_from([1, 1, 2])
CASE = Case(
    rounding,
    {Shelf: rows(Shelf, [(1,), (2,)])},
    st.one_of(
        event(Real, k=key, eighths=st.integers(-1000, 1000), how=st.integers(0, 5)),
        event(Exact, k=key, how=st.integers(0, 4)),
    ),
)
