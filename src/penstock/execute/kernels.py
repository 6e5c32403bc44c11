"""Scalar arithmetic for generated kernels: exact, checked, and as Python means it.

What may fail has a test beside it (`add_lost`), which the kernel turns into an abort. Decimals are
unscaled int64 values strictly between -10^18 and 10^18.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from penstock.state.jit import kernel

LIMIT = 10**18
_TENS = np.array([10**k for k in range(20)], np.uint64)


def _overflows(method: str) -> Any:
    @intrinsic
    def test(typingctx: Any, a: Any, b: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.extract_value(getattr(builder, method)(args[0], args[1]), 1)

        return types.boolean(types.int64, types.int64), codegen

    return test


# Whether a + b, a - b, a * b leave int64. LLVM computes test and result in one instruction.
add_lost = _overflows("sadd_with_overflow")
sub_lost = _overflows("ssub_with_overflow")
mul_lost = _overflows("smul_with_overflow")


@kernel
def wide(x: Any) -> Any:
    """Whether an unscaled number has more than 18 digits."""
    return x >= 1_000_000_000_000_000_000 or x <= -1_000_000_000_000_000_000


@kernel
def slice_end(place: Any, n: Any) -> Any:
    """Where an end of a slice lies in a list of n items."""
    return max(place + n, 0) if place < 0 else min(place, n)


# -- int ----------------------------------------------------------------------------------------


@kernel(error_model="numpy")
def floor_div(a: Any, b: Any) -> Any:
    """a // b for b != 0, but for the one quotient that does not fit, which the caller tests."""
    if b == -1:
        return -a
    q = np.int64(a // b)
    return q


@kernel(error_model="numpy")
def floor_mod(a: Any, b: Any) -> Any:
    if b == -1:
        return np.int64(0)
    return np.int64(a % b)


@kernel
def _bits(x: Any) -> Any:
    n = 0
    while x != np.uint64(0):
        x >>= np.uint64(1)
        n += 1
    return n


@kernel(error_model="numpy")
def true_div(a: Any, b: Any) -> Any:
    """a / b for ints, rounded once, as Python does; b != 0."""
    if -9007199254740992 <= a <= 9007199254740992 and -9007199254740992 <= b <= 9007199254740992:
        return float(a) / float(b)
    x = np.uint64(a) if a >= 0 else np.uint64(0) - np.uint64(a)
    y = np.uint64(b) if b >= 0 else np.uint64(0) - np.uint64(b)
    if x == np.uint64(0):
        return -0.0 if b < 0 else 0.0
    # Long division to 55 bits and a sticky one: enough for a correctly rounded double.
    q = x // y
    r = x % y
    exponent = 0
    bits = _bits(q)
    while bits < 55:
        # r < y <= 2**63, so doubling it fits in 64 bits.
        r <<= np.uint64(1)
        q <<= np.uint64(1)
        if r >= y:
            r -= y
            q |= np.uint64(1)
        exponent -= 1
        bits = _bits(q)
    lost = r != np.uint64(0)
    while bits > 55:
        lost = lost or (q & np.uint64(1)) != np.uint64(0)
        q >>= np.uint64(1)
        exponent += 1
        bits -= 1
    # 55 bits to 53, half to even.
    low = q & np.uint64(3)
    q >>= np.uint64(2)
    exponent += 2
    if low == np.uint64(3) or (low == np.uint64(2) and (lost or (q & np.uint64(1)) != np.uint64(0))):
        q += np.uint64(1)
    result = math.ldexp(float(q), exponent)
    return -result if (a < 0) != (b < 0) else result


@kernel
def compare_int_float(a: Any, b: Any) -> Any:
    """-1, 0, 1 as int a is below, equal to, above float b, exactly; 2 if b is nan."""
    if b != b:
        return 2
    if b >= 9223372036854775808.0:
        return -1
    if b < -9223372036854775808.0:
        return 1
    whole = np.int64(math.floor(b))
    if a < whole:
        return -1
    if a > whole:
        return 1
    return 0 if float(whole) == b else -1


# -- float --------------------------------------------------------------------------------------


@kernel(error_model="numpy")
def float_div(a: Any, b: Any) -> Any:
    return a / b


@kernel
def float_mod(a: Any, b: Any) -> Any:
    """a % b as CPython computes it; b != 0."""
    m = np.fmod(a, b)
    if m != 0.0:
        if (b < 0.0) != (m < 0.0):
            m += b
    else:
        m = math.copysign(0.0, b)
    return m


@kernel(error_model="numpy")
def float_floor_div(a: Any, b: Any) -> Any:
    """a // b as CPython computes it; b != 0."""
    m = np.fmod(a, b)
    d = (a - m) / b
    if m != 0.0 and (b < 0.0) != (m < 0.0):
        d -= 1.0
    if d == 0.0:
        return math.copysign(0.0, a / b)
    f = math.floor(d) if abs(d) < 4503599627370496.0 else d
    whole = float(f)
    if d - whole > 0.5:
        whole += 1.0
    return whole


@kernel
def round_float_to_int(x: Any) -> Any:
    """x rounded half to even, and whether that is no int64."""
    whole = np.rint(x)
    if -9223372036854775808.0 <= whole < 9223372036854775808.0:
        return np.int64(whole), False
    return np.int64(0), True


@kernel
def round_float(x: Any, digits: Any) -> Any:
    """The exact value of x, rounded half to even to a decimal of so many digits, and that to the nearest float.

    For digits from -18 to 22: so far powers of ten are floats, and 128 bits hold all there is. A quotient q in units of
    the last digit is exact up to 2**53. Above, the unit is so small beside x that no float is nearer than x itself.
    """
    size = abs(x)
    if size == 0.0 or not size < np.inf:
        return x
    fraction, exponent = math.frexp(size)
    bits = np.uint64(fraction * 9007199254740992.0)  # size == bits * 2**exponent, exactly
    exponent -= 53
    if digits < 0:
        unit = _TENS[-digits]
        if size > 9007199254740992.0 * float(unit):
            return x
        return math.copysign(float(_tens_in(bits, exponent, unit)) * float(unit), x)
    if exponent >= 0:
        return x
    more = max(digits - 19, 0)
    high, low = _product(bits * _TENS[more], _TENS[digits - more])
    q = _halved(high, low, -exponent)
    if q > np.uint64(9007199254740992):
        return x
    return math.copysign(float(q) / (float(_TENS[digits - more]) * float(_TENS[more])), x)


@kernel(error_model="numpy")
def _tens_in(bits: Any, exponent: Any, unit: Any) -> Any:
    """bits * 2**exponent / unit, rounded half to even; at most 2**53."""
    zero, below = np.uint64(0), False
    if exponent > 0:
        high, low = bits >> np.uint64(64 - exponent), bits << np.uint64(exponent)
    elif exponent > -64:
        high, low = zero, bits >> np.uint64(-exponent)
        below = low << np.uint64(-exponent) != bits
    else:
        high, low, below = zero, zero, True
    q, r = _divide(high, low, unit)
    half = unit >> np.uint64(1)
    if r > half or (r == half and (below or q & np.uint64(1) != zero)):
        q += np.uint64(1)
    return q


@kernel
def _halved(high: Any, low: Any, times: Any) -> Any:
    """128 bits, below 2**127, halved so many times, rounded half to even; 2**64 - 1 for what 64 bits do not hold."""
    zero, one, all_ones = np.uint64(0), np.uint64(1), ~np.uint64(0)
    if times > 127:  # less than a half
        return zero
    if times > 64:
        shift = np.uint64(times - 64)
        q, half = high >> shift, (high >> (shift - one)) & one
        below = low != zero or high & ((one << (shift - one)) - one) != zero
    elif times == 64:
        q, half = high, low >> np.uint64(63)
        below = low << one != zero
    else:
        shift = np.uint64(times)
        if high >> shift != zero:
            return all_ones
        q = high << (np.uint64(64) - shift) | low >> shift
        half = (low >> (shift - one)) & one
        below = low & ((one << (shift - one)) - one) != zero
    if half != zero and (below or q & one != zero) and q != all_ones:
        q += one
    return q


# -- decimal ------------------------------------------------------------------------------------


@kernel
def scale_down(x: Any, unit: Any) -> Any:
    """x / unit, rounded half to even; unit is a power of ten above 1."""
    q = x // unit
    r = x - q * unit
    half = unit // 2
    if r > half or (r == half and q & 1):
        q += 1
    return q


@kernel
def round_decimal(x: Any, scale: Any, digits: Any) -> Any:
    """x at its own scale, rounded half to even to so many digits, and whether that has more than 18 digits."""
    drop = scale - digits
    if drop <= 0:
        return x, False
    if drop > 18:  # less than half of one in the first place that stays
        return np.int64(0), False
    unit = np.int64(_TENS[drop])
    result = scale_down(x, unit) * unit
    return result, wide(result)


@kernel
def round_decimal_to_int(x: Any, scale: Any) -> Any:
    return x if scale == 0 else scale_down(x, np.int64(_TENS[scale]))


@kernel
def compare_scaled(a: Any, b: Any, unit_a: Any, unit_b: Any) -> Any:
    """-1, 0, 1 as a * unit_a is below, equal to, above b * unit_b; one unit is 1."""
    if mul_lost(a, unit_a):
        return 1 if a > 0 else -1
    if mul_lost(b, unit_b):
        return -1 if b > 0 else 1
    x, y = a * unit_a, b * unit_b
    return -1 if x < y else (1 if x > y else 0)


@kernel(error_model="numpy")
def quotient(a: Any, b: Any, unit: Any) -> Any:
    """(a * unit) / b rounded half to even, and whether it has more than 18 digits; b != 0."""
    negative = (a < 0) != (b < 0)
    x = np.uint64(a) if a >= 0 else np.uint64(0) - np.uint64(a)
    y = np.uint64(b) if b >= 0 else np.uint64(0) - np.uint64(b)
    high, low = _product(x, np.uint64(unit))
    if high >= y:
        return np.int64(0), True
    q, r = _divide(high, low, y)
    if q >= np.uint64(1_000_000_000_000_000_000):
        return np.int64(0), True
    if r > y - r or (r == y - r and (q & np.uint64(1)) != np.uint64(0)):
        q += np.uint64(1)
    if q >= np.uint64(1_000_000_000_000_000_000):
        return np.int64(0), True
    return (-np.int64(q) if negative else np.int64(q)), False


@kernel
def _product(x: Any, y: Any) -> Any:
    """The 128 bits of x * y, high and low."""
    mask = np.uint64(0xFFFFFFFF)
    s = np.uint64(32)
    x0, x1, y0, y1 = x & mask, x >> s, y & mask, y >> s
    low = x0 * y0
    middle = x1 * y0 + (low >> s)
    cross = x0 * y1 + (middle & mask)
    return x1 * y1 + (middle >> s) + (cross >> s), (cross << s) | (low & mask)


@kernel(error_model="numpy")
def _divide(high: Any, low: Any, y: Any) -> Any:
    """128 bits by 64: quotient and remainder, for high < y."""
    if high == np.uint64(0):
        return low // y, low % y
    q = np.uint64(0)
    r = high
    for k in range(63, -1, -1):
        top = r >> np.uint64(63)
        r = (r << np.uint64(1)) | ((low >> np.uint64(k)) & np.uint64(1))
        q <<= np.uint64(1)
        if top != np.uint64(0) or r >= y:
            r -= y
            q |= np.uint64(1)
    return q, r


# -- conversion ---------------------------------------------------------------------------------


@kernel
def float_to_int(x: Any) -> Any:
    """x without its fraction, and whether that is no int64."""
    if -9223372036854775808.0 <= x < 9223372036854775808.0:
        return np.int64(x), False
    return np.int64(0), True


@kernel
def decimal_to_int(x: Any, scale: Any) -> Any:
    """x without its fraction."""
    unit = np.int64(_TENS[scale])
    whole = abs(x) // unit
    return -whole if x < 0 else whole


@kernel
def bool_to_int(x: Any) -> Any:
    return np.int64(x)


@kernel
def bool_to_float(x: Any) -> Any:
    return 1.0 if x else 0.0


@kernel
def int_to_float(x: Any) -> Any:
    return float(x)


@kernel
def decimal_to_float(x: Any, scale: Any) -> Any:
    """The float nearest to it."""
    return true_div(x, np.int64(_TENS[scale]))
