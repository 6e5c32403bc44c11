"""Values in JSON, in paths and in `where=`: one form for each type, read by all who read, written by all who write.

    int         1                       float       1.5, and "NaN", "Infinity", "-Infinity"
    bool        true                    str         "a"
    decimal     "12.50"                 datetime    "2026-03-01T12:00:00Z"
    date        "2026-03-01"            timedelta   "P1DT2H0.5S", as ISO 8601 has it
    null        null

In a path and in quotes a value is the same text without JSON's quotes. A decimal may also come as an integer, never as
a number with a point: those are floats, and not exact.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson
import pyarrow as pa

from penstock.declare.model import Column, TableDef
from penstock.declare.types import INT_MAX, INT_MIN, Type
from penstock.errors import InputError

_INT = re.compile(r"-?[0-9]{1,19}")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})")
_FLOAT = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_SPAN = re.compile(
    r"(-?)P(?:([0-9]{1,9})D)?(?:T(?:([0-9]{1,9})H)?(?:([0-9]{1,9})M)?(?:([0-9]{1,12})(?:\.([0-9]{1,6}))?S)?)?"
)
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_BOOLS = {"true": True, "false": False}
_OPTIONS = orjson.OPT_UTC_Z
# An integer of SQL beyond 64 bits is a number all the same.
_WORD = range(-(2**63), 2**64)


# -- out --------------------------------------------------------------------------------------------------------------


def dumps(value: Any) -> bytes:
    return orjson.dumps(value, _default, _OPTIONS)


def floats_of(table: TableDef) -> tuple[str, ...]:
    """The columns that JSON may have no number for."""
    found = _floats.get(id(table))
    if found is None or found[0] is not table:
        if len(_floats) > 1000:  # definitions of versions gone by
            _floats.clear()
        names = tuple(column.name for column in table.columns if column.type.kind == "float")
        found = _floats[id(table)] = table, names
    return found[1]


_floats: dict[int, tuple[TableDef, tuple[str, ...]]] = {}


def finite(record: dict[str, Any], floats: Iterable[str]) -> dict[str, Any]:
    """The record, changed: what is no number by its name."""
    for name in floats:
        value = record.get(name)
        if isinstance(value, float) and not math.isfinite(value):
            record[name] = _name_of(value)
    return record


def plain(value: Any) -> Any:
    """A value of SQL, of whatever type, as `dumps` takes it."""
    if isinstance(value, float):
        return value if math.isfinite(value) else _name_of(value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if value in _WORD else orjson.Fragment(str(value))
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, pa.MonthDayNano):
        span = span_text(dt.timedelta(days=value.days, microseconds=value.nanoseconds // 1000))
        return f"P{value.months}M{span.removeprefix('P')}" if value.months else span
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value


def _name_of(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _default(value: Any) -> Any:
    """What orjson has no form for."""
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, dt.timedelta):
        return span_text(value)
    if isinstance(value, bytes):
        return value.hex()
    return str(value)


def span_text(span: dt.timedelta) -> str:
    if not span:
        return "PT0S"
    sign, span = ("-", -span) if span < dt.timedelta() else ("", span)
    hours, rest = divmod(span.seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    fraction = f".{span.microseconds:06}".rstrip("0") if span.microseconds else ""
    parts = [f"{hours}H" * bool(hours), f"{minutes}M" * bool(minutes)]
    parts.append(f"{seconds}{fraction}S" if seconds or fraction else "")
    time = "".join(parts)
    return f"{sign}P" + (f"{span.days}D" if span.days else "") + (f"T{time}" if time else "")


# -- in ---------------------------------------------------------------------------------------------------------------


def of_text(type_: Type, text: str) -> Any:
    """A value from a path, or from quotes; ValueError where it is none of the type."""
    return type_.traits.given(_OF_TEXT[type_.kind](text), type_)


def of_json(type_: Type, value: Any) -> Any:
    """A value as JSON has it; ValueError where it is none of the type."""
    kind = type_.kind
    if kind in ("int", "bool", "str") or (kind == "decimal" and type(value) is int):
        return type_.traits.given(value, type_)
    if kind == "float" and type(value) in (int, float):
        return type_.traits.given(value, type_)
    if type(value) is not str:
        raise ValueError(f"{value!r} is not {type_}")
    return of_text(type_, value)


def key_of_path(table: TableDef, parts: list[str]) -> Any:
    """A key as the reader takes it, from the parts of a path."""
    return _key(table, parts, of_text)


def key_of_json(table: TableDef, key: Any) -> Any:
    parts = key if isinstance(key, list) else [key]
    return _key(table, parts, of_json)


def keys_of_json(table: TableDef, keys: list[Any]) -> list[Any]:
    kinds = set(map(type, keys))
    if len(table.keys) == 1 and len(kinds) == 1:
        kind = table.keys[0].type.kind
        if kind == "str" and kinds == {str}:
            return keys  # JSON's texts are texts
        if kind == "int" and kinds == {int} and min(keys) >= INT_MIN and max(keys) <= INT_MAX:
            return keys
    return [key_of_json(table, key) for key in keys]


def _key(table: TableDef, parts: list[Any], read: Callable[[Type, Any], Any]) -> Any:
    keys = table.keys
    if len(parts) != len(keys):
        names = ", ".join(column.name for column in keys)
        hint = "; in a path, a comma within a part is %2C" if read is of_text else ""
        raise InputError(
            f"table '{table.name}' has the key ({names}): give {len(keys)} part{'s' * (len(keys) > 1)}, "
            f"not {len(parts)}{hint}"
        )
    if len(keys) == 1:
        return _part(table, keys[0], parts[0], read)
    return tuple(_part(table, column, part, read) for column, part in zip(keys, parts, strict=True))


def _part(table: TableDef, column: Column, given: Any, read: Callable[[Type, Any], Any]) -> Any:
    try:
        return read(column.type, given)
    except (ValueError, TypeError, OverflowError, decimal.InvalidOperation):
        raise InputError(
            f"table '{table.name}': key '{column.name}' is {column.type}, not {_short(given)}; {column.type.takes}"
        ) from None


def _short(given: Any) -> str:
    text = repr(given)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _int(text: str) -> int:
    if not _INT.fullmatch(text):
        raise ValueError(text)
    return int(text)


def _float(text: str) -> float:
    if text in _NOT_FINITE:
        return _NOT_FINITE[text]
    if not _FLOAT.fullmatch(text) or math.isinf(found := float(text)):
        raise ValueError(text)
    return found


def _bool(text: str) -> bool:
    if text not in _BOOLS:
        raise ValueError(text)
    return _BOOLS[text]


def _decimal(text: str) -> decimal.Decimal:
    if not _DECIMAL.fullmatch(text):
        raise ValueError(text)
    return decimal.Decimal(text)


def _datetime(text: str) -> dt.datetime:
    found = dt.datetime.fromisoformat(text)
    return found.replace(tzinfo=dt.UTC) if found.tzinfo is None else found.astimezone(dt.UTC)


def _span(text: str) -> dt.timedelta:
    found = _SPAN.fullmatch(text)
    if found is None or text.endswith(("P", "T")):
        raise ValueError(text)
    sign, days, hours, minutes, seconds, fraction = found.groups()
    span = dt.timedelta(
        days=int(days or 0),
        hours=int(hours or 0),
        minutes=int(minutes or 0),
        seconds=int(seconds or 0),
        microseconds=int((fraction or "").ljust(6, "0")),
    )
    return -span if sign else span


def _str(text: str) -> str:
    text.encode()  # A lone surrogate is no text.
    return text


_OF_TEXT: dict[str, Callable[[str], Any]] = {
    "int": _int,
    "float": _float,
    "bool": _bool,
    "str": _str,
    "decimal": _decimal,
    "datetime": _datetime,
    "date": dt.date.fromisoformat,
    "timedelta": _span,
}
