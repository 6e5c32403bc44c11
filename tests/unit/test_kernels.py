"""The scalar kernels against Python's own numbers."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_EVEN, Context, Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.execute import kernels

INTS = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 1, -1, 2**53, 2**53 + 1, -(2**63), 2**63 - 1])
FLOATS = st.floats() | st.sampled_from([0.0, -0.0, 1e308, 5e-324, math.inf, -math.inf, 2.0**53, 2.0**63, -(2.0**63)])
UNSCALED = st.integers(-(10**18) + 1, 10**18 - 1) | st.integers(-1000, 1000)
MANY = settings(max_examples=500, deadline=None)


def same(a: float, b: float) -> bool:
    return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))


@MANY
@given(INTS, INTS.filter(bool))
def test_int_division(a: int, b: int) -> None:
    assert same(kernels.true_div(a, b), a / b)
    if not (a == -(2**63) and b == -1):
        assert kernels.floor_div(a, b) == a // b
    assert kernels.floor_mod(a, b) == a % b


@MANY
@given(INTS, FLOATS)
def test_an_int_against_a_float(a: int, b: float) -> None:
    k = kernels.compare_int_float(a, b)
    assert k == (2 if math.isnan(b) else (a > b) - (a < b))


@MANY
@given(FLOATS, FLOATS.filter(bool))
def test_float_division(a: float, b: float) -> None:
    assert same(kernels.float_div(a, b), a / b)
    assert same(kernels.float_mod(a, b), a % b)
    assert same(kernels.float_floor_div(a, b), a // b)


@MANY
@given(UNSCALED, st.integers(1, 18))
def test_scaling_down_rounds_half_to_even(x: int, digits: int) -> None:
    exact = Decimal(x).scaleb(-digits, Context(prec=50))
    assert kernels.scale_down(x, 10**digits) == int(exact.quantize(Decimal(1), ROUND_HALF_EVEN, Context(prec=50)))


@MANY
@given(INTS, UNSCALED.filter(bool), st.integers(0, 18))
def test_a_quotient_is_rounded_once(a: int, b: int, digits: int) -> None:
    unit = 10**digits
    whole, rest = divmod(abs(a) * unit, abs(b))
    expected = whole + (2 * rest > abs(b) or (2 * rest == abs(b) and whole % 2))
    result, lost = kernels.quotient(a, b, unit)
    assert lost == (expected >= 10**18)
    if not lost:
        assert result == (-expected if (a < 0) != (b < 0) else expected)


@MANY
@given(INTS, INTS, st.integers(0, 18))
def test_decimals_of_two_scales_compare_exactly(a: int, b: int, digits: int) -> None:
    unit = 10**digits
    assert kernels.compare_scaled(a, b, unit, 1) == (a * unit > b) - (a * unit < b)
    assert kernels.compare_scaled(a, b, 1, unit) == (a > b * unit) - (a < b * unit)
