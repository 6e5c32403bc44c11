"""Numbers and times as a body of a transaction means them, for the reference.

    Int   a Python int whose every result lies in int64
    Dec   an exact decimal: unscaled integer n, scale s, so n / 10**s; at most 18 digits

    Moment, Day, Span   Python's datetime, date and timedelta, with Python's arithmetic
    Text                a string

All abort with `overflow` at the operation that leaves their range. floats, bools and strs are
Python's own. Three ways lead between these and the outside:

    lift(value)           plain Python -> what a body sees
    convert(value, type)  what a body made -> what a column or returned field of the type holds
    lower(value)          what a body made -> plain Python
"""

from __future__ import annotations

import datetime
import decimal
import types
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from penstock.declare.kinds import COLUMNS
from penstock.declare.limits import LONGEST, LONGEST_TEXT
from penstock.declare.null import Null, is_none, use
from penstock.declare.types import INT_MAX, INT_MIN, MAX_DIGITS, Type, plain
from penstock.errors import Aborted

_DEC_LIMIT = 10**MAX_DIGITS

# Digits after the point that a division keeps at least.
_DIVISION_SCALE = 6


class Int(int):
    """An int64."""

    __slots__ = ()

    # int's own methods answer NotImplemented for floats and Decs, which then take over.
    def __add__(self, other: Any) -> Any:
        return _checked(int.__add__(self, other))

    def __radd__(self, other: Any) -> Any:
        return _checked(int.__radd__(self, other))

    def __sub__(self, other: Any) -> Any:
        return _checked(int.__sub__(self, other))

    def __rsub__(self, other: Any) -> Any:
        return _checked(int.__rsub__(self, other))

    def __mul__(self, other: Any) -> Any:
        return _checked(int.__mul__(self, other))

    def __rmul__(self, other: Any) -> Any:
        return _checked(int.__rmul__(self, other))

    def __floordiv__(self, other: Any) -> Any:
        return _checked(int.__floordiv__(self, other))

    def __rfloordiv__(self, other: Any) -> Any:
        return _checked(int.__rfloordiv__(self, other))

    def __mod__(self, other: Any) -> Any:
        return _checked(int.__mod__(self, other))

    def __rmod__(self, other: Any) -> Any:
        return _checked(int.__rmod__(self, other))

    def __pow__(self, other: Any, modulo: Any = None) -> Any:
        return _checked(int.__pow__(self, other)) if other >= 0 else NotImplemented

    # Not checked: Python itself negates an int to compare it with a float. A body's own minus is `negated`.
    def __neg__(self) -> Any:
        return int.__neg__(self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return _checked(int.__abs__(self))


def negated(value: Any) -> Any:
    """The minus sign of a body."""
    result = -value
    return _checked(result) if isinstance(result, int) else result


def _checked(result: Any) -> Any:
    if result is NotImplemented:
        return result
    if not INT_MIN <= result <= INT_MAX:
        raise Aborted("overflow")
    return Int(result)


def _parts(value: Any) -> tuple[int, int] | None:
    """(n, s) of a Dec, or of an int as a decimal of scale 0; None for anything else."""
    if isinstance(value, Dec):
        return value.n, value.s
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value), 0
    return None


def _half_even(numerator: int, denominator: int) -> int:
    # Fraction rounds half to even, and does so exactly.
    return round(Fraction(numerator, denominator))


def _aligned(an: int, sa: int, bn: int, sb: int) -> tuple[int, int, int]:
    """Both unscaled integers at the larger scale, and that scale."""
    s = max(sa, sb)
    return an * 10 ** (s - sa), bn * 10 ** (s - sb), s


def _add(an: int, sa: int, bn: int, sb: int) -> Dec:
    a, b, s = _aligned(an, sa, bn, sb)
    return Dec(a + b, s)


def _sub(an: int, sa: int, bn: int, sb: int) -> Dec:
    return _add(an, sa, -bn, sb)


def _mul(an: int, sa: int, bn: int, sb: int) -> Dec:
    return Dec(an * bn, sa + sb)


def _truediv(an: int, sa: int, bn: int, sb: int) -> Dec:
    s = max(sa, sb, _DIVISION_SCALE)
    if bn == 0:
        raise ZeroDivisionError
    return Dec(_half_even(an * 10 ** (s + sb), bn * 10**sa), s)


def _floored(an: int, sa: int, bn: int, sb: int) -> tuple[int, int, int]:
    if bn == 0:
        raise ZeroDivisionError
    a, b, s = _aligned(an, sa, bn, sb)
    if not (INT_MIN <= a <= INT_MAX and INT_MIN <= b <= INT_MAX):
        raise Aborted("overflow")
    return a, b, s


def _floordiv(an: int, sa: int, bn: int, sb: int) -> Dec:
    a, b, _ = _floored(an, sa, bn, sb)
    return Dec(a // b, 0)


def _mod(an: int, sa: int, bn: int, sb: int) -> Dec:
    a, b, s = _floored(an, sa, bn, sb)
    return Dec(a % b, s)


def _methods(operation: Callable[[int, int, int, int], Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The method of an operation and its reflected one."""

    def forward(self: Dec, other: Any) -> Any:
        b = _parts(other)
        return NotImplemented if b is None else operation(self.n, self.s, *b)

    def reflected(self: Dec, other: Any) -> Any:
        a = _parts(other)
        return NotImplemented if a is None else operation(*a, self.n, self.s)

    return forward, reflected


def _compared(holds: Callable[[int, int], bool]) -> Callable[..., Any]:
    return _methods(lambda *parts: holds(*_aligned(*parts)[:2]))[0]


class Dec:
    """A decimal of at most 18 digits."""

    __slots__ = ("n", "s")

    def __init__(self, n: int, s: int) -> None:
        if not -_DEC_LIMIT < n < _DEC_LIMIT:
            raise Aborted("overflow")
        self.n, self.s = n, s

    @staticmethod
    def of(value: decimal.Decimal) -> Dec:
        sign, digits, exponent = value.as_tuple()
        assert isinstance(exponent, int), value
        n = int("".join(map(str, digits))) * (-1 if sign else 1)
        return Dec(n * 10**exponent, 0) if exponent > 0 else Dec(n, -exponent)

    def plain(self) -> decimal.Decimal:
        # From text, so that no decimal context can round it.
        return decimal.Decimal(f"{self.n}E-{self.s}")

    __add__, __radd__ = _methods(_add)
    __sub__, __rsub__ = _methods(_sub)
    __mul__, __rmul__ = _methods(_mul)
    __truediv__, __rtruediv__ = _methods(_truediv)
    __floordiv__, __rfloordiv__ = _methods(_floordiv)
    __mod__, __rmod__ = _methods(_mod)
    __eq__ = _compared(lambda a, b: a == b)
    __lt__ = _compared(lambda a, b: a < b)
    __le__ = _compared(lambda a, b: a <= b)
    __gt__ = _compared(lambda a, b: a > b)
    __ge__ = _compared(lambda a, b: a >= b)

    def __neg__(self) -> Dec:
        return Dec(-self.n, self.s)

    def __pos__(self) -> Dec:
        return self

    def __abs__(self) -> Dec:
        return Dec(abs(self.n), self.s)

    def __pow__(self, times: int) -> Dec:
        total = self if times else Dec(1, 0)
        for _ in range(times - 1):
            total = total * self
        return total

    def __int__(self) -> int:
        return abs(self.n) // 10**self.s * (-1 if self.n < 0 else 1)

    def __float__(self) -> float:
        return self.n / 10**self.s  # rounded once

    def __round__(self, digits: int | None = None) -> Any:
        """Half to even: without digits an Int, with them a Dec of the same scale."""
        if digits is None:
            return Int(_half_even(self.n, 10**self.s))
        unit = 10 ** max(0, self.s - digits)
        return Dec(_half_even(self.n, unit) * unit, self.s)

    def __bool__(self) -> bool:
        return self.n != 0

    def __hash__(self) -> int:
        # Equal numbers of different scales, and ints, hash alike.
        return hash(Fraction(self.n, 10**self.s))

    def __repr__(self) -> str:
        return f"Dec('{self.plain()}')"


def _timed(method: Any) -> Any:
    """A method of Python's own times, whose result is one of ours."""

    def checked(self: Any, *other: Any) -> Any:
        try:
            return lift(method(self, *other))
        except OverflowError:  # beyond the years 1 to 9999
            raise Aborted("overflow") from None

    return checked


class Moment(datetime.datetime):
    """A datetime in UTC."""

    __slots__ = ()
    __add__, __radd__ = _timed(datetime.datetime.__add__), _timed(datetime.datetime.__radd__)
    __sub__ = _timed(datetime.datetime.__sub__)

    @staticmethod
    def of(value: datetime.datetime) -> Moment:
        utc = value.replace(tzinfo=datetime.UTC) if value.tzinfo is None else value.astimezone(datetime.UTC)
        return Moment.combine(utc.date(), utc.timetz())


class Day(datetime.date):
    __slots__ = ()
    __add__, __radd__ = _timed(datetime.date.__add__), _timed(datetime.date.__radd__)
    __sub__ = _timed(datetime.date.__sub__)

    @staticmethod
    def of(value: datetime.date) -> Day:
        return Day.fromordinal(value.toordinal())


_UNITS = ("days", "seconds", "microseconds", "milliseconds", "minutes", "hours", "weeks")


class Span(datetime.timedelta):
    """A timedelta; timedelta(…) in a body makes one, of parts that are each in range, as is each sum of the first."""

    __slots__ = ()

    def __new__(cls, *parts: Any, **named: Any) -> Any:
        several = dict(zip(_UNITS, parts, strict=False)) | named
        if any(isinstance(part, float) for part in several.values()):  # constants, whose sum is rounded once
            return cls.of(datetime.timedelta(**several))
        total = cls.of(datetime.timedelta())
        for name, part in several.items():
            try:
                total += cls.of(datetime.timedelta(**{name: use(part)}))
            except OverflowError:
                raise Aborted("overflow") from None
        return total

    __add__, __radd__ = _timed(datetime.timedelta.__add__), _timed(datetime.timedelta.__radd__)
    __sub__, __rsub__ = _timed(datetime.timedelta.__sub__), _timed(datetime.timedelta.__rsub__)
    __mul__, __rmul__ = _timed(datetime.timedelta.__mul__), _timed(datetime.timedelta.__rmul__)
    __floordiv__, __truediv__ = _timed(datetime.timedelta.__floordiv__), _timed(datetime.timedelta.__truediv__)
    __mod__ = _timed(datetime.timedelta.__mod__)
    __neg__, __abs__ = _timed(datetime.timedelta.__neg__), _timed(datetime.timedelta.__abs__)

    @staticmethod
    def of(value: datetime.timedelta) -> Span:
        if not -LONGEST <= value <= LONGEST:
            raise Aborted("overflow")
        return datetime.timedelta.__new__(Span, value.days, value.seconds, value.microseconds)


def made(result: Any) -> Any:
    """A string that a body has made; anything else is itself."""
    if not isinstance(result, str):
        return result
    if len(result.encode()) > LONGEST_TEXT:
        raise Aborted("overflow")
    return Text(result)


def _making(method: Any) -> Any:
    return lambda self, *given: made(method(self, *given))


def _looking(method: Any) -> Any:
    return lambda self, other: method(self, use(other))


class Text(str):
    """A string; what is made of it is no longer than the longest."""

    __slots__ = ()
    __getitem__ = _making(str.__getitem__)
    lower, upper = _making(str.lower), _making(str.upper)
    strip, lstrip, rstrip = _making(str.strip), _making(str.lstrip), _making(str.rstrip)
    startswith, endswith = _looking(str.startswith), _looking(str.endswith)
    __contains__ = _looking(str.__contains__)

    def __add__(self, other: Any) -> Any:
        return made(str.__add__(self, other)) if isinstance(other, str) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        return made(str.__add__(other, self)) if isinstance(other, str) else NotImplemented


def _text(value: Any) -> Any:
    return value if isinstance(value, str) else made(str(value))


def _rounded(value: Any, *digits: int) -> Any:
    """round(); what is not finite, or beyond int64, is no int."""
    try:
        result = round(value, *digits)
    except (OverflowError, ValueError):
        raise Aborted("overflow") from None
    return _checked(result) if isinstance(result, int) else result


def _int(value: Any) -> Any:
    """int(); what is not finite, or beyond int64, is no int."""
    try:
        return _checked(int(value))
    except (OverflowError, ValueError):
        raise Aborted("overflow") from None


def _decimal(value: Any) -> Dec:
    """Decimal() of an int, of what is a decimal already, or of a constant's text."""
    parts = _parts(use(value))
    return Dec.of(decimal.Decimal(value)) if parts is None else Dec(*parts)


def _divmod(a: Any, b: Any) -> tuple[Any, Any]:
    return a // b, a % b


# Built-in functions, and classes that are called, which a body means otherwise than Python.
_REFERENCES: dict[Any, Callable[..., Any]] = {
    round: _rounded,
    divmod: _divmod,
    int: _int,
    decimal.Decimal: _decimal,
    datetime.timedelta: Span,
    str: _text,
}

_LIFTS: dict[type, Callable[[Any], Any]] = {
    int: Int,
    decimal.Decimal: Dec.of,
    datetime.datetime: Moment.of,
    datetime.date: Day.of,
    datetime.timedelta: Span.of,
    str: Text,
    types.BuiltinFunctionType: lambda function: _REFERENCES.get(function, function),
    type: lambda made: _REFERENCES.get(made, made),
}


def lift(value: Any) -> Any:
    """A plain value as a body sees it; anything but a number, a time or a function with a reference is itself."""
    value = plain(value)
    lifted = _LIFTS.get(type(value))
    return value if lifted is None else lifted(value)


_CLASSES = {row.name: row.python for row in COLUMNS if not row.number}


def convert(value: Any, type_: Type, *, nullable: bool = False) -> Any:
    """The value as a column of the type holds it; aborts with `overflow` where it does not fit. nullable: None stays
    None."""
    if nullable and is_none(value):
        return None
    use(value)
    if type_.kind == "decimal":
        return _to_decimal(value, type_)
    is_int = isinstance(value, int) and not isinstance(value, bool)
    if type_.kind == "int" and is_int:
        return _checked(int(value))
    if type_.kind == "float" and (is_int or isinstance(value, float)):
        return float(value)
    if type_.kind in _CLASSES and isinstance(value, _CLASSES[type_.kind]):
        return value
    raise TypeError(f"{value!r} cannot become a {type_}")


def _to_decimal(value: Any, type_: Type) -> Dec:
    parts = _parts(value)
    if parts is None:
        raise TypeError(f"{value!r} cannot become a {type_}")
    n, s = parts
    n = n * 10 ** (type_.scale - s) if s <= type_.scale else _half_even(n, 10 ** (s - type_.scale))
    if abs(n) >= 10**type_.precision:
        raise Aborted("overflow")
    return Dec(n, type_.scale)


def lower(value: Any) -> Any:
    """What a body made, as plain Python."""
    match value:
        case Null():
            return None
        case Dec():
            return value.plain()
        case Int():
            return int(value)
        case Text():
            return str(value)
        case Moment():
            return datetime.datetime.combine(value.date(), value.timetz())
        case Day():
            return datetime.date.fromordinal(value.toordinal())
        case Span():
            return datetime.timedelta(value.days, value.seconds, value.microseconds)
    return value
