"""Types of columns and fields, and how each one looks at the Arrow border.

written in Python      Type                         Arrow
int                    Type("int")                  int64
float                  Type("float")                float64
bool                   Type("bool")                 bool
str                    Type("str")                  string
ps.decimal(18, 2)      Type("decimal", 18, 2)       decimal128(18, 2)
datetime.datetime      Type("datetime")             timestamp[us, UTC]
datetime.date          Type("date")                 date32
datetime.timedelta     Type("timedelta")            duration[us]
list[T] (events only)  Type("list", item=T)         list<T>
T | None               the type, and a mark of its column or field; in Arrow, null
an Enum                the type of its members' values, str or int; it knows the members, and equals a plain one
"""

from __future__ import annotations

import decimal as _decimal
import enum
import re
import types
import typing
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from penstock.declare.kinds import COLUMNS, KINDS, WORD, Kind, Lane
from penstock.declare.limits import INT_MAX as INT_MAX
from penstock.declare.limits import INT_MIN as INT_MIN
from penstock.declare.limits import MAX_DIGITS as MAX_DIGITS
from penstock.errors import DeclarationError


@dataclass(frozen=True, slots=True)
class Type:
    kind: str
    precision: int = 0
    scale: int = 0
    item: Type | None = None
    # Of an Enum; beyond the door its values are like any others of the type.
    enum: str = field(default="", compare=False)
    members: tuple[Any, ...] = field(default=(), compare=False)

    @property
    def called(self) -> str:
        """What it is, to those who give values of it."""
        return self.enum or str(self)

    @property
    def takes(self) -> str:
        """What to give instead of what does not fit."""
        return f"give {', '.join(map(repr, self.members))}" if self.members else self.traits.give

    @property
    def all_members(self) -> tuple[Any, ...]:
        """Those of an Enum, also where it is a list's items that are of it."""
        return self.members if self.item is None else self.item.members

    @property
    def traits(self) -> Kind:
        """All that is known of its kind."""
        return KINDS[self.kind]

    @property
    def lane(self) -> Lane:
        """Where its values lie; the place of a record, which only a plan has, is a word as well."""
        return self.traits.lane if self.kind in KINDS else WORD

    def __str__(self) -> str:
        return self.traits.text(self) if self.kind in KINDS else self.kind

    def arrow(self) -> pa.DataType:
        return self.traits.arrow(self)

    def __or__(self, other: None) -> OrNone:
        return OrNone(self) if other is None else NotImplemented


@dataclass(frozen=True, slots=True)
class OrNone:
    """`ps.decimal(18, 2) | None`; of Python's own classes Python makes one itself."""

    type: Type


INT, FLOAT, BOOL, STR = Type("int"), Type("float"), Type("bool"), Type("str")
DATETIME, DATE, TIMEDELTA = Type("datetime"), Type("date"), Type("timedelta")

_PYTHON: dict[Any, Type] = {row.python: Type(row.name) for row in COLUMNS if row.name != "decimal"}
_DECIMAL = re.compile(r"decimal\((\d+), (\d+)\)")


def of_text(text: str) -> Type | None:
    """The type of a column whose str() this is."""
    if found := _DECIMAL.fullmatch(text):
        return Type("decimal", int(found[1]), int(found[2]))
    return next((type_ for type_ in _PYTHON.values() if type_.kind == text), None)


def of_arrow(given: pa.DataType) -> Type | None:
    """The type whose values lie so in Arrow; None of lists, and of what no column is."""
    if pa.types.is_decimal(given):
        return Type("decimal", given.precision, given.scale)
    return next((type_ for type_ in _PYTHON.values() if type_.arrow() == given), None)


def decimal(precision: int, scale: int) -> Any:
    """The type of an exact number with `precision` digits, `scale` of them after the point."""
    if isinstance(precision, bool) or not (isinstance(precision, int) and 1 <= precision <= MAX_DIGITS):
        raise DeclarationError(f"decimal({precision}, {scale}): precision must be 1 to {MAX_DIGITS}")
    if isinstance(scale, bool) or not (isinstance(scale, int) and 0 <= scale <= precision):
        raise DeclarationError(f"decimal({precision}, {scale}): scale must be 0 to the precision, {precision}")
    return Type("decimal", precision, scale)


def without_none(annotation: Any) -> tuple[Any, bool]:
    """An annotation without its `| None`, and whether it has one."""
    if isinstance(annotation, OrNone):
        return annotation.type, True
    arguments = typing.get_args(annotation)
    if typing.get_origin(annotation) in (types.UnionType, typing.Union) and types.NoneType in arguments:
        rest = tuple(one for one in arguments if one is not types.NoneType)
        return (rest[0] if len(rest) == 1 else typing.Union[rest]), True  # noqa: UP007
    return annotation, False


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
    if isinstance(annotation, enum.EnumMeta):
        return _of_enum(annotation, where)
    if annotation is _decimal.Decimal:
        raise DeclarationError(f"{where}: write ps.decimal(18, 2) instead of Decimal, so that the scale is known")
    if type(annotation).__module__.startswith("penstock."):  # `date: date = ps.key()`: Python reads the value
        raise DeclarationError(
            f"{where}: its name hides the type of the same name, so that the annotation is the field itself; "
            "write the type with its module, such as datetime.date"
        )
    *most, last = (row.declared for row in COLUMNS)
    raise DeclarationError(
        f"{where}: type {annotation!r} is not supported; use {', '.join(most)} or {last}"
        + (", or list[...] of these" if lists else "")
    )


def _of_enum(given: enum.EnumMeta, where: str) -> Type:
    values = tuple(map(plain, given))
    kinds = {type(value) for value in values}
    if kinds not in ({str}, {int}):
        raise DeclarationError(
            f"{where}: the values of {given.__name__} are of several types, or none; write all of them as str, or all "
            "as int"
        )
    type_ = STR if kinds == {str} else INT
    for value in values:
        to_python(value, type_, where=f"{where}, {given.__name__}")
    return replace(type_, enum=given.__name__, members=values)


def plain(value: Any) -> Any:
    """A member of an Enum as its value, of str's or int's own class; anything else as it is."""
    if not isinstance(value, enum.Enum):
        return value
    found = value.value
    return (
        str.__str__(found)
        if isinstance(found, str)
        else int(found)
        if type(found) not in (int, bool) and isinstance(found, int)
        else found
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
    row, value = type_.traits, plain(value)
    if type_.members and value not in type_.members:
        raise DeclarationError(f"{where}: {value!r} is no {type_.enum}; {type_.takes}")
    if row.python is str and isinstance(value, str) and not is_text(value):
        raise DeclarationError(f"{where}: {value!r} {NOT_TEXT}")
    try:
        if isinstance(value, row.defaults) and (row.python is bool or not isinstance(value, bool)):
            return (row.default or row.given)(value, type_)
    except (ValueError, OverflowError, _decimal.InvalidOperation):
        pass
    raise DeclarationError(f"{where}: {value!r} is not a {type_}")
