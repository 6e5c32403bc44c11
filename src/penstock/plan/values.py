"""What an expression gives while a body is lowered, and how two of them meet in one name.

    Val        one value of the plan: its number and type; a literal also knows its constant
    RecordRef  a record in a local name: its table and key, never a row
    EventRef   the event, under a name that a @ps.function has for it
    MemberRef  one of the events of a transaction that takes several
    SelfRef    the record that a check looks at, likewise
    ListRef    a list of the event, or a part of one
    Several    what stands in a tuple
    WindowRef  a window: its definition and key; in a trigger also what has entered and expired
    WindowRow  a row of a window, in a loop

A literal bends: 0 may meet a decimal or a float. The value is then loose, which bars arithmetic
where Python, holding the literal as it was written, would reach another result (docs/SEMANTICS.md,
"One name, one type").
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from penstock.declare.model import TableDef, WindowDef
from penstock.declare.types import INT, MAX_DIGITS, Type

# Below this every int is a float exactly.
EXACT_FLOAT = 2**53
# Of None, before it has met a value.
NONE = Type("None")


@dataclass(frozen=True, slots=True)
class Val:
    id: int
    type: Type
    literal: Any = None  # int, float or Decimal, where the source says so
    loose: bool = False
    why: int | None = None  # of what may be None: why there is no value, 0 where there is one (nullable.py)


@dataclass(frozen=True, slots=True)
class RecordRef:
    table: TableDef
    keys: tuple[Val, ...]
    optional: bool  # Table.get(k): may be absent until written


@dataclass(frozen=True, slots=True)
class WindowRef:
    window: WindowDef
    keys: tuple[Val, ...]
    rows: Val | None = None  # these rows, and not those that are seen
    entered: Val | None = None  # in a trigger
    expired: Val | None = None


@dataclass(frozen=True, slots=True)
class WindowRow:
    window: WindowDef
    values: tuple[Val, ...]  # of all columns


@dataclass(frozen=True, slots=True)
class Iterated:
    """What a loop runs over: its operation, but for what a turn does."""

    code: str
    args: tuple[Val, ...]
    items: tuple[Type, ...]  # the types of what a turn gets
    const: Any
    table: TableDef | None = None  # a scan's: a turn gets one name, for the record whose key the items are
    name: str = ""
    window: WindowRef | None = None  # of its rows: a turn gets one name, for the row
    numbered: bool = False  # the first item is the number of the turn

    @property
    def of(self) -> str:
        """The table that it goes through, which may be a window's hidden one."""
        if self.window is not None:
            return self.window.window.hidden
        return "" if self.table is None else self.table.name


@dataclass(frozen=True, slots=True)
class MemberRef:
    """A name that a loop over several events gives to each in turn."""

    member: Val


@dataclass(frozen=True, slots=True)
class EventRef:
    """The event that a transaction takes."""


@dataclass(frozen=True, slots=True)
class SelfRef:
    """The record that a check looks at."""


@dataclass(frozen=True, slots=True)
class ListRef:
    value: Val  # of a list's type


@dataclass(frozen=True, slots=True)
class Several:
    values: tuple[Found, ...]


@dataclass(frozen=True, slots=True)
class Unassigned:
    """A name that some path leaves unassigned."""

    line: int
    in_loop: bool = False


Stated = Val | RecordRef | WindowRef | WindowRow  # what an expression may be
# What a name may stand for besides, and only where it is asked for.
Found = Stated | EventRef | MemberRef | SelfRef | ListRef | Several
Binding = Found | Unassigned


@dataclass(frozen=True, slots=True)
class Exit:
    """A way in which a loop's turn ends: its end, continue, break or return."""

    kind: str
    guard: int | None
    env: dict[str, Binding]


class Mismatch(Exception):
    """Two types that cannot share a name; its text says why."""


def decimal_type(scale: int) -> Type:
    return Type("decimal", MAX_DIGITS, scale)


def in_body(type_: Type) -> Type:
    """The type of a value that comes from a column or field, or is returned: a decimal has all 18 digits."""
    return decimal_type(type_.scale) if type_.kind == "decimal" else type_


def scale_of(constant: Decimal | int) -> int:
    """Digits after the point of an exact constant."""
    if isinstance(constant, int):
        return 0
    exponent = constant.as_tuple().exponent
    assert isinstance(exponent, int)
    return max(0, -exponent)


def unscaled(constant: Decimal | int, scale: int) -> int:
    """The integer that stands for an exact constant at a scale that loses nothing."""
    if isinstance(constant, int):
        return constant * 10**scale
    sign, digits, exponent = constant.as_tuple()
    assert isinstance(exponent, int) and exponent + scale >= 0
    magnitude = int("".join(map(str, digits))) * 10 ** (exponent + scale)
    return -magnitude if sign else magnitude


def meet(a: Val, b: Val) -> tuple[Type, bool]:
    """The type of a name that is a on one path and b on another, and whether it is loose."""
    if a.type == b.type:
        return a.type, a.loose or b.loose
    for literal, other in ((a, b), (b, a)):
        if literal.literal is None:
            continue
        if other.type.kind == "decimal" and literal.type.kind in ("int", "decimal"):
            if fits(literal.literal, other.type.scale):
                return other.type, True
        if other.type.kind == "float" and literal.type == INT:
            if abs(literal.literal) > EXACT_FLOAT:
                raise Mismatch(f"{literal.literal} is not exact as a float; write it as a float")
            return other.type, True
    if a.type.kind == b.type.kind == "decimal":
        raise Mismatch(
            f"decimals with {a.type.scale} and {b.type.scale} digits after the point do not share a name; "
            'give both the same number of digits (for a constant: Decimal("0.00"))'
        )
    raise Mismatch(f"it is {a.type} on one path and {b.type} on another")


def fits(constant: Decimal | int, scale: int) -> bool:
    """Whether an exact constant can be held at this scale."""
    return scale_of(constant) <= scale and abs(unscaled(constant, scale)) < 10**MAX_DIGITS
