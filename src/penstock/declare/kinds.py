"""All that is known of each type, one row a type: the other stages look it up and spell out no cases.

A new type is a row here (docs/EXTENDING.md). What a body can do with its values is told elsewhere: plan/numbers.py says
which types may meet in an operation, execute/values.py what that means, execute/codegen what the kernels do.

Values lie in three lanes, whatever their type:

    int64    int, decimal (unscaled), str (its number in the string pool), datetime (us), date (days),
             timedelta (us)
    float64  float
    bool     bool
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.types as at

from penstock.declare import given, limits

if TYPE_CHECKING:
    from penstock.declare.types import Type


@dataclass(frozen=True, slots=True, eq=False)
class Lane:
    name: str
    dtype: Any
    zero: str  # in generated source


WORD, REAL, BIT = Lane("int", np.int64, "0"), Lane("float", np.float64, "0.0"), Lane("bool", np.bool_, "False")


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Kind:
    name: str
    python: type  # what a reader of outcomes and tables gets
    declared: str  # how a user writes it
    text: Callable[[Type], str] = lambda type_: type_.kind

    # In arrays.
    lane: Lane = WORD
    word: Callable[[Any], Any] = _same  # a constant as it lies in its lane (a decimal comes unscaled)
    limits: tuple[int, ...] = ()  # the least and the greatest of them, where not all that a lane holds is one
    outside: str = ""  # what is the matter with one beyond the limits

    # In Arrow.
    arrow: Callable[[Type], pa.DataType]
    width: int = 64  # bits of one value; 0 where that differs

    # What may come in.
    takes: Callable[[pa.DataType], bool]  # Arrow types that can be cast to it without loss
    spark: tuple[str, ...] = ()  # Spark's, by their names: only the spark stage imports pyspark
    given: Callable[[Any, Type], Any]  # a Python value as Arrow takes it, or ValueError
    give: str  # what to give instead of what does not fit
    sound: str = ""  # what to give instead of an array that holds what the type cannot mean
    defaults: tuple[type, ...]  # classes of Python values that a column's default may be of
    default: Callable[[Any, Type], Any] | None = None  # such a value as the column holds it; otherwise as given

    # In declarations and bodies.
    roles: frozenset[str] = frozenset()  # what a column or field of it may be: key, order, id
    number: bool = False  # takes part in arithmetic with other numbers
    signed: bool = False  # has a minus sign and abs()
    ordered: bool = True  # has < and its kin
    nothing: Any = None  # the one value that is false in a condition


_WHOLE = ("ByteType", "ShortType", "IntegerType", "LongType")
_KEY = frozenset({"key"})


def _is_str(t: pa.DataType) -> bool:
    return at.is_string(t) or at.is_large_string(t) or at.is_string_view(t)


def _is_list(t: pa.DataType) -> bool:
    return at.is_list(t) or at.is_large_list(t) or at.is_fixed_size_list(t)


_ROWS = (
    Kind(
        name="int",
        python=int,
        declared="int",
        arrow=lambda _: pa.int64(),
        takes=at.is_integer,
        spark=_WHOLE,
        given=given.an_int,
        give="give integers within int64",
        defaults=(int,),
        roles=frozenset({"key", "order", "id"}),
        number=True,
        signed=True,
        nothing=0,
    ),
    Kind(
        name="float",
        python=float,
        declared="float",
        lane=REAL,
        arrow=lambda _: pa.float64(),
        takes=lambda t: at.is_integer(t) or at.is_floating(t),
        spark=(*_WHOLE, "FloatType", "DoubleType"),
        given=given.a_float,
        give="give floats, or integers of at most 2**53",
        defaults=(int, float),
        default=lambda value, _: float(value),
        number=True,
        signed=True,
        nothing=0.0,
    ),
    Kind(
        name="bool",
        python=bool,
        declared="bool",
        lane=BIT,
        arrow=lambda _: pa.bool_(),
        width=1,
        takes=at.is_boolean,
        spark=("BooleanType",),
        given=given.a_bool,
        give="give bools",
        defaults=(bool,),
        roles=_KEY,
        ordered=False,
        nothing=False,
    ),
    Kind(
        name="str",
        python=str,
        declared="str",
        arrow=lambda _: pa.string(),
        width=0,
        takes=_is_str,
        spark=("StringType", "VarcharType", "CharType"),
        given=given.a_str,
        give="give strings",
        sound="give strings in UTF-8",
        defaults=(str,),
        default=lambda value, _: value,
        roles=frozenset({"key", "id"}),
        nothing="",
    ),
    Kind(
        name="decimal",
        python=decimal.Decimal,
        declared="ps.decimal(p, s)",
        text=lambda type_: f"decimal({type_.precision}, {type_.scale})",
        arrow=lambda type_: pa.decimal128(type_.precision, type_.scale),
        width=128,
        takes=lambda t: at.is_integer(t) or at.is_decimal(t),
        spark=("DecimalType", *_WHOLE),
        given=given.a_decimal,
        give="give decimals or integers that fit it exactly",
        sound="give decimals of that many digits",
        defaults=(int, decimal.Decimal),
        roles=_KEY,
        number=True,
        signed=True,
        nothing=0,
    ),
    Kind(
        name="datetime",
        python=datetime.datetime,
        declared="datetime.datetime",
        word=limits.microseconds,
        limits=limits.TIMES,
        outside="is outside the years 1 to 9999",
        arrow=lambda _: pa.timestamp("us", "UTC"),
        takes=at.is_timestamp,
        spark=("TimestampType", "TimestampNTZType"),
        given=given.a_datetime,
        give="give timestamps in whole microseconds",
        sound="give timestamps of the years 1 to 9999",
        defaults=(datetime.datetime,),
        roles=frozenset({"key", "order"}),
    ),
    Kind(
        name="date",
        python=datetime.date,
        declared="datetime.date",
        word=limits.days,
        limits=limits.DAYS,
        outside="is outside the years 1 to 9999",
        arrow=lambda _: pa.date32(),
        width=32,
        takes=at.is_date,
        spark=("DateType",),
        given=given.a_date,
        give="give dates",
        sound="give dates of the years 1 to 9999",
        defaults=(datetime.date,),
        roles=_KEY,
    ),
    Kind(
        name="timedelta",
        python=datetime.timedelta,
        declared="datetime.timedelta",
        word=lambda value: value // limits.MICROSECOND,
        limits=limits.SPANS,
        outside=f"is longer than {limits.LONGEST.days} days",
        arrow=lambda _: pa.duration("us"),
        takes=at.is_duration,
        spark=("DayTimeIntervalType",),
        given=given.a_timedelta,
        give=f"give durations in whole microseconds, of at most {limits.LONGEST.days} days",
        sound=f"give durations of at most {limits.LONGEST.days} days",
        defaults=(datetime.timedelta,),
        roles=_KEY,
        signed=True,
        nothing=datetime.timedelta(),
    ),
    Kind(
        name="list",
        python=list,
        declared="list[...]",
        text=lambda type_: f"list[{type_.item}]",
        arrow=lambda type_: pa.list_(type_.item.arrow()),  # type: ignore[union-attr]
        width=0,
        takes=_is_list,
        spark=("ArrayType",),
        given=given.a_list,
        give="give lists of such items",
        sound="give lists that end where they say",
        defaults=(),
        ordered=False,
    ),
)

KINDS = {row.name: row for row in _ROWS}
# What a column can be; a list is a field of an event only.
COLUMNS = tuple(row for row in _ROWS if row.python is not list)
