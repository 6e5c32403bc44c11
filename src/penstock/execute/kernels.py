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
