"""Every type as a value: stored, defaulted, compared, chosen between by min and max, returned."""

import datetime

from hypothesis import strategies as st
from values import event, rows

import penstock as ps
from programs import Case

kinds = ps.App("kinds")


@kinds.table
class All:
    k: int = ps.key()
    i: int = -1
    f: float = 2.5
    b: bool = True
    s: str = "déjà"
    d: ps.decimal(12, 3) = 1
    t: datetime.datetime = datetime.datetime(2024, 1, 1)
    day: datetime.date = datetime.date(2024, 1, 1)
    g: datetime.timedelta = datetime.timedelta(minutes=-1)


@kinds.table
class Bare:
    k: int = ps.key()
    i: int
    f: float
    b: bool
    s: str
    d: ps.decimal(12, 3)
    t: datetime.datetime
    day: datetime.date
    g: datetime.timedelta


@kinds.event
class Put:
    ts: int = ps.order()
    id: str = ps.id()
    k: int
    i: int
    f: float
    b: bool
    s: str
    d: ps.decimal(12, 3)
    t: datetime.datetime
    day: datetime.date
    g: datetime.timedelta


@kinds.event
class Compare:
    ts: int = ps.order()
    id: str = ps.id()
    k: int
    i: int
    f: float
    b: bool
    s: str
    d: ps.decimal(12, 3)
    t: datetime.datetime
    day: datetime.date
    g: datetime.timedelta


@kinds.transaction
def put(e: Put):
    if e.k in Bare:
        bare = Bare[e.k]
        bare.i, bare.f, bare.b = e.i, e.f, e.b
        bare.s = e.s
        bare.d = e.d
        bare.t = e.t
        bare.day = e.day
        bare.g = e.g
    else:
        Bare.insert(e.k, g=e.g, day=e.day, t=e.t, d=e.d, s=e.s, b=e.b, f=e.f, i=e.i)
    one = All.get(e.k)
    one.i = max(one.i, e.i)
    one.f = max(one.f, e.f)
    one.b = one.b == e.b
    one.s = max(one.s, e.s)
    one.d = max(one.d, e.d)
    one.t = max(one.t, e.t, e.t)
    one.day = max(one.day, e.day)
    one.g = max(one.g, e.g)
    return {"i": one.i, "f": one.f, "b": one.b, "s": one.s, "d": one.d, "t": one.t, "day": one.day, "g": one.g}


@kinds.transaction
def compare(e: Compare):
    one = All.get(e.k)
    less = e.i < one.i or e.f < one.f or e.s < one.s or e.d < one.d or e.t < one.t or e.day < one.day
    same = e.i == one.i and e.f == one.f and e.s == one.s and e.d == one.d and e.t == one.t and e.day == one.day
    if e.g > one.g or e.g == -one.g:
        one.g = min(e.g, one.g)
    if e.f != e.f:
        one.f = -one.f
    if e.s >= one.s > "a":
        one.s = min(e.s, one.s, "m")
    if e.b != one.b:
        one.t = min(one.t, e.t)
        one.day = min(one.day, e.day)
    elif e.i < e.f or e.f <= one.i:
        one.f = min(one.f, e.f)
    if e.i > e.d or e.d <= one.i:
        one.i = min(one.i, e.i)
    return {"b": less, "same": same, "s": one.s, "f": one.f, "i": min(e.i, 5), "d": min(e.d, one.d), "day": one.day}


key = st.sampled_from([0, 0, 1])
CASE = Case(
    kinds,
    {All: rows(All, [(0,), (1,)]), Bare: rows(Bare, [(0,), (1,)])},
    st.one_of(event(Put, k=key), event(Compare, k=key)),
    size=20,
)
