"""What stands behind the `=` of a column or field, and above a check: `ps.key()`, `ps.order()`, `ps.check("…")`.

Each is a mark, which app.py finds in the class and takes for what it says.
"""

from __future__ import annotations

import datetime
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast, dataclass_transform

from penstock.declare.model import REQUIRED, CheckDef
from penstock.declare.objects import F
from penstock.declare.types import NOT_TEXT, Type, is_text
from penstock.declare.types import decimal as decimal_type
from penstock.errors import DeclarationError


class Key:
    """`ps.key()`: this column is (part of) the table's key."""


@dataclass(frozen=True, slots=True)
class Index:
    """`ps.index(default=0)`: records are looked up by this column."""

    default: Any

    def __repr__(self) -> str:
        return f"ps.index({'' if self.default is REQUIRED else f'default={self.default!r}'})"


class Order:
    """`ps.order()`: this field is the event's place in time."""


@dataclass(frozen=True, slots=True)
class Id:
    """`ps.id(unique="1 day")`: this field names the event and breaks ties in time; each of them runs once."""

    unique: Any


@dataclass(frozen=True, slots=True)
class DecimalColumn:
    """`ps.decimal(18, 2, default=0)`: the type of a column, and its default."""

    type: Type
    default: Any

    def __str__(self) -> str:
        return f"{str(self.type)[:-1]}, default={self.default!r})"


_NO_DEFAULT: Any = REQUIRED  # no number, whatever the signature below says


def key() -> Any:
    return Key()


def index(*, default: Any = _NO_DEFAULT) -> Any:
    """A column that records are looked up by: `contestant: int = ps.index()`, for `Ballot.where(contestant=…)`."""
    return Index(default)


def order() -> Any:
    return Order()


def id_(*, unique: str | datetime.timedelta | int | None = None) -> Any:
    """The field that names an event and breaks ties in time: `id: str = ps.id()`. It does not deduplicate by itself.

    Args:
        unique: Run each id once within this span of event time; whatever brings it again has the outcome `duplicate`
            and changes nothing. "1 day" or a timedelta where ts is a datetime, else an int in the unit of ts.
    """
    return Id(unique)


def decimal(precision: int, scale: int, *, default: Decimal | int | None = _NO_DEFAULT) -> Decimal:
    """An exact number with `precision` digits, `scale` of them after the point: `balance: Decimal = ps.decimal(18, 2)`.

    To a type checker it is the value that stands there. Without a default it is the type itself, so that
    `balance: ps.decimal(18, 2) = 0` says the same, though to no type checker."""
    type_ = decimal_type(precision, scale)
    return cast(Decimal, type_ if default is _NO_DEFAULT else DecimalColumn(type_, default))


def check(text: str) -> Callable[[F], F]:
    """A condition that must hold for every record a transaction writes; `text` is the abort's reason."""
    if not isinstance(text, str) or not text:
        raise DeclarationError('ps.check needs the reason to abort with: @ps.check("insufficient funds")')
    if not is_text(text):
        raise DeclarationError(f"ps.check({text!r}): its reason {NOT_TEXT}")

    def mark(function: F) -> F:
        if not inspect.isfunction(function):
            raise DeclarationError(f"@ps.check({text!r}) marks a method of a table, not {function!r}")
        return cast(F, CheckDef(text, function))

    return mark


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(order, id_, decimal))
class Fields:
    """What an event is made of. Nothing is derived from it but in the eyes of mypy's plugin (penstock/mypy.py)."""
