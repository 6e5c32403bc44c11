"""Timers: set by events with and without an id, by timers, in groups that abort; due soon, at once, late or never; of
several events at one time; with fields of every kind of lane."""

from decimal import Decimal

from hypothesis import strategies as st
from values import event, rows

import penstock as ps
from programs import Case

clockwork = ps.App("clockwork")


@clockwork.table
class Cell:
    k: str = ps.key()
    n: int = 0
    last: int = 0
    total: ps.decimal(18, 2) = 0


@clockwork.event
class Set:
    ts: int = ps.order()
    id: str = ps.id()
    k: str
    at: int
    left: int
    f: float
    d: ps.decimal(18, 2)


@clockwork.event
class Plain:
    ts: int = ps.order()
    k: str
    after: int


@clockwork.event
class Ring:
    k: str
    left: int
    f: float
    d: ps.decimal(18, 2)
    b: bool


@clockwork.event
class Part:
    k: str


@clockwork.event
class Rung:
    k: str
    f: float


@clockwork.transaction
def set_(e: Set):
    Cell.get(e.k).n += 1
    ps.emit(Ring(k=e.k, left=e.left % 4, f=e.f, d=e.d, b=e.left > 2), at=e.at)
    if e.left % 2 == 0:
        ps.emit(Part(k=e.k))
    ps.require(e.left != 3, "no")
    return {"now": ps.now()}


@clockwork.transaction
def plain(e: Plain):
    ps.emit(Part(k=e.k), at=e.ts + e.after)
    for i in range(e.after % 3):
        ps.emit(Ring(k=e.k, left=i, f=0.5, d=Decimal("1.25"), b=False), at=ps.now() + e.after)


@clockwork.transaction(nested=True)
def part(e: Part):
    cell = Cell.get(e.k)
    cell.n += 1
    ps.require(cell.n % 3 != 0, "third")


@clockwork.transaction
def ring(e: Ring):
    cell = Cell.get(e.k)
    cell.last = ps.now()
    cell.total += e.d
    if e.left > 0:
        ps.emit(Ring(k=e.k, left=e.left - 1, f=e.f, d=e.d, b=not e.b), at=ps.now() + 2 * (e.left - 2))
    ps.emit(Rung(k=e.k, f=e.f))
    if e.b:
        ps.emit(Part(k=e.k))
    ps.require(cell.n % 7 != 6, "worn")
    return {"now": ps.now(), "left": e.left}


key = st.sampled_from(["a", "a", "b", ""])
soon = st.sampled_from([-1, 0, 1, 2, 3, 4, 5, 7, 2**63 - 1, -(2**63)])
ts = st.sampled_from([1, 2, 3, 3, 4, 5, 6, 8, 9, 12, -(2**63), 2**63 - 1])
CASE = Case(
    clockwork,
    {Cell: rows(Cell, [("a",), ("b",)])},
    st.one_of(event(Set, ts=ts, k=key, at=soon, left=st.integers(0, 5)), event(Plain, ts=ts, k=key, after=soon)),
)
