"""No tables at all: what an event returns is all that is left of it."""

import datetime

from hypothesis import strategies as st
from values import event

import penstock as ps
from programs import Case

bare = ps.App("bare")


@bare.event
class Ask:
    ts: int = ps.order()
    id: str = ps.id()
    x: int
    xs: list[int]
    words: list[str]


@bare.event
class Tell:
    ts: int = ps.order()
    day: datetime.date
    rate: float
    price: ps.decimal(9, 2)


@bare.event
class Silent:
    ts: int = ps.order()


@bare.transaction
def ask(e: Ask):
    total = 0
    for x in e.xs:
        if x > e.x:
            break
        total += x
    best = ""
    for word in e.words:
        best = max(best, word)
    ps.require(total != 3, "three")
    return {"total": total, "word": best, "count": len(e.xs)}


@bare.transaction
def tell(e: Tell):
    if e.rate > 2.0:
        return {"day": e.day}
    return {"day": e.day, "worth": e.price * 3, "total": 1}


@bare.transaction
def silent(e: Silent):
    pass


CASE = Case(bare, {}, st.one_of(event(Ask), event(Tell), event(Silent)))
