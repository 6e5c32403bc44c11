"""Int and Dec against Python's ints and fractions."""

from __future__ import annotations

import datetime as dt
import math
import operator
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.declare.types import BOOL, FLOAT, INT, INT_MAX, INT_MIN, Type
from penstock.errors import Aborted
from penstock.execute.values import Dec, Int, convert, lift, lower, negated

LIMIT = 10**18
EDGES = st.sampled_from([0, 1, -1, 2, 10, INT_MAX, INT_MIN, LIMIT - 1, 1 - LIMIT, 3037000500])
ints = (st.integers(INT_MIN, INT_MAX) | st.integers(-100, 100) | EDGES).map(Int)
decs = st.builds(
    Dec,
    st.integers(1 - LIMIT, LIMIT - 1) | st.integers(-1000, 1000) | st.sampled_from([0, LIMIT - 1, 1 - LIMIT]),
    st.integers(0, 18),
)
BINARY = [operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod]
COMPARE = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


def outcome(f: Any, *args: Any) -> Any:
    """What the operation gives, or the reason it aborts with."""
    try:
        return f(*args)
    except Aborted as abort:
        return abort.reason
    except ZeroDivisionError:
        return "division by zero"


@given(a=ints, b=ints, op=st.sampled_from(BINARY))
def test_int_is_pythons_within_int64(a: Int, b: Int, op: Any) -> None:
    want = outcome(op, int(a), int(b))
    if isinstance(want, int) and not INT_MIN <= want <= INT_MAX:
        want = "overflow"
    for left, right in ((a, b), (int(a), b), (a, int(b))):
        got = outcome(op, left, right)
        assert got == want
        assert isinstance(got, str) or type(got) is Int


@given(a=ints, b=ints, x=st.floats())
def test_int_beside_floats_and_division_are_pythons(a: Int, b: Int, x: float) -> None:
    assert outcome(operator.truediv, a, b) == outcome(operator.truediv, int(a), int(b))
    for op in (*BINARY, operator.truediv, *COMPARE):
        for got, want in ((outcome(op, a, x), outcome(op, int(a), x)), (outcome(op, x, a), outcome(op, x, int(a)))):
            assert type(got) is type(want)
            assert got == want or (math.isnan(got) and math.isnan(want))


def test_int_edges() -> None:
    assert outcome(negated, Int(INT_MIN)) == "overflow"
    assert outcome(abs, Int(INT_MIN)) == "overflow"
    assert outcome(operator.floordiv, Int(INT_MIN), Int(-1)) == "overflow"
    assert Int(INT_MIN) % Int(-1) == 0
    assert negated(Int(INT_MAX + 1)) == INT_MIN, "the literal -9223372036854775808 is a negated one"
    assert type(abs(Int(-3))) is Int and type(negated(Int(3))) is Int and type(+Int(3)) is Int


def fraction(value: Int | Dec) -> Fraction:
    return Fraction(value.n, 10**value.s) if isinstance(value, Dec) else Fraction(int(value))


def scale(value: Int | Dec) -> int:
    return value.s if isinstance(value, Dec) else 0


def law(op: Any, a: Int | Dec, b: Int | Dec) -> tuple[int, int] | str:
    """(n, s) of the result by the table in docs/SEMANTICS.md, in fractions."""
    x, y, larger = fraction(a), fraction(b), max(scale(a), scale(b))
    if op in (operator.floordiv, operator.mod, operator.truediv) and y == 0:
        return "division by zero"
    if op in (operator.floordiv, operator.mod) and not all(INT_MIN <= v * 10**larger <= INT_MAX for v in (x, y)):
        return "overflow"
    value, s = {
        operator.add: lambda: (x + y, larger),
        operator.sub: lambda: (x - y, larger),
        operator.mul: lambda: (x * y, scale(a) + scale(b)),
        operator.truediv: lambda: (x / y, max(larger, 6)),
        operator.floordiv: lambda: (Fraction(math.floor(x / y)), 0),
        operator.mod: lambda: (x - math.floor(x / y) * y, larger),
    }[op]()
    n = round(value * 10**s)
    return (n, s) if abs(n) < LIMIT else "overflow"


@given(
    pair=st.tuples(decs, decs) | st.tuples(decs, ints) | st.tuples(ints, decs),
    op=st.sampled_from([*BINARY, operator.truediv]),
)
def test_dec_arithmetic_is_the_table(pair: Any, op: Any) -> None:
    got = outcome(op, *pair)
    assert ((got.n, got.s) if isinstance(got, Dec) else got) == law(op, *pair)


@given(pair=st.tuples(decs, decs) | st.tuples(decs, ints) | st.tuples(ints, decs), op=st.sampled_from(COMPARE))
def test_dec_compares_exactly(pair: Any, op: Any) -> None:
    a, b = pair
    assert op(a, b) is op(fraction(a), fraction(b))
    if a == b:
        assert hash(a) == hash(b)


@given(a=decs)
def test_dec_alone(a: Dec) -> None:
    assert fraction(-a) == -fraction(a) and (-a).s == a.s
    assert fraction(abs(a)) == abs(fraction(a)) and abs(a).s == a.s
    assert bool(a) is (a.n != 0)
    assert lower(a) == fraction(a)
    back = lift(lower(a))
    assert (back.n, back.s) == (a.n, a.s)


@given(a=decs, digits=st.integers(-18, 22))
def test_dec_rounds_as_decimal_does_at_its_own_scale(a: Dec, digits: int) -> None:
    with localcontext(Context(prec=80)):
        want, whole = round(a.plain(), digits), round(a.plain())
    got = outcome(lift(round), a, Int(digits))
    if abs(Fraction(want)) * 10**a.s >= LIMIT:
        assert got == "overflow"
    else:
        assert fraction(got) == Fraction(want) and got.s == a.s
    got = outcome(lift(round), a)
    assert got == whole and type(got) is Int


@pytest.mark.parametrize(
    ("x", "rounded"),
    [
        (2.5, 2),
        (-3.5, -4),
        (2.0**63, "overflow"),
        (-(2.0**63), INT_MIN),
        (math.inf, "overflow"),
        (math.nan, "overflow"),
    ],
)
def test_a_float_rounds_to_an_int64(x: float, rounded: Any) -> None:
    got = outcome(lift(round), x)
    assert got == rounded and type(got) in (Int, str)


def test_dec_has_18_digits() -> None:
    with pytest.raises(Aborted, match="overflow"):
        Dec(LIMIT, 0)
    with pytest.raises(Aborted, match="overflow"):
        Dec(LIMIT - 1, 2) + Dec(1, 2)


def test_dec_division_by_zero_comes_before_overflow() -> None:
    for op in (operator.truediv, operator.floordiv, operator.mod):
        assert outcome(op, Int(INT_MAX), Dec(0, 18)) == "division by zero"
        assert outcome(op, Dec(1, 2), Int(0)) == "division by zero"


def test_dec_refuses_floats_and_bools() -> None:
    for other in (1.0, True, "1"):
        with pytest.raises(TypeError):
            Dec(1, 0) + other
        with pytest.raises(TypeError):
            Dec(1, 0) < other


@pytest.mark.parametrize(("text", "n", "s"), [("0.05", 5, 2), ("1E+3", 1000, 0), ("-2.50", -250, 2), ("1E-3", 1, 3)])
def test_a_decimal_constant_has_the_scale_it_is_written_with(text: str, n: int, s: int) -> None:
    got = lift(Decimal(text))
    assert (got.n, got.s) == (n, s)


def test_lift_leaves_what_is_no_number() -> None:
    assert lift(True) is True
    assert lift("x") == "x"
    assert type(lift(3)) is Int
    assert lift(dt.datetime(2024, 1, 1)) == dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    assert lower(Int(3)) == 3 and type(lower(Int(3))) is int


@given(value=decs | ints, p=st.integers(1, 18), data=st.data())
def test_storing_rounds_half_even_within_p_digits(value: Any, p: int, data: Any) -> None:
    s = data.draw(st.integers(0, p))
    want = round(fraction(value) * 10**s)
    got = outcome(convert, value, Type("decimal", p, s))
    assert (got if isinstance(got, str) else (got.n, got.s)) == ("overflow" if abs(want) >= 10**p else (want, s))


def test_convert_to_other_types() -> None:
    assert type(convert(Int(3), FLOAT)) is float
    assert type(convert(Int(3), INT)) is Int
    for value, type_ in ((1.5, INT), (True, INT), (Int(1), BOOL), (Dec(1, 0), FLOAT), (1.5, Type("decimal", 5, 2))):
        with pytest.raises(TypeError):
            convert(value, type_)
