"""Values to test with: ordinary ones, and those at the edges of each type.

Fixed programs draw them as hypothesis strategies (`of_type`, `event`, `rows`), random bodies
from a seeded `random.Random` (`pick`); both use the same pools.
"""

import datetime as dt
import math
from decimal import Decimal
from random import Random
from typing import Any

from hypothesis import strategies as st

from penstock.declare.limits import LONGEST, SPANS
from penstock.declare.objects import Event, EventType, Table
from penstock.declare.types import INT_MAX, INT_MIN, Type

UTC = dt.UTC

INTS = (0, 1, 2, 3, 5, 7, 10, 100, -1, -2, -3, -7)
INT_EDGES = (
    *(INT_MAX, INT_MAX - 1, INT_MIN, INT_MIN + 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**62, -(2**62)),
    *(3037000500, -3037000500, 2**31, -(2**31) - 1, 2**32, 10**18, -(10**18), 10**18 - 1, 2**63 - 513),
)
FLOATS = (0.0, 1.0, 2.0, 0.5, 1.5, 2.5, 0.1, 10.0, -1.0, -2.5, -0.1, 7.0, 1e6)
FLOAT_EDGES = (
    *(-0.0, math.inf, -math.inf, math.nan, 5e-324, -5e-324, 2.2250738585072014e-308, 1.7976931348623157e308),
    *(-1.7976931348623157e308, 2.0**53, 2.0**63, -(2.0**63), 2.0**62, 9223372036854774784.0, 1e16, 1e-300),
)
STRS = ("a", "b", "c", "ab", "B")
STR_EDGES = ("", " ", "a\x00", "\x00", "é", "e\u0301", "日本", "\uffff", "\U0001f600", "z" * 40, "ß")
DATETIMES = tuple(dt.datetime(2024, 2, 29, 12, 0, s, us, tzinfo=UTC) for s, us in ((0, 0), (0, 1), (1, 0), (30, 5)))
DATETIME_EDGES = (
    dt.datetime(1970, 1, 1, tzinfo=UTC),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    dt.datetime(1, 1, 1, tzinfo=UTC),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
)
DATES = (dt.date(2024, 2, 28), dt.date(2024, 2, 29), dt.date(2024, 3, 1))
DATE_EDGES = (dt.date(1970, 1, 1), dt.date(1969, 12, 31), dt.date.min, dt.date.max)
US = dt.timedelta(microseconds=1)
TIMEDELTAS = (
    *(dt.timedelta(), US, -US, dt.timedelta(seconds=1), dt.timedelta(minutes=5), dt.timedelta(hours=36)),
    *(dt.timedelta(days=-1), dt.timedelta(days=400, microseconds=7), dt.timedelta(hours=-1)),
)
TIMEDELTA_EDGES = (
    *(LONGEST, -LONGEST, LONGEST - US, LONGEST // 2, LONGEST // 2 + US, dt.timedelta(days=1) - US),
    *(dt.timedelta(days=3652058), dt.timedelta(days=-3652059), dt.timedelta(microseconds=2**53 + 1)),
)


def unscaled(value: int, scale: int) -> Decimal:
    return Decimal(value).scaleb(-scale) if abs(value) < 10**18 else Decimal(f"{value}E-{scale}")


def pools(type_: Type) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The ordinary values of a type, and those at its edges."""
    if type_.kind == "decimal":
        p, s = type_.precision, type_.scale
        one = 10**s
        top = 10**p - 1
        usual = [n for n in (0, 1, 5, one, 2 * one, 10 * one, 7, 25, -1, -one, -3 * one, one // 2) if abs(n) <= top]
        edges = (top, -top, top - 1, 10 ** (p - 1), -(10 ** (p - 1)), top // 2, top // 2 + 1, top // 3)
        return tuple(unscaled(n, s) for n in usual), tuple(unscaled(n, s) for n in edges)
    return {
        "int": (INTS, INT_EDGES),
        "float": (FLOATS, FLOAT_EDGES),
        "bool": ((False, True), (True,)),
        "str": (STRS, STR_EDGES),
        "datetime": (DATETIMES, DATETIME_EDGES),
        "date": (DATES, DATE_EDGES),
        "timedelta": (TIMEDELTAS, TIMEDELTA_EDGES),
    }[type_.kind]


# --- hypothesis -------------------------------------------------------------------------------


def of_type(type_: Type, edges: bool = True) -> st.SearchStrategy[Any]:
    """Any value of this type; about one in four is an edge case, or anything at all."""
    if type_.kind == "list":
        assert type_.item is not None
        return st.lists(of_type(type_.item, edges), max_size=4)
    usual, odd = pools(type_)
    strategies = [st.sampled_from(usual)] * 3
    if edges:
        strategies.append(st.one_of(st.sampled_from(odd), _anything(type_)))
    return st.one_of(strategies)


def _anything(type_: Type) -> st.SearchStrategy[Any]:
    if type_.kind == "decimal":
        top = 10**type_.precision - 1
        return st.integers(-top, top).map(lambda n: unscaled(n, type_.scale))
    return {
        "int": st.integers(INT_MIN, INT_MAX),
        "float": st.floats(),
        "bool": st.booleans(),
        "str": st.text(st.characters(codec="utf-8"), max_size=5),
        "datetime": st.datetimes(timezones=st.just(UTC)),
        "date": st.dates(),
        "timedelta": st.integers(*SPANS).map(lambda n: dt.timedelta(microseconds=n)),
    }[type_.kind]


_RARELY = st.sampled_from((*[False] * 15, True))


def nullable(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Mostly a value; once in a while None."""
    return _RARELY.flatmap(lambda null: st.none() if null else strategy)


def event(kind: EventType, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Event]:
    """One event; a field not given takes any value of its type. All but ts and id are null now and then."""
    definition = kind.definition
    made: dict[str, st.SearchStrategy[Any]] = {}
    for field in definition.fields:
        if field.name == definition.order:
            # Few timestamps, so that ties and disorder are the rule.
            few = DATETIMES if field.type.kind == "datetime" else (1, 2, 3, 4, INT_MIN, INT_MAX)
            made[field.name] = fields.get(field.name, st.sampled_from(few))
        elif field.name == definition.id:
            made[field.name] = fields.get(field.name, of_type(field.type))
        else:
            value = fields.get(field.name, of_type(field.type))
            made[field.name] = nullable(_list_with_null(value) if field.type.kind == "list" else value)
    return st.fixed_dictionaries(made).map(lambda values: kind(**values))


def _list_with_null(lists: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(lists, _RARELY).map(lambda drawn: [*drawn[0], None] if drawn[1] else drawn[0])


def rows(table: Table, keys: list[tuple[Any, ...]], **columns: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Some rows of a table, under some of these keys; a column with a default is left out now and then."""
    definition = table.definition
    names = [c.name for c in definition.keys]

    @st.composite
    def draw_rows(draw: st.DrawFn) -> list[dict[str, Any]]:
        chosen = draw(st.lists(st.sampled_from(keys), unique=True, max_size=len(keys)))
        whole = draw(st.booleans())
        out = []
        for key in chosen:
            row = dict(zip(names, key, strict=True))
            for column in definition.values:
                if column.required or whole:
                    row[column.name] = draw(columns.get(column.name, of_type(column.type)))
            out.append(row)
        return out

    return draw_rows()


# --- a seeded generator -----------------------------------------------------------------------


def pick(rng: Random, type_: Type, edge: float = 0.1) -> Any:
    """A value of this type; an edge case with this probability."""
    if type_.kind == "list":
        assert type_.item is not None
        return [pick(rng, type_.item, edge / 3) for _ in range(rng.choice((0, 1, 2, 3, 3, 5)))]
    if type_.members:
        return rng.choice(type_.members)
    usual, odd = pools(type_)
    return rng.choice(odd) if rng.random() < edge else rng.choice(usual)
