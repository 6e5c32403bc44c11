"""Arithmetic of datetimes, dates and timedeltas, ordinary and at its edges."""

import datetime

from hypothesis import strategies as st
from values import event, rows

import penstock as ps
from programs import Case

times = ps.App("times")

GRACE = datetime.timedelta(minutes=5)


@times.table
class Booking:
    room: int = ps.key()
    length: datetime.timedelta = ps.key()
    until: datetime.datetime = datetime.datetime(2024, 2, 29)
    day: datetime.date = datetime.date(2024, 2, 29)
    used: datetime.timedelta = datetime.timedelta(hours=-1)
    turns: int = 0


@times.event
class Book:
    ts: datetime.datetime = ps.order()
    room: int
    at: datetime.datetime
    length: datetime.timedelta
    pauses: list[datetime.timedelta]
    times: int
    how: int


@times.event
class Move:
    ts: datetime.datetime = ps.order()
    room: int
    length: datetime.timedelta
    by: datetime.timedelta
    day: datetime.date
    how: int


@times.transaction
def book(e: Book):
    one = Booking.get(e.room, e.length)
    used = datetime.timedelta()
    for pause in e.pauses:
        used += pause
    if e.how == 0:
        one.until = e.at + e.length
    elif e.how == 1:
        one.until -= GRACE - e.length
    elif e.how == 2:
        used = one.until - e.at
    elif e.how == 3:
        used = used * e.times
    elif e.how == 4:
        used = e.length // e.times
    elif e.how == 5:
        used %= e.length
    else:
        one.turns = used // e.length
    one.used += abs(used)
    ps.require(not used or one.until - GRACE < datetime.timedelta(hours=1) + e.ts or e.how != 1, "too long")
    return {"used": used, "until": one.until, "left": -one.used, "turns": one.turns}


@times.transaction
def move(e: Move):
    one = Booking[e.room, e.length]
    share = 0.0
    if e.how == 0:
        one.day += e.by
    elif e.how == 1:
        one.day -= e.by
    elif e.how == 2:
        one.used = e.day - one.day
    elif e.how == 3:
        share = e.by / one.used
    else:
        one.day = max(e.day, e.by + one.day)
    return {"day": one.day, "used": one.used, "share": share, "before": e.by < one.used}


room, length = st.sampled_from([1, 1, 2]), st.sampled_from([GRACE, GRACE, -GRACE, datetime.timedelta()])
CASE = Case(
    times,
    {Booking: rows(Booking, [(1, GRACE), (1, -GRACE), (2, GRACE)])},
    st.one_of(
        event(Book, room=room, how=st.integers(0, 6)),
        event(Book, room=room, length=length, how=st.integers(0, 6)),
        event(Move, room=room, length=length, how=st.integers(0, 4)),
    ),
)
