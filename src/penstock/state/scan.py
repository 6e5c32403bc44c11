"""The rows that a scan of a table gives, in order: collected into an array that scans share.

A scan puts its rows behind those of the scans around it, from `base` on, and gives where they end; -1 where the array
has no room for them. Sorting takes as much room again. texts: which key columns are strings, a bit each: those sort by
their text, all others as they lie. ages: when each record was written, the clock, and the records' ttl; empty where
they have none.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.state.ages import expired
from penstock.state.index import newest
from penstock.state.jit import borrowed, inlined, kernel
from penstock.state.strings import compare


@inlined
def _is_there(flags: Any, ages: Any, row: Any) -> Any:
    return flags[row] & 1 and (ages[0].size == 0 or not expired(ages[0][row], ages[1], ages[2]))


@kernel
def whole(
    out: Any, base: Any, flags: Any, ages: Any, count: Any, keys: Any, texts: Any, text_at: Any, text: Any
) -> Any:
    """All records."""
    end = base
    for row in range(count):
        if _is_there(flags, ages, row):
            if end >= out.size:
                return -1
            out[end] = row
            end += 1
    return _sort(out, base, end, keys, texts, text_at, text)


@kernel
def where(
    out: Any,
    base: Any,
    flags: Any,
    ages: Any,
    count: Any,
    keys: Any,
    texts: Any,
    text_at: Any,
    text: Any,
    column: Any,
    wanted: Any,
    slots: Any,
    posts: Any,
    meta: Any,
) -> Any:
    """The records that have a value in a column, by its index; -2 where that is stale."""
    if meta[2] != 0:
        return -2
    end, number = base, newest(slots, np.int64(wanted))
    while number >= 0:
        row = posts[2 * number]
        if _is_there(flags, ages, row) and column[row] == wanted:
            if end >= out.size:
                return -1
            out[end] = row
            end += 1
        number = posts[2 * number + 1]
    end = _sort(out, base, end, keys, texts, text_at, text)
    kept = base
    for i in range(base, end):
        if i == base or out[i] != out[i - 1]:
            out[kept] = out[i]
            kept += 1
    return kept if end >= 0 else end


@kernel
def where_null(
    out: Any,
    base: Any,
    flags: Any,
    ages: Any,
    count: Any,
    keys: Any,
    texts: Any,
    text_at: Any,
    text: Any,
    column: Any,
    wanted: Any,
    slots: Any,
    posts: Any,
    meta: Any,
    nones: Any,
    none: Any,
) -> Any:
    """The same of a column that may be None. none: whether that is wanted, which lies as a zero; nones: who has it."""
    end = where(out, base, flags, ages, count, keys, texts, text_at, text, column, wanted, slots, posts, meta)
    kept = base
    for i in range(base, end):
        if nones[out[i]] == none:
            out[kept] = out[i]
            kept += 1
    return kept if end >= 0 else end


@kernel
def between(
    out: Any, base: Any, flags: Any, ages: Any, count: Any, keys: Any, texts: Any, text_at: Any, text: Any, ends: Any
) -> Any:
    """The records whose first key columns are the first of `ends`, and whose next one lies between the last two."""
    last, end = len(ends) - 2, base
    low, high = ends[last], ends[last + 1]
    for row in range(count):
        if not _is_there(flags, ages, row):
            continue
        inside = True
        for k in range(last):
            inside &= keys[k, row] == ends[k]
        if not inside:
            continue
        value = keys[last, row]
        if texts >> last & 1:
            inside = compare(text_at, text, low, value) <= 0 and compare(text_at, text, value, high) <= 0
        else:
            inside = low <= value <= high
        if inside:
            if end >= out.size:
                return -1
            out[end] = row
            end += 1
    return _sort(out, base, end, keys, texts, text_at, text)


@kernel
def best(
    out: Any,
    base: Any,
    flags: Any,
    ages: Any,
    count: Any,
    keys: Any,
    texts: Any,
    text_at: Any,
    text: Any,
    column: Any,
    is_text: Any,
    highest: Any,
    most: Any,
) -> Any:
    """The records, at most so many, that have the most in a column, or the least.

    They are a heap while more come, whose root is the last of them; taking its roots leaves them in order.
    """
    most = min(most, count)
    if most <= 0:
        return base
    if base + most > out.size:
        return -1
    size = 0
    for row in range(count):
        if not _is_there(flags, ages, row):
            continue
        if size < most:
            child = size
            size += 1
            while child > 0:
                parent = (child - 1) // 2
                if not _first(column, is_text, highest, keys, texts, text_at, text, out[base + parent], row):
                    break
                out[base + child] = out[base + parent]
                child = parent
            out[base + child] = row
        elif _first(column, is_text, highest, keys, texts, text_at, text, row, out[base]):
            _sink(out, base, size, row, column, is_text, highest, keys, texts, text_at, text)
    for left in range(size - 1, 0, -1):
        row = out[base + left]
        out[base + left] = out[base]
        _sink(out, base, left, row, column, is_text, highest, keys, texts, text_at, text)
    return base + size


@kernel
def _sink(
    out: Any,
    base: Any,
    size: Any,
    row: Any,
    column: Any,
    is_text: Any,
    highest: Any,
    keys: Any,
    texts: Any,
    text_at: Any,
    text: Any,
) -> None:
    """Put a row in the place of the root, and down to where it belongs."""
    parent = 0
    while True:
        child = 2 * parent + 1
        if child >= size:
            break
        if child + 1 < size and _first(
            column, is_text, highest, keys, texts, text_at, text, out[base + child], out[base + child + 1]
        ):
            child += 1
        if not _first(column, is_text, highest, keys, texts, text_at, text, row, out[base + child]):
            break
        out[base + parent] = out[base + child]
        parent = child
    out[base + parent] = row


@inlined
def _first(
    column: Any, is_text: Any, highest: Any, keys: Any, texts: Any, text_at: Any, text: Any, a: Any, b: Any
) -> Any:
    """Whether row a comes before row b: by the column, nan last, and then by the key."""
    x, y = column[a], column[b]
    if is_text:
        order = compare(text_at, text, int(x), int(y))
        if order != 0:
            return (order > 0) == highest
    elif x != x or y != y:
        if x == x or y == y:
            return x == x
    elif x != y:
        return (x > y) == highest
    return _before(keys, texts, text_at, text, a, b)


@inlined
def _before(keys: Any, texts: Any, text_at: Any, text: Any, a: Any, b: Any) -> Any:
    """Whether row a's key is less than row b's."""
    for k in range(keys.shape[0]):
        x, y = keys[k, a], keys[k, b]
        if x != y:
            if texts >> k & 1:
                return compare(text_at, text, x, y) < 0
            return x < y
    return False


@kernel
def _sort(out: Any, base: Any, end: Any, keys: Any, texts: Any, text_at: Any, text: Any) -> Any:
    """Sort rows by their keys; most tables are filled in order.

    Runs are merged, each row beside the first part of its key, so that few rows have to be looked at again.
    """
    out, keys, text_at, text = borrowed((out, keys, text_at, text))
    ordered = True
    for i in range(base + 1, end):
        if not _before(keys, texts, text_at, text, out[i - 1], out[i]):
            ordered = False
            break
    if ordered:
        return end
    n = end - base
    if end + 3 * n > out.size:
        return -1
    # Where rows lie and their words, and where they go to.
    rows, words, rows_to, words_to = base, end, end + n, end + 2 * n
    more = keys.shape[0] > 1 or texts != 0
    for i in range(n):
        out[words + i] = 0 if texts & 1 else keys[0, out[rows + i]]
    width = 1
    while width < n:
        for start in range(0, n, 2 * width):
            i, middle = start, min(start + width, n)
            j, stop = middle, min(start + 2 * width, n)
            for k in range(start, stop):
                second = i >= middle
                if not second and j < stop:
                    a, b = out[words + i], out[words + j]
                    second = b < a
                    if more and a == b:
                        second = _before(keys, texts, text_at, text, out[rows + j], out[rows + i])
                source = j if second else i
                out[rows_to + k] = out[rows + source]
                out[words_to + k] = out[words + source]
                j += second
                i += not second
        rows, rows_to, words, words_to = rows_to, rows, words_to, words
        width *= 2
    if rows != base:
        for k in range(n):
            out[base + k] = out[rows + k]
    return end
