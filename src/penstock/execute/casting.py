"""One column, or one list of Python values, as an Arrow array of a declared type.

    Arrow column    --column()-->   pa.Array of type.arrow()     only casts that lose nothing
    Python values   --values()-->   pa.Array of type.arrow()     only types that mean the same

An array that has the right type already is handed on as it is, without a copy, if it is sound (validate.py).
Neither side ever guesses: a str is not a number, a float is not money, and a bool is not an int.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as at

from penstock.declare.types import INT_MAX, INT_MIN, Type
from penstock.errors import InputError
from penstock.execute.validate import refuse_unsound

# Strings that came dictionary-encoded stay so where the caller asks for it.
DICTIONARY = pa.dictionary(pa.int32(), pa.string())

# Every int up to here is a float too; Arrow's safe cast draws the same line.
_FLOAT_INT_MAX = 2**53

# Wide enough for any int64 or uint64 beside 18 digits after the point.
_WIDE_DIGITS = 38

_GIVE = {
    "int": "give integers within int64",
    "float": "give floats, or integers of at most 2**53",
    "bool": "give bools",
    "str": "give strings",
    "decimal": "give decimals or integers that fit it exactly",
    "datetime": "give timestamps in whole microseconds",
    "date": "give dates",
    "list": "give lists of such items",
}


def _is_str(t: pa.DataType) -> bool:
    return at.is_string(t) or at.is_large_string(t) or at.is_string_view(t)


def _is_list(t: pa.DataType) -> bool:
    return at.is_list(t) or at.is_large_list(t) or at.is_fixed_size_list(t)


_TAKES: dict[str, Callable[[pa.DataType], bool]] = {
    "int": at.is_integer,
    "float": lambda t: at.is_integer(t) or at.is_floating(t),
    "bool": at.is_boolean,
    "str": _is_str,
    "decimal": lambda t: at.is_integer(t) or at.is_decimal(t),
    "datetime": at.is_timestamp,
    "date": at.is_date,
    "list": _is_list,
}


def column(
    data: pa.ChunkedArray, type_: Type, *, where: str, dictionary: bool = False, sound: bool = False
) -> pa.Array:
    """The column as one array of the type; InputError, opening with `where`, if that would lose anything or its values
    mean nothing. sound: whether these were looked at before."""
    try:
        array = _cast(_one_chunk(data, where), type_, where, dictionary)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"{where}: a {data.type} value is not a {type_} ({error}); {_GIVE[type_.kind]}") from None
    if not sound:
        refuse_unsound(array, type_, where=where)
    return array


def _one_chunk(data: pa.ChunkedArray, where: str) -> pa.Array:
    if data.num_chunks == 1:
        return data.chunk(0)
    whole = data.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        raise InputError(f"{where}: more text than one Arrow array holds (2 GiB); give smaller batches")
    return whole


def _cast(array: pa.Array, type_: Type, where: str, dictionary: bool) -> pa.Array:
    target = type_.arrow()
    if array.type == target:
        return array
    if at.is_null(array.type):
        return pa.nulls(len(array), target)
    if at.is_dictionary(array.type):
        # A null inside the dictionary would hide from null_count.
        if dictionary and type_.kind == "str" and _is_str(array.type.value_type) and not array.dictionary.null_count:
            return array if array.type == DICTIONARY else array.cast(DICTIONARY)
        return _cast(array.dictionary_decode(), type_, where, dictionary)
    if not _TAKES[type_.kind](array.type):
        raise InputError(f"{where}: needs {type_}, got Arrow type {array.type}; {_GIVE[type_.kind]}")
    if type_.kind == "list":
        return _cast_list(array, type_, where)
    if type_.kind == "decimal" and at.is_integer(array.type):
        array = array.cast(pa.decimal128(_WIDE_DIGITS, type_.scale))
    return array.cast(target)


def _cast_list(array: pa.Array, type_: Type, where: str) -> pa.Array:
    assert type_.item is not None
    # take() drops what lies outside a slice or under a null list, so that only real items are judged.
    value = array.type.value_type
    value = pa.string() if at.is_string_view(value) else value  # which take() does not know
    array = array.cast(pa.list_(value)).take(pa.array(np.arange(len(array))))
    items = _cast(array.values, type_.item, where, False)
    return pa.Array.from_buffers(type_.arrow(), len(array), array.buffers()[:2], array.null_count, 0, [items])


def values(data: Sequence[Any], type_: Type, *, where: Callable[[int], str]) -> pa.Array:
    """Python values as one array; None stays null. `where(i)` opens the message about value i."""
    out = []
    for i, value in enumerate(data):
        try:
            out.append(None if value is None else _value(value, type_))
        except (ValueError, TypeError, OverflowError, decimal.InvalidOperation):
            raise InputError(f"{where(i)}: needs {type_}, got {value!r}; {_GIVE[type_.kind]}") from None
    return pa.array(out, type_.arrow())


def _value(value: Any, type_: Type) -> Any:
    """The value as Arrow wants it; ValueError where it is not of the type."""
    if type_.kind == "list":
        assert type_.item is not None
        if not isinstance(value, list | tuple | np.ndarray):
            raise ValueError(value)
        return [None if v is None else _value(v, type_.item) for v in value]
    return _VALUES[type_.kind](value, type_)


def _need(holds: bool) -> None:
    if not holds:
        raise ValueError


def _int(value: Any, type_: Type) -> int:
    _need(isinstance(value, int | np.integer) and not isinstance(value, bool))
    _need(INT_MIN <= value <= INT_MAX)
    return int(value)


def _float(value: Any, type_: Type) -> float:
    if isinstance(value, float | np.floating):
        return float(value)
    _need(abs(_int(value, type_)) <= _FLOAT_INT_MAX)
    return float(value)


def _bool(value: Any, type_: Type) -> bool:
    _need(isinstance(value, bool | np.bool_))
    return bool(value)


def _str(value: Any, type_: Type) -> str:
    _need(isinstance(value, str))
    value.encode()  # a lone surrogate raises UnicodeEncodeError, which is a ValueError
    return str(value)


def _decimal(value: Any, type_: Type) -> decimal.Decimal:
    exact = value if isinstance(value, decimal.Decimal) else decimal.Decimal(_int(value, type_))
    _need(exact.is_finite())
    with decimal.localcontext(decimal.Context(prec=60)):
        scaled = exact.quantize(decimal.Decimal(1).scaleb(-type_.scale))
    _need(scaled == exact and scaled.copy_abs() < decimal.Decimal(10) ** (type_.precision - type_.scale))
    return scaled


def _datetime(value: Any, type_: Type) -> datetime.datetime:
    # pandas' Timestamp is a datetime with nanoseconds.
    _need(isinstance(value, datetime.datetime) and not getattr(value, "nanosecond", 0))
    # Near the ends of Python's years there may be no such time in UTC: an OverflowError.
    return value.replace(tzinfo=datetime.UTC) if value.tzinfo is None else value.astimezone(datetime.UTC)


def _date(value: Any, type_: Type) -> datetime.date:
    _need(isinstance(value, datetime.date) and not isinstance(value, datetime.datetime))
    return value


_VALUES: dict[str, Callable[[Any, Type], Any]] = {
    "int": _int,
    "float": _float,
    "bool": _bool,
    "str": _str,
    "decimal": _decimal,
    "datetime": _datetime,
    "date": _date,
}
