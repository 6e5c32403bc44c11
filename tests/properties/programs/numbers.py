"""int and float arithmetic at the edges: every operator, mixed operands, exact comparisons."""

from hypothesis import strategies as st
from values import event, rows

import penstock as ps
from programs import Case

SCALE = 3
HALF = 0.5

numbers = ps.App("numbers")


@numbers.table
class Pair:
    k: int = ps.key()
    i: int = 0
    f: float = 0.0


@numbers.event
class Whole:
    ts: int = ps.order()
    k: int
    a: int
    b: int
    how: int


@numbers.event
class Real:
    ts: int = ps.order()
    k: int
    x: float
    y: float
    n: int
    how: int


@numbers.transaction
def whole(e: Whole):
    p = Pair.get(e.k)
    if e.how == 0:
        p.i = e.a + e.b
    elif e.how == 1:
        p.i = e.a - e.b * SCALE
    elif e.how == 2:
        p.i += e.a * e.b
    elif e.how == 3:
        p.i = e.a // e.b
    elif e.how == 4:
        p.i = e.a % e.b
    elif e.how == 5:
        p.f = e.a / e.b
    elif e.how == 6:
        p.i = -e.a
        p.f = abs(e.b) * HALF
    else:
        p.i //= e.a
        p.i *= e.b
        p.i %= 1000
        p.f /= e.b
    return {"i": p.i, "f": p.f, "less": e.a < e.b, "j": max(p.i, e.b, 3) - min(e.a, e.b)}


@numbers.transaction
def real(e: Real):
    p = Pair.get(e.k)
    z = 0.0
    if e.how == 0:
        z = e.x + e.y * e.n
    elif e.how == 1:
        z = e.x - e.y
    elif e.how == 2:
        z = e.x / e.y
    elif e.how == 3:
        z = e.x // e.y
    elif e.how == 4:
        z = e.x % e.y
    elif e.how == 5:
        z = e.n / e.x + e.n // e.y - e.n % e.y
    elif e.how == 6:
        z = abs(-e.x)
        p.f -= e.n
    elif e.how == 7:
        z = e.x % e.n + e.x // e.n
    else:
        p.f = e.n
    total = 0
    for _ in range(2):
        total += e.x
    if e.x:
        p.f = p.f + z
    return {"f": z, "g": min(e.x, e.y, p.f), "h": total, "less": e.n < e.x, "same": e.n == e.y, "j": p.i}


key = st.sampled_from([1, 1, 2])
CASE = Case(
    numbers,
    {Pair: rows(Pair, [(1,), (3,)])},
    st.one_of(event(Whole, k=key, how=st.integers(0, 7)), event(Real, k=key, how=st.integers(0, 8))),
)
