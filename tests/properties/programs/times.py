"""Datetimes, dates and timedeltas: their arithmetic and their parts, ordinary and at their edges."""

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


@times.table
class Hour:
    day: datetime.date = ps.key()
    hour: int = ps.key()
    first: datetime.datetime = datetime.datetime(9999, 12, 31)
    turns: int = 0


@times.event
class Look:
    ts: datetime.datetime = ps.order()
    at: datetime.datetime
    day: datetime.date
    length: datetime.timedelta
    n: int
    how: int


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
def look(e: Look):
    one = Hour.get(e.at.date(), e.at.hour)
    one.turns += 1
    one.first = min(one.first, e.at)
    number, share, moved = 0, 0.0, e.day
    if e.how == 0:
        moved = e.at.replace(day=1).date()
    elif e.how == 1:
        moved = e.day.replace(month=2, day=28) + datetime.timedelta(e.n, hours=-24)
    elif e.how == 2:
        number = e.day.year * 10000 + e.day.month * 100 + e.day.day
    elif e.how == 3:
        number = e.at.weekday() * 10 + e.day.isoweekday() + e.day.toordinal() * 100
    elif e.how == 4:
        number = e.length.days * 86400 + e.length.seconds + e.length.microseconds
        share = e.length.total_seconds()
    elif e.how == 5:
        one.first = e.at.replace(minute=0, second=0, microsecond=0)
        share = one.first.timestamp()
    else:
        one.first += datetime.timedelta(minutes=e.n, seconds=e.n)
        number = (e.at.minute * 60 + e.at.second) * 1000000 + e.at.microsecond
    if e.at < datetime.datetime(1970, 1, 1) and e.day > datetime.date(2000, 2, 29):
        ps.abort("far apart", by=e.day.year - e.at.year)
    return {"number": number, "share": share, "day": moved}


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
        event(Look, how=st.integers(0, 6)),
        event(Look, how=st.integers(0, 6), n=st.integers(-5, 5)),
        event(Move, room=room, length=length, how=st.integers(0, 4)),
    ),
)
