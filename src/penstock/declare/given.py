"""A Python value that was handed in, as Arrow takes it for a declared type; ValueError where it is not of the type.

Nothing is guessed: a str is not a number, a float is not money, and a bool is not an int.
"""

from __future__ import annotations

import datetime
from decimal import Context, Decimal, localcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.declare.limits import FLOAT_INT_MAX, INT_MAX, INT_MIN, LONGEST

if TYPE_CHECKING:
    from penstock.declare.types import Type


def _need(holds: bool) -> None:
    if not holds:
        raise ValueError


def an_int(value: Any, type_: Type) -> int:
    _need(isinstance(value, int | np.integer) and not isinstance(value, bool))
    _need(INT_MIN <= value <= INT_MAX)
    return int(value)


def a_float(value: Any, type_: Type) -> float:
    if isinstance(value, float | np.floating):
        return float(value)
    _need(abs(an_int(value, type_)) <= FLOAT_INT_MAX)
    return float(value)


def a_bool(value: Any, type_: Type) -> bool:
    _need(isinstance(value, bool | np.bool_))
    return bool(value)


def a_str(value: Any, type_: Type) -> str:
    _need(isinstance(value, str))
    value.encode()  # a lone surrogate raises UnicodeEncodeError, which is a ValueError
    return str.__str__(value)  # str() of a member of an Enum would be its name


def a_decimal(value: Any, type_: Type) -> Decimal:
    exact = value if isinstance(value, Decimal) else Decimal(an_int(value, type_))
    _need(exact.is_finite())
    with localcontext(Context(prec=60)):  # whatever the caller's context rounds or traps
        scaled = exact.quantize(Decimal(1).scaleb(-type_.scale))
        _need(scaled == exact and scaled.copy_abs() < Decimal(10) ** (type_.precision - type_.scale))
    return scaled


def a_datetime(value: Any, type_: Type) -> datetime.datetime:
    # pandas' Timestamp is a datetime with nanoseconds.
    _need(isinstance(value, datetime.datetime) and not getattr(value, "nanosecond", 0))
    # Near the ends of Python's years there may be no such time in UTC: an OverflowError.
    return value.replace(tzinfo=datetime.UTC) if value.tzinfo is None else value.astimezone(datetime.UTC)


def a_date(value: Any, type_: Type) -> datetime.date:
    _need(isinstance(value, datetime.date) and not isinstance(value, datetime.datetime))
    return value


def a_timedelta(value: Any, type_: Type) -> datetime.timedelta:
    # pandas' Timedelta is a timedelta with nanoseconds.
    _need(isinstance(value, datetime.timedelta) and not getattr(value, "nanoseconds", 0))
    _need(-LONGEST <= value <= LONGEST)
    return value


def a_list(value: Any, type_: Type) -> list[Any]:
    _need(isinstance(value, list | tuple | np.ndarray))
    item = type_.item
    assert item is not None
    return [None if v is None else item.traits.given(v, item) for v in value]
