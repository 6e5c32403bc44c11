"""The calendar for generated kernels: parts of a time, and what replaces them, as Python's datetime has them.

Times are microseconds since 1970 in UTC, days are days since then; both of the years 1 to 9999. Every quotient is
rounded down, so that what lies before 1970 has its parts as well.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.execute.kernels import floor_div, floor_mod, true_div
from penstock.state.jit import kernel

SECOND, MINUTE, HOUR, DAY = 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000
# Days from the first of March of the year 0, where a calendar whose leap day comes last begins, to 1970; and from the
# day before the first of January of the year 1, which Python counts from.
_TO_MARCH, _TO_ORDINAL = 719_468, 719_163
_CYCLE = 146_097  # days of 400 years, after which the calendar repeats itself


@kernel(error_model="numpy")
def _civil(days: Any) -> Any:
    """Year, month and day."""
    since = days + _TO_MARCH  # not below 0 from the year 1 on
    cycle = since // _CYCLE
    day = since - cycle * _CYCLE
    year = (day - day // 1460 + day // 36524 - day // 146096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5
    if month >= 10:
        return np.int64(400 * cycle + year + 1), np.int64(month - 9), np.int64(day + 1)
    return np.int64(400 * cycle + year), np.int64(month + 3), np.int64(day + 1)


@kernel(error_model="numpy")
def _days(year: Any, month: Any, day: Any) -> Any:
    """The number of a day that the calendar has."""
    if month <= 2:
        year, month = year - 1, month + 12
    leap = year // 4 - year // 100 + year // 400
    return np.int64(365 * year + leap + (153 * (month - 3) + 2) // 5 + day - 1) - _TO_MARCH


# -- days ---------------------------------------------------------------------------------------


@kernel
def year(days: Any) -> Any:
    return _civil(days)[0]


@kernel
def month(days: Any) -> Any:
    return _civil(days)[1]


@kernel
def day(days: Any) -> Any:
    return _civil(days)[2]


@kernel
def weekday(days: Any) -> Any:
    """0 on a Monday."""
    return floor_mod(days + 3, 7)


@kernel
def isoweekday(days: Any) -> Any:
    return weekday(days) + 1


@kernel
def ordinal(days: Any) -> Any:
    return days + _TO_ORDINAL


@kernel
def replace(days: Any, year: Any, month: Any, day: Any) -> Any:
    """A day with other parts; -1 keeps one. What there is no day for does not come here."""
    y, m, d = _civil(days)
    return _days(y if year < 0 else year, m if month < 0 else month, d if day < 0 else day)


# -- times --------------------------------------------------------------------------------------


@kernel
def date(time: Any) -> Any:
    return floor_div(time, DAY)


@kernel
def year_of(time: Any) -> Any:
    return year(date(time))


@kernel
def month_of(time: Any) -> Any:
    return month(date(time))


@kernel
def day_of(time: Any) -> Any:
    return day(date(time))


@kernel
def weekday_of(time: Any) -> Any:
    return weekday(date(time))


@kernel
def isoweekday_of(time: Any) -> Any:
    return isoweekday(date(time))


@kernel
def ordinal_of(time: Any) -> Any:
    return ordinal(date(time))


@kernel
def hour(time: Any) -> Any:
    return floor_div(floor_mod(time, DAY), HOUR)


@kernel
def minute(time: Any) -> Any:
    return floor_div(floor_mod(time, HOUR), MINUTE)


@kernel
def second(time: Any) -> Any:
    return floor_div(floor_mod(time, MINUTE), SECOND)


@kernel
def microsecond(time: Any) -> Any:
    return floor_mod(time, SECOND)


@kernel
def replace_of(
    time: Any, year: Any, month: Any, day: Any, hours: Any, minutes: Any, seconds: Any, microseconds: Any
) -> Any:
    """A time with other parts; -1 keeps one."""
    days = date(time)
    if year >= 0 or month >= 0 or day >= 0:
        days = replace(days, year, month, day)
    h = hour(time) if hours < 0 else hours
    m = minute(time) if minutes < 0 else minutes
    s = second(time) if seconds < 0 else seconds
    us = microsecond(time) if microseconds < 0 else microseconds
    return days * DAY + h * HOUR + m * MINUTE + s * SECOND + us


# -- spans --------------------------------------------------------------------------------------


@kernel
def days(span: Any) -> Any:
    return floor_div(span, DAY)


@kernel
def seconds(span: Any) -> Any:
    """What is left of a timedelta beside its days, in whole seconds."""
    return floor_div(floor_mod(span, DAY), SECOND)


@kernel
def total_seconds(span: Any) -> Any:
    """Of a timedelta, or of a time since 1970."""
    return true_div(span, SECOND)
