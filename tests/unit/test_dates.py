"""The calendar: kernels against Python's own datetime, and what bodies make of them."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.declare import limits
from penstock.execute import dates

UTC = dt.UTC
# The first and the last of everything, leap days, and what lies on both sides of 1970.
EDGES = [
    dt.datetime(1, 1, 1),
    dt.datetime(1, 12, 31, 23, 59, 59, 999999),
    dt.datetime(4, 2, 29),
    dt.datetime(100, 3, 1),
    dt.datetime(400, 2, 29, 12),
    dt.datetime(1582, 10, 10),
    dt.datetime(1900, 2, 28, 23, 59, 59, 999999),
    dt.datetime(1900, 3, 1),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
    dt.datetime(1970, 1, 1),
    dt.datetime(1970, 1, 1, 0, 0, 0, 1),
    dt.datetime(2000, 2, 29, 0, 0, 0, 1),
    dt.datetime(2000, 12, 31),
    dt.datetime(2024, 2, 29, 12),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
]


def moments(count: int) -> Iterator[dt.datetime]:
    rng, (low, high) = Random(5), limits.TIMES
    yield from (moment.replace(tzinfo=UTC) for moment in EDGES)
    for _ in range(count):
        at = rng.randint(low, high) if rng.random() < 0.7 else rng.randint(-(10**15), 10**15)
        if rng.random() < 0.2:
            at -= at % limits.DAY  # midnight
        yield limits.EPOCH + dt.timedelta(microseconds=at)


def agree(moment: dt.datetime) -> None:
    us, day = limits.microseconds(moment), moment.date()
    days = limits.days(day)
    assert dates.date(us) == days
    for name in ("year", "month", "day"):
        assert getattr(dates, name)(days) == getattr(dates, f"{name}_of")(us) == getattr(moment, name), moment
    for name in ("hour", "minute", "second", "microsecond"):
        assert getattr(dates, name)(us) == getattr(moment, name), moment
    for name, python in (("weekday", "weekday"), ("isoweekday", "isoweekday"), ("ordinal", "toordinal")):
        assert getattr(dates, name)(days) == getattr(dates, f"{name}_of")(us) == getattr(moment, python)(), moment
    assert dates.total_seconds(us) == moment.timestamp(), moment
    hour = moment.replace(minute=0, second=0, microsecond=0)
    assert dates.replace_of(us, -1, -1, -1, -1, 0, 0, 0) == limits.microseconds(hour), moment
    assert dates.replace_of(us, -1, -1, -1, 0, 0, 0, 0) == limits.microseconds(hour.replace(hour=0)), moment
    assert dates.replace_of(us, -1, -1, 28, -1, -1, 59, -1) == limits.microseconds(moment.replace(day=28, second=59))
    assert dates.replace(days, -1, 2, 1) == limits.days(day.replace(month=2, day=1)), moment
    assert dates.replace(days, 9999, 12, 31) == limits.DAYS[1]


def spans_agree(span: dt.timedelta) -> None:
    us = span // limits.MICROSECOND
    assert dates.days(us) == span.days
    assert dates.seconds(us) == span.seconds
    assert dates.microsecond(us) == span.microseconds
    assert math.copysign(1, dates.total_seconds(us)) * dates.total_seconds(us) == abs(span.total_seconds())
    assert dates.total_seconds(us) == span.total_seconds()


def spans(count: int) -> Iterator[dt.timedelta]:
    rng = Random(6)
    for us in (0, 1, -1, limits.DAY, -limits.DAY, limits.DAY - 1, 1 - limits.DAY, *limits.SPANS):
        yield dt.timedelta(microseconds=us)
    for _ in range(count):
        size = 10 ** rng.randint(1, 18)
        yield dt.timedelta(microseconds=rng.randint(-size, size))


def test_a_time_has_the_parts_that_python_gives_it() -> None:
    for moment in moments(3000):
        agree(moment)
    for span in spans(3000):
        spans_agree(span)


@pytest.mark.long
def test_every_day_has_the_parts_that_python_gives_it() -> None:
    low, high = limits.DAYS
    for days in range(low, high + 1):
        day = dt.date.fromordinal(days + 719_163)
        assert (dates.year(days), dates.month(days), dates.day(days)) == (day.year, day.month, day.day)
        assert dates.weekday(days) == day.weekday()
        assert dates.replace(days, -1, -1, 1) == days - day.day + 1
    for moment in moments(1_000_000):
        agree(moment)
    for span in spans(1_000_000):
        spans_agree(span)


app = ps.App("calendar")
OPEN = dt.timedelta(hours=9)


@app.table
class Visits:
    who: str = ps.key()
    day: dt.date = ps.key()
    hour: int = ps.key()
    count: int = 0
    last: dt.datetime = dt.datetime(2026, 1, 1)

    @ps.check("asleep")
    def open(self):
        return self.last.hour >= 1 or self.day.year < 1970


@app.event
class Visit:
    ts: int = ps.order()
    who: str
    at: dt.datetime
    minutes: int


@app.transaction
def visit(e: Visit):
    one = Visits.get(e.who, e.at.date(), e.at.hour)
    one.count += 1
    one.last = e.at
    until = e.at + dt.timedelta(minutes=e.minutes, seconds=-1)
    start = e.at.replace(hour=0, minute=0, second=0, microsecond=0)
    if e.at < dt.datetime(2026, 1, 1) or e.at - start < OPEN:
        ps.abort("closed")
    return {"until": until, "monday": e.at.weekday() == 0, "part": (e.at - start).total_seconds(), "day": until.date()}


def day(month: int, day: int, hour: int = 10, minute: int = 0) -> dt.datetime:
    return dt.datetime(2026, month, day, hour, minute, tzinfo=UTC)


def test_what_a_time_makes_is_a_key_foreseen() -> None:
    batch = [
        Visit(ts=1, who="a", at=day(1, 5, 10), minutes=5),
        Visit(ts=2, who="a", at=day(1, 5, 10, 59), minutes=2),
        Visit(ts=3, who="a", at=day(1, 5, 11), minutes=0),
        Visit(ts=4, who="a", at=day(1, 5, 8), minutes=0),
        Visit(ts=5, who="a", at=day(1, 6), minutes=2**62),
        Visit(ts=6, who="a", at=dt.datetime(2025, 12, 31, 23, 59, tzinfo=UTC), minutes=0),
        Visit(ts=7, who="b", at=day(1, 4, 23, 59), minutes=1),
    ]
    reference = app.reference()
    expected = reference.run(batch)
    assert expected.column("reason").to_pylist() == [None, None, None, "closed", "overflow", "closed", None]
    assert expected.column("monday").to_pylist() == [True, True, True, None, None, None, False]
    assert expected.column("until").to_pylist()[-1] == day(1, 4, 23, 59) + dt.timedelta(seconds=59)
    policies = [ps.Policy.serial(), ps.Policy.locking("lwm", threads=2, partitions=4)]
    policies += [ps.Policy(unit=unit, threads=2) for unit in ("operation", "chain", "transaction")]
    for policy in policies:
        with app.open() as db:
            assert db.run(batch, policy=policy).to_pylist() == expected.to_pylist()
            assert db.table(Visits).sort_by("hour").equals(reference.table(Visits).sort_by("hour"))
            assert "alone" not in db.last_batch.why


def test_a_timedelta_of_fields_overflows_part_by_part() -> None:
    """As n * timedelta(days=1) would, even where another part would bring it back."""
    app = ps.App("spans")

    @app.event
    class Make:
        ts: int = ps.order()
        d: int
        s: int

    @app.transaction
    def make(e: Make):
        return {"span": dt.timedelta(e.d, seconds=e.s)}

    given: list[tuple[int, int]] = [(1, -1), (106751991, 0), (106751991, 1), (106751992, -(2**40)), (0, 2**63 - 1)]
    batch = [Make(ts=n, d=d, s=s) for n, (d, s) in enumerate(given)]
    with app.open() as db:
        found = db.run(batch).to_pylist()
    assert found == app.reference().run(batch).to_pylist()
    longest: list[Any] = [dt.timedelta(seconds=86399), limits.LONGEST, None, None, None]
    assert [row["span"] for row in found] == longest
    assert [row["reason"] for row in found] == [None, None, "overflow", "overflow", "overflow"]


def test_kernels_take_numpy_words() -> None:
    assert dates.replace_of(np.int64(-1), -1, -1, -1, -1, -1, 0, -1) == -59_000_001
