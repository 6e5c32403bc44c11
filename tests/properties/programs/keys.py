"""Every type of key, alone and composite; keys converted as if stored; one event touches each table."""

import datetime

from hypothesis import strategies as st
from values import event, of_type, rows

import penstock as ps
from programs import Case

keys = ps.App("keys")


@keys.table
class ByInt:
    k: int = ps.key()
    n: int = 0


@keys.table
class ByStr:
    k: str = ps.key()
    n: int = 0


@keys.table
class ByBool:
    k: bool = ps.key()
    n: int = 0


@keys.table
class ByDecimal:
    k: ps.decimal(9, 2) = ps.key()
    n: int = 0


@keys.table
class ByTime:
    k: datetime.datetime = ps.key()
    n: int = 0


@keys.table
class ByDate:
    k: datetime.date = ps.key()
    n: int = 0


@keys.table
class Many:
    n: int = 0
    s: str = ps.key()
    day: datetime.date = ps.key()
    d: ps.decimal(9, 2) = ps.key()
    b: bool = ps.key()
    last: str

    @ps.check("bad mix")
    def mix(self):
        return not (self.b and self.s == "b") or self.n < 2


@keys.event
class Touch:
    ts: datetime.datetime = ps.order()
    id: int = ps.id()
    i: int
    s: str
    b: bool
    d: ps.decimal(18, 4)
    t: datetime.datetime
    day: datetime.date


@keys.event
class Mix:
    ts: datetime.datetime = ps.order()
    id: int = ps.id()
    s: str
    b: bool
    d: ps.decimal(18, 4)
    day: datetime.date
    what: int


@keys.transaction
def touch(e: Touch):
    ByInt.get(e.i).n += 1
    ByStr.get(e.s).n += 1
    ByBool.get(e.b).n += 1
    exact = ByDecimal.get(e.d)
    exact.n += 1
    ByTime.get(e.t).n += 1
    ByDate.get(e.day).n += 1
    if ByInt[e.i].n > 3:
        del ByInt[e.i]
        del ByStr[e.s]
    if e.i in ByDecimal:
        del ByDecimal[e.i]
    return {
        "key": exact.k,
        "name": ByStr.get(e.s).k,
        "when": ByTime[e.t].k,
        "day": ByDate[e.day].k,
        "there": e.t in ByTime and not e.b in ByBool,
    }


@keys.transaction
def mix(e: Mix):
    if e.what == 0:
        made = Many.insert(e.s, e.day, e.d, e.b, last=e.s, n=1)
        return {"key": made.d, "there": made.b}
    if e.what == 1:
        del Many[e.s, e.day, e.d, e.b]
        return {"there": (e.s, e.day, e.d, e.b) in Many}
    if (e.s, e.day, e.d, not e.b) not in Many:
        Many.insert(e.s, e.day, e.d, not e.b, last="flip")
    one = Many[e.s, e.day, e.d, not e.b]
    one.n += 1
    if one.n > 1:
        other = Many[one.last, one.day, one.d, one.b]
        other.last = one.s
        return {"name": other.last, "day": other.day, "key": other.d}


d = st.one_of(*[of_type(ps.decimal(5, 4))] * 3, of_type(ps.decimal(18, 4)))
CASE = Case(
    keys,
    {
        ByInt: rows(ByInt, [(0,), (1,)]),
        ByStr: rows(ByStr, [("",), ("a",), ("a\x00",)]),
        ByBool: rows(ByBool, [(True,), (False,)]),
        Many: rows(
            Many,
            [(s, datetime.date(2024, 2, 28), 1, b) for s in ("a", "b") for b in (True, False)],
            n=st.integers(0, 3),
        ),
    },
    st.one_of(event(Touch, d=d), event(Mix, s=st.sampled_from(["a", "b", "flip"]), d=d, what=st.integers(0, 2))),
)
