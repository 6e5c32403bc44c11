"""The scalar kernels against Python's own numbers."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext

import pytest
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


# Halves of a unit, powers of two, and where the unit of the last digit is as fine as floats are: the neighbours too.
DIGITS = st.integers(-18, 22)
NEAR = st.builds(
    lambda x, n, toward: math.nextafter(x * 10.0**-n, toward) if toward else x * 10.0**-n,
    st.integers(-(10**6), 10**6).map(lambda k: k + 0.5) | st.integers(-(2**54), 2**54).map(float),
    DIGITS,
    st.sampled_from([0, math.inf, -math.inf]),
)
POWERS = st.builds(math.ldexp, st.sampled_from([1.0, -1.0, 1.0 - 2.0**-53, 3.0]), st.integers(-80, 130))


@MANY
@given(FLOATS | NEAR | POWERS, DIGITS)
def test_a_float_is_rounded_as_python_rounds_it(x: float, digits: int) -> None:
    assert same(kernels.round_float(x, digits), round(x, digits))


@pytest.mark.parametrize(
    ("x", "digits", "rounded"),
    [
        (2.675, 2, 2.67),
        (0.125, 2, 0.12),
        (0.5, 0, 0.0),
        (-0.4, 0, -0.0),
        (1.5, 0, 2.0),
        (5e-324, 22, 0.0),
        (1.7976931348623157e308, -18, 1.7976931348623157e308),
        (5e17, -18, 0.0),
        (1.5e18, -18, 2e18),
        (math.nextafter(5e17, 1e18), -18, 1e18),
        (25.0, -1, 20.0),
        (25.000000000000004, -1, 30.0),
        (9007199254740993.0, -1, 9007199254740990.0),
        (4503599627370496.5, 0, 4503599627370496.0),
    ],
)
def test_floats_rounded_by_hand(x: float, digits: int, rounded: float) -> None:
    assert same(kernels.round_float(x, digits), rounded)


@MANY
@given(FLOATS | NEAR | POWERS | st.integers(-(2**63), 2**63).map(float))
def test_a_float_is_rounded_to_an_int(x: float) -> None:
    result, lost = kernels.round_float_to_int(x)
    assert lost == (not math.isfinite(x) or not -(2**63) <= round(x) < 2**63)
    assert lost or result == round(x)


@MANY
@given(UNSCALED, st.integers(0, 18), DIGITS)
def test_a_decimal_is_rounded_as_python_rounds_it(x: int, scale: int, digits: int) -> None:
    with localcontext(Context(prec=80)):
        exact = Decimal(x).scaleb(-scale)
        rounded, whole = round(exact, digits).scaleb(scale), round(exact)
    result, lost = kernels.round_decimal(x, scale, digits)
    assert lost == (abs(rounded) >= 10**18)
    assert lost or result == rounded
    assert kernels.round_decimal_to_int(x, scale) == whole


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


@MANY
@given(FLOATS | NEAR | POWERS)
def test_a_float_loses_its_fraction_as_int_takes_it(x: float) -> None:
    result, lost = kernels.float_to_int(x)
    fits = math.isfinite(x) and -(2**63) <= int(x) < 2**63
    assert (result, lost) == ((int(x), False) if fits else (0, True))


@MANY
@given(UNSCALED, st.integers(0, 18))
def test_a_decimal_converts_as_python_converts_it(x: int, scale: int) -> None:
    value = Decimal(f"{x}E-{scale}")
    assert kernels.decimal_to_int(x, scale) == int(value)
    assert same(kernels.decimal_to_float(x, scale), float(value))


@MANY
@given(st.lists(st.none(), max_size=5), st.integers(-7, 7) | INTS, st.integers(-7, 7) | INTS)
def test_ends_of_a_slice_are_pythons(items: list[None], start: int, stop: int) -> None:
    n = len(items)
    low, high = kernels.slice_end(start, n), kernels.slice_end(stop, n)
    assert (low, max(low, high)) == (slice(start, stop).indices(n)[0], max(slice(start, stop).indices(n)[:2]))
