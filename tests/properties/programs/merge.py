"""Fields that transactions return under one name with different types; events with and without id; datetime ts."""

import datetime

from hypothesis import strategies as st
from values import event, rows

import penstock as ps
from programs import Case

merge = ps.App("merge")


@merge.table
class One:
    k: int = ps.key()
    n: int = 0


@merge.event
class Ints:
    at: datetime.datetime = ps.order()
    k: int
    n: int


@merge.event
class Decimals:
    ts: datetime.datetime = ps.order()
    id: str = ps.id()
    k: int
    d: ps.decimal(18, 2)
    f: float


@merge.event
class Silent:
    ts: datetime.datetime = ps.order()
    name: str = ps.id()
    k: int


@merge.transaction
def ints(e: Ints):
    One.get(e.k).n += 1
    if e.n < 0:
        return
    return {"exact": e.n, "rough": e.n, "word": None, "only": One[e.k].n}


@merge.transaction
def decimals(e: Decimals):
    one = One.get(e.k)
    one.n += 1
    if one.n % 3 == 0:
        return {"exact": e.d, "word": "third"}
    return {"rough": e.f, "exact": e.d * 10, "word": e.id}


@merge.transaction
def silent(e: Silent):
    del One[e.k]


key = st.sampled_from([1, 1, 2])
CASE = Case(
    merge,
    {One: rows(One, [(1,), (3,)])},
    st.one_of(event(Ints, k=key), event(Decimals, k=key), event(Silent, k=key)),
)
