"""How far the values of each type reach, in the unit that they are kept in."""

from __future__ import annotations

import datetime

INT_MIN, INT_MAX = -(2**63), 2**63 - 1

# int64 holds every 18-digit number; a 19-digit one may not fit.
MAX_DIGITS = 18

# Every int up to here is a float too; Arrow's safe cast draws the same line.
FLOAT_INT_MAX = 2**53

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MICROSECOND = datetime.timedelta(microseconds=1)


def microseconds(moment: datetime.datetime) -> int:
    return (moment - EPOCH) // MICROSECOND


def days(day: datetime.date) -> int:
    return (day - EPOCH.date()).days


# A timedelta is at most as long as the whole days that int64 microseconds hold, either way: each has its opposite then.
# And Arrow takes each from Python, which it does not for the least second of int64.
DAY = datetime.timedelta(days=1) // MICROSECOND
LONGEST = datetime.timedelta(days=INT_MAX // DAY)
SPANS = (-LONGEST // MICROSECOND, LONGEST // MICROSECOND)

# Python's own years, 1 to 9999.
TIMES = tuple(microseconds(m.replace(tzinfo=datetime.UTC)) for m in (datetime.datetime.min, datetime.datetime.max))
DAYS = tuple(days(d) for d in (datetime.date.min, datetime.date.max))

# The longest string that a body makes, in bytes of UTF-8: one that grows by itself ends here, before memory does.
LONGEST_TEXT = 65_536
