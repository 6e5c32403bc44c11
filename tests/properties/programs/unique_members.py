"""Ids that run once, of events that are members of atomic batches, that emit, and that set timers. It
emits, so it runs under no schedule but the serial loop, and is not among NAMES."""

from hypothesis import strategies as st
from values import event, rows

import penstock as ps
from programs import Case

app = ps.App("unique_members")


@app.table
class Count:
    k: int = ps.key()
    n: int = 0
    sum: int = 0


@app.event
class Trade:
    ts: int = ps.order()
    id: int = ps.id(unique=3)
    amount: int


@app.event
class Order:
    ts: int = ps.order()
    id: int = ps.id(unique=2)
    amount: int


@app.event
class Booking:
    ts: int = ps.order()
    id: int = ps.id(unique=60)
    amount: int


@app.event
class Look:
    ts: int = ps.order()
    k: int


@app.event
class Expire:
    k: int


@app.event
class Alarm:
    k: int


@app.transaction(batch=2)
def settle(trades: list[Trade]):
    total = 0
    for t in trades:
        total += t.amount
    Count.get(0).n += len(trades)
    Count.get(0).sum += total
    ps.require(total < 50, "too much")
    return {"count": len(trades), "total": total}


@app.transaction(batch="ts")
def fill(orders: list[Order]):
    for o in orders:
        Count.get(1).sum += o.amount
        ps.emit(Alarm(k=o.amount))
    Count.get(1).n += len(orders)
    return {"count": len(orders)}


@app.transaction
def book(e: Booking):
    Count.get(2).n += 1
    ps.emit(Expire(k=e.amount), at=ps.now() + 2)


@app.transaction
def expire(e: Expire):
    Count.get(3).n += 1
    return {"total": Count[3].n}


@app.transaction
def look(e: Look):
    return {"count": Count.get(e.k).n}


ts = st.integers(-1, 9)
id_, amount = st.sampled_from([1, 1, 2, -3]), st.sampled_from([1, 2, 3, 60])
CASE = Case(
    app,
    {Count: rows(Count, [(0,)], n=st.just(0), sum=st.just(0))},
    st.one_of(
        event(Trade, ts=ts, id=id_, amount=amount),
        event(Trade, ts=ts, id=id_, amount=amount),
        event(Order, ts=ts, id=id_, amount=amount),
        event(Order, ts=ts, id=id_, amount=amount),
        event(Booking, ts=ts, id=id_, amount=amount),
        event(Look, ts=ts, k=st.sampled_from([0, 1, 3])),
    ),
)
