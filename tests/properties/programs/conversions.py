"""int(), float(), bool() and Decimal() of what they take, powers, divmod; sums, extremes and tests of lists, their
items and slices, with numbers of turns."""

from decimal import Decimal

from hypothesis import strategies as st
from values import event, rows

import penstock as ps
from programs import Case

conversions = ps.App("conversions")


@conversions.table
class Shelf:
    k: int = ps.key()
    n: int = 0


@conversions.event
class Number:
    ts: int = ps.order()
    k: int
    n: int
    m: int
    f: float
    b: bool
    d: ps.decimal(18, 4)
    d2: ps.decimal(9, 2)
    how: int


@conversions.event
class Many:
    ts: int = ps.order()
    k: int
    m: int
    n: int
    xs: list[int]
    fs: list[float]
    ds: list[ps.decimal(9, 2)]
    bs: list[bool]
    ss: list[str]
    ks: list[int]
    how: int


@conversions.transaction
def number(e: Number):
    s = Shelf.get(e.k)
    w, x, b = 0, 0.0, False
    if e.how == 0:
        w = int(e.f)
    elif e.how == 1:
        w = int(e.d) + int(e.b) + int(e.n) + round(e.m)
    elif e.how == 2:
        x = float(e.n) + float(e.b)
    elif e.how == 3:
        x = float(e.d) + float(e.f)
    elif e.how == 4:
        b = bool(e.n) and bool(e.d) or bool(e.f)
    elif e.how == 5:
        x = float(Decimal(e.n) + e.d2)
    elif e.how == 6:
        w, r = divmod(e.n, e.m)
        w **= 2
        w -= r
    elif e.how == 7:
        x, y = divmod(e.f, float(e.m))
        x += y
    elif e.how == 8:
        q, d = divmod(e.d2, Decimal("0.03"))
        w = int(q)
        x = float(d)
    elif e.how == 9:
        w = e.n**3 + 2**10 - e.m**1 + e.m**0
    else:
        x = float(round(e.d2**2, 1) + e.d2**0)
    s.n = w
    return {"w": w, "x": x, "b": b}


@conversions.transaction
def many(e: Many):
    s = Shelf.get(e.k)
    w, x, b, t = 0, 0.0, False, ""
    if e.how == 0:
        w = sum(e.xs) + sum(e.xs[1:]) + len(e.xs[: e.m])
        x = sum(e.fs, 0.0)
    elif e.how == 1:
        w = min(e.xs) - max(e.xs, default=-1)
        x = max(e.fs, default=1.5) + float(min(e.ds))
    elif e.how == 2:
        b = any(e.bs) and not all(e.xs[1:])
        t = max(e.ss, default="none")
    elif e.how == 3:
        w = max((i * y for i, y in enumerate(e.xs) if y > 0), default=e.n)
        for i, y in enumerate(e.fs[1:]):
            x += i * y
    elif e.how == 4:
        t = min(e.ss)
        w = min(y * z for y, z in zip(e.xs, e.ks[-2:]))
    elif e.how == 5:
        for i, k in enumerate(e.ks):
            Shelf.get(k + i).n += 1
    elif e.how == 6:
        w = max(i * 2 for i in range(e.m))
    else:
        t = e.ss[e.m]
        x = e.fs[-e.m] + float(e.ds[-1] + e.ds[0])
        b = e.bs[1]
        Shelf.get(e.ks[0]).n += 1
    s.n += w
    return {"w": w, "x": x, "b": b, "t": t}


key, small = st.sampled_from([1, 1, 2]), st.integers(-3, 4)
CASE = Case(
    conversions,
    {Shelf: rows(Shelf, [(1,), (2,)])},
    st.one_of(
        event(Number, k=key, how=st.integers(0, 10)),
        event(Number, k=key, n=small, m=small, how=st.integers(6, 10)),
        event(Many, k=key, m=small, n=small, ks=st.lists(key, max_size=4), how=st.integers(0, 7)),
        event(
            Many, k=key, m=small, xs=st.lists(small, max_size=4), ks=st.lists(key, min_size=1), how=st.integers(3, 7)
        ),
    ),
)
