"""Insert, delete, insert again; handles used after a delete; checks by order of first write."""

from hypothesis import strategies as st
from values import event, rows

import penstock as ps
from programs import Case

lifecycle = ps.App("lifecycle")


@lifecycle.table
class Item:
    k: str = ps.key()
    n: int = 0
    tag: str = "new"

    @ps.check("item negative")
    def positive(self):
        return self.n >= 0

    @ps.check("item bad tag")
    def tagged(self):
        return self.tag != "bad" and 10 // (self.n - 7) < 100


@lifecycle.table
class Place:
    x: int = ps.key()
    y: int = ps.key()
    n: int = 0

    @ps.check("place negative")
    def positive(self):
        return self.n >= 0


@lifecycle.event
class Churn:
    ts: int = ps.order()
    id: str = ps.id()
    a: str
    b: str
    n: int
    what: int


@lifecycle.event
class Order:
    ts: int = ps.order()
    id: str = ps.id()
    a: str
    x: int
    y: int
    n: int
    m: int
    what: int


@lifecycle.transaction
def churn(e: Churn):
    if e.what == 0:
        Item.insert(e.a, n=e.n)
        del Item[e.a]
        again = Item.insert(e.a, tag="again")
        return {"n": again.n, "tag": again.tag}
    one = Item[e.a]
    if e.what == 1:
        del Item[e.a]
        if e.b in Item:
            del Item[e.b]
        return {"n": one.n}
    soft = Item.get(e.b)
    before = soft.n
    if e.what == 2:
        del Item[e.b]
        soft.n += e.n
        return {"n": soft.n, "tag": soft.tag, "was": before}
    if e.what == 3:
        del Item[e.a]
        back = Item.insert(e.b, n=e.n)
        one.n += 1
        return {"n": back.n, "tag": one.tag}
    if e.what == 4:
        one.n = e.n
        soft.n -= one.n
        del Item[e.a]
        Item.get(e.a).tag = "bad"
        return {"n": soft.n, "was": before, "there": e.b in Item}
    one.n = e.n
    del Item[e.a]
    return {"there": e.a in Item, "n": Item.get(e.a).n}


@lifecycle.transaction
def order(e: Order):
    if e.what == 0:
        Place.get(e.x, e.y).n = e.n
        Item.get(e.a).n = e.m
    elif e.what == 1:
        Item.get(e.a).n = e.m
        Place.get(e.x, e.y).n = e.n
    elif e.what == 2:
        first = Place.get(e.x, e.y)
        second = Place.get(e.y, e.x)
        first.n = e.n
        second.n = e.m
        Item.get(e.a).n = -1
        if e.x != e.y:
            del Place[e.x, e.y]
        else:
            first.n = second.n
        if e.m > 1:
            Place.insert(e.x, e.y, n=e.n)
    else:
        Place.insert(e.x, e.y, n=Item[e.a].n // e.n)
        ps.require(e.m != 0, "late require")
    return {"n": Place.get(e.x, e.y).n, "was": Item.get(e.a).n}


key = st.sampled_from(["a", "a", "b", "c"])
small = st.integers(-2, 8)
CASE = Case(
    lifecycle,
    {
        Item: rows(Item, [("a",), ("b",)], n=st.integers(0, 6), tag=st.sampled_from(["t", "bad"])),
        Place: rows(Place, [(0, 0), (0, 1), (1, 0)], n=st.integers(0, 3)),
    },
    st.one_of(
        event(Churn, a=key, b=key, n=small, what=st.integers(0, 5)),
        event(Order, a=key, x=st.integers(0, 2), y=st.integers(0, 2), n=small, m=small, what=st.integers(0, 3)),
    ),
)
