"""Types of columns and fields, and how each one looks at the Arrow border.

written in Python      Type                         Arrow
int                    Type("int")                  int64
float                  Type("float")                float64
bool                   Type("bool")                 bool
str                    Type("str")                  string
ps.decimal(18, 2)      Type("decimal", 18, 2)       decimal128(18, 2)
datetime.datetime      Type("datetime")             timestamp[us, UTC]
datetime.date          Type("date")                 date32
list[T] (events only)  Type("list", item=T)         list<T>
"""

from __future__ import annotations

import datetime
import decimal as _decimal
import types
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.errors import DeclarationError

# int64 holds every 18-digit number; a 19-digit one may not fit.
MAX_DIGITS = 18
INT_MIN, INT_MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class Type:
    kind: str
    precision: int = 0
    scale: int = 0
    item: Type | None = None

    def __str__(self) -> str:
        if self.kind == "decimal":
            return f"decimal({self.precision}, {self.scale})"
        if self.kind == "list":
            return f"list[{self.item}]"
        return self.kind

    def arrow(self) -> pa.DataType:
        if self.kind == "decimal":
            return pa.decimal128(self.precision, self.scale)
        if self.kind == "list":
            assert self.item is not None
            return pa.list_(self.item.arrow())
        return _ARROW[self.kind]


_ARROW = {
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "str": pa.string(),
    "datetime": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
}

INT, FLOAT, BOOL, STR = Type("int"), Type("float"), Type("bool"), Type("str")
DATETIME, DATE = Type("datetime"), Type("date")

_PYTHON: dict[Any, Type] = {
    int: INT,
    float: FLOAT,
    bool: BOOL,
    str: STR,
    datetime.datetime: DATETIME,
    datetime.date: DATE,
}


def decimal(precision: int, scale: int) -> Any:
    """The type of an exact number with `precision` digits, `scale` of them after the point."""
    if not (isinstance(precision, int) and 1 <= precision <= MAX_DIGITS):
        raise DeclarationError(f"decimal({precision}, {scale}): precision must be 1 to {MAX_DIGITS}")
    if not (isinstance(scale, int) and 0 <= scale <= precision):
        raise DeclarationError(f"decimal({precision}, {scale}): scale must be 0 to the precision, {precision}")
    return Type("decimal", precision, scale)


def of_annotation(
    annotation: Any,
    *,
    where: str,
    lists: bool,
    nested: str = "a table column cannot be a list; use a second table with a composite key",
) -> Type:
    """The Type that an annotation names. nested: why a list cannot stand here, where it cannot."""
    if isinstance(annotation, Type):
        return annotation
    if isinstance(annotation, type) and annotation in _PYTHON:
        return _PYTHON[annotation]
    if isinstance(annotation, types.GenericAlias) and annotation.__origin__ is list:
        if not lists:
            raise DeclarationError(f"{where}: {nested}")
        item = of_annotation(
            annotation.__args__[0], where=where, lists=False, nested="a list of lists cannot be a field"
        )
        return Type("list", item=item)
    if annotation is _decimal.Decimal:
        raise DeclarationError(f"{where}: write ps.decimal(18, 2) instead of Decimal, so that the scale is known")
    raise DeclarationError(
        f"{where}: type {annotation!r} is not supported; use int, float, bool, str, ps.decimal(p, s), "
        "datetime.datetime or datetime.date" + (", or list[...] of these" if lists else "")
    )


NOT_TEXT = "has half of a surrogate pair, which no UTF-8 text can hold; write the whole character"


def is_text(value: str) -> bool:
    """Whether Arrow, and files, can hold it: Python's strings may have surrogates that stand alone."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def to_python(value: Any, type_: Type, *, where: str) -> Any:
    """A constant (a default) as the plain Python value that a column of this type holds."""
    kind = type_.kind
    if kind == "str" and isinstance(value, str) and not is_text(value):
        raise DeclarationError(f"{where}: {value!r} {NOT_TEXT}")
    try:
        if kind == "decimal":
            return _to_decimal(value, type_)
        if kind == "float" and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if kind == "int" and isinstance(value, int) and not isinstance(value, bool) and INT_MIN <= value <= INT_MAX:
            return int(value)
        if kind in ("bool", "str") and isinstance(value, {"bool": bool, "str": str}[kind]):
            return value
        if kind == "datetime" and isinstance(value, datetime.datetime):
            utc = datetime.UTC
            return value.replace(tzinfo=utc) if value.tzinfo is None else value.astimezone(utc)
        if kind == "date" and isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
            return value
    except (ValueError, OverflowError, _decimal.InvalidOperation):
        pass
    raise DeclarationError(f"{where}: {value!r} is not a {type_}")


def _to_decimal(value: Any, type_: Type) -> _decimal.Decimal:
    if isinstance(value, bool) or not isinstance(value, int | _decimal.Decimal):
        raise ValueError(value)
    exact = _decimal.Decimal(value)
    with _decimal.localcontext(_decimal.Context(prec=60)):
        rounded = exact.quantize(_decimal.Decimal(1).scaleb(-type_.scale))
    if rounded != exact or abs(rounded) >= _decimal.Decimal(10) ** (type_.precision - type_.scale):
        raise ValueError(value)
    return rounded
