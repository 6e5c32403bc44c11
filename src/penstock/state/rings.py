"""Rows of windows in rings: each window has a ring in the pool, and its rows are numbered as they are added.

    row number n of a ring that begins at base and has room for size rows (a power of two) lies at base + n % size
    head <= n < tail are there; active <= n are staged

These are steps of generated kernels (execute/codegen/windows.py) and of WindowState (window.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.state.jit import kernel
from penstock.state.strings import compare


@kernel
def place(base: Any, size: Any, number: Any) -> Any:
    return np.uint64(base + (number & (size - 1)))


@kernel
def move(lane: Any, base: Any, size: Any, to: Any, room: Any, head: Any, tail: Any) -> None:
    """The rows of a ring, in one column, to a larger one."""
    for n in range(head, tail):
        lane[place(to, room, n)] = lane[place(base, size, n)]


# -- time ---------------------------------------------------------------------------------------


@kernel
def _younger(times: Any, base: Any, size: Any, first: Any, end: Any, clock: Any, age: Any) -> Any:
    """The first of these rows that is younger than this. An age may be any uint64, and is never below 0."""
    while first < end and np.uint64(clock) - np.uint64(times[place(base, size, first)]) >= age:
        first += 1
    return first


@kernel
def seen(times: Any, base: Any, size: Any, head: Any, active: Any, tail: Any, clock: Any, span: Any, step: Any) -> Any:
    """The rows in (edge - span, edge], where the edge is the clock, or the last multiple of the step."""
    back = np.uint64(0)
    if step != 0:
        rest = clock % step
        back = np.uint64(rest + step if rest < 0 else rest)
    end = _younger(times, base, size, active, tail, clock, back) if step != 0 else tail
    return _younger(times, base, size, head, end, clock, back + np.uint64(span)), end


# -- sums: 128 bits in two words ----------------------------------------------------------------


@kernel
def _plus(high: Any, low: Any, value: Any) -> Any:
    total = np.uint64(low) + np.uint64(value)
    return high + (value >> 63) + np.int64(total < np.uint64(low)), np.int64(total)


@kernel
def _minus(high: Any, low: Any, value: Any) -> Any:
    borrow = np.int64(np.uint64(low) < np.uint64(value))
    return high - (value >> 63) - borrow, np.int64(np.uint64(low) - np.uint64(value))


@kernel
def total(lane: Any, base: Any, size: Any, first: Any, end: Any) -> Any:
    high, low = np.int64(0), np.int64(0)
    for n in range(first, end):
        high, low = _plus(high, low, np.int64(lane[place(base, size, n)]))
    return high, low


@kernel
def slid_total(
    lane: Any, base: Any, size: Any, head: Any, active: Any, first: Any, end: Any, high: Any, low: Any
) -> Any:
    """Of first up to end, from what it was of head up to active."""
    if first >= active:
        return total(lane, base, size, first, end)
    for n in range(head, first):
        high, low = _minus(high, low, np.int64(lane[place(base, size, n)]))
    for n in range(active, end):
        high, low = _plus(high, low, np.int64(lane[place(base, size, n)]))
    return high, low


@kernel
def float_total(lane: Any, base: Any, size: Any, first: Any, end: Any) -> Any:
    """One after the other, as the reference adds them."""
    out = 0.0
    for n in range(first, end):
        out += lane[place(base, size, n)]
    return out


# -- extremes: the first of the best ------------------------------------------------------------


@kernel
def least(lane: Any, base: Any, size: Any, first: Any, end: Any) -> Any:
    best = lane[place(base, size, first)]
    for n in range(first + 1, end):
        one = lane[place(base, size, n)]
        if one < best:
            best = one
    return best


@kernel
def greatest(lane: Any, base: Any, size: Any, first: Any, end: Any) -> Any:
    best = lane[place(base, size, first)]
    for n in range(first + 1, end):
        one = lane[place(base, size, n)]
        if one > best:
            best = one
    return best


@kernel
def best_text(text_at: Any, text: Any, lane: Any, base: Any, size: Any, first: Any, end: Any, sign: Any) -> Any:
    """The least (sign -1) or the greatest (1) of strings."""
    best = lane[place(base, size, first)]
    for n in range(first + 1, end):
        one = lane[place(base, size, n)]
        if compare(text_at, text, one, best) * sign > 0:
            best = one
    return best


# -- many rings at once -------------------------------------------------------------------------


@kernel
def move_all(lane: Any, base: Any, size: Any, out: Any, to: Any, room: Any, head: Any, tail: Any) -> None:
    for k in range(base.size):
        for n in range(head[k], tail[k]):
            out[place(to[k], room[k], n)] = lane[place(base[k], size[k], n)]


@kernel
def rooms(need: Any, least: Any) -> Any:
    """The sizes of rings for so many rows."""
    out = np.empty(need.size, np.int64)
    for k in range(need.size):
        size = least
        while size < need[k]:
            size *= 2
        out[k] = size
    return out


@kernel
def totals(lane: Any, base: Any, size: Any, head: Any, active: Any, high: Any, low: Any) -> None:
    for k in range(base.size):
        high[k], low[k] = total(lane, base[k], size[k], head[k], active[k])
