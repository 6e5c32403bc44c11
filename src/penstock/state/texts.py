"""What kernels do with strings, by their numbers in the pool (strings.py): look at them, and make new ones.

A new string is written behind the last one of the pool, and is looked up there: if the pool has it already, what was
written is no string, and the next one is written over it. So a transaction that is undone leaves at most a string that
nobody holds, as missed keys do, and `Tables.compact` forgets it.

Who makes strings runs alone: others would write to the same place. Each kernel that makes one gives its number, or
FULL where there is no room for it (the pool grows, and the event runs again), or LOST where it is longer than LONGEST.
"""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import Any

import numpy as np

from penstock.declare.limits import LONGEST_TEXT
from penstock.state.jit import kernel
from penstock.state.strings import hash_of, place_of, slot_of

LOST, FULL = -1, -2
LONGEST = LONGEST_TEXT
# Room behind the last string: for the longest one, and what it was before it was found to be too long.
ROOM = LONGEST + 64
# What a code point is to the capital sigma, which is another small one at the end of a word.
_CASED, _IGNORED = 1, 2
_SIGMA, _FINAL = 0x3A3, 0x3C2


# -- looking ------------------------------------------------------------------------------------


@kernel
def length(starts: Any, data: Any, text: Any) -> Any:
    """In code points: the bytes that begin one."""
    n = 0
    for at in range(starts[text], starts[text + 1]):
        if data[at] & 0xC0 != 0x80:
            n += 1
    return n


@kernel
def _found_at(data: Any, at: Any, other: Any, n: Any) -> Any:
    for k in range(n):
        if data[at + k] != data[other + k]:
            return False
    return True


@kernel
def startswith(starts: Any, data: Any, text: Any, other: Any) -> Any:
    n = starts[other + 1] - starts[other]
    return n <= starts[text + 1] - starts[text] and _found_at(data, starts[text], starts[other], n)


@kernel
def endswith(starts: Any, data: Any, text: Any, other: Any) -> Any:
    n = starts[other + 1] - starts[other]
    return n <= starts[text + 1] - starts[text] and _found_at(data, starts[text + 1] - n, starts[other], n)


@kernel
def contains(starts: Any, data: Any, text: Any, other: Any) -> Any:
    """Whether the other one is in it; bytes tell, as no code point begins inside another."""
    n = starts[other + 1] - starts[other]
    for at in range(starts[text], starts[text + 1] - n + 1):
        if _found_at(data, at, starts[other], n):
            return True
    return False


# -- making -------------------------------------------------------------------------------------


@kernel
def _has_room(slots: Any, starts: Any, data: Any, pool: Any) -> Any:
    count = pool[0]
    return count + 2 <= starts.size and 4 * (count + 1) <= 3 * slots.size and starts[count] + ROOM <= data.size


@kernel
def _number(slots: Any, starts: Any, data: Any, pool: Any, n: Any) -> Any:
    """The number of what lies in the n bytes behind the last string."""
    if n > LONGEST:
        return LOST
    count = pool[0]
    start = starts[count]
    h64 = hash_of(data, start, start + n)
    h, number = place_of(slots, starts, data, h64, data, start, n)
    if number == -1:
        number = count
        starts[count + 1] = start + n
        slots[h] = slot_of(h64, count)
        pool[0] = count + 1
    return number


@kernel
def _copy(data: Any, at: Any, start: Any, n: Any) -> None:
    for k in range(n):
        data[at + k] = data[start + k]


@kernel
def _digits(data: Any, at: Any, value: Any) -> Any:
    """Write an int; how many bytes it takes."""
    rest = np.uint64(value) if value >= 0 else np.uint64(0) - np.uint64(value)
    n = 0
    while True:
        data[at + n] = np.uint8(48) + np.uint8(rest % np.uint64(10))
        rest //= np.uint64(10)
        n += 1
        if rest == np.uint64(0):
            break
    if value < 0:
        data[at + n] = np.uint8(45)
        n += 1
    for k in range(n // 2):
        other = data[at + n - 1 - k]
        data[at + n - 1 - k] = data[at + k]
        data[at + k] = other
    return n


@kernel(error_model="numpy")
def join(slots: Any, starts: Any, data: Any, pool: Any, parts: Any, ints: Any) -> Any:
    """The parts, one behind the other; bit k of ints: part k is an int, and not the number of a string."""
    if not _has_room(slots, starts, data, pool):
        return FULL
    at, n = starts[pool[0]], 0
    for k in range(len(parts)):
        part = parts[k]
        if (ints >> k) & 1:
            n += _digits(data, at + n, part)
        else:
            size = starts[part + 1] - starts[part]
            if n + size > LONGEST:
                return LOST
            _copy(data, at + n, starts[part], size)
            n += size
        if n > LONGEST:
            return LOST
    return _number(slots, starts, data, pool, n)


@kernel
def _part(slots: Any, starts: Any, data: Any, pool: Any, start: Any, end: Any) -> Any:
    """What lies between two places."""
    if not _has_room(slots, starts, data, pool):
        return FULL
    n = max(end - start, 0)
    if n > LONGEST:
        return LOST
    _copy(data, starts[pool[0]], start, n)
    return _number(slots, starts, data, pool, n)


@kernel
def cut(slots: Any, starts: Any, data: Any, pool: Any, text: Any, first: Any, end: Any) -> Any:
    """text[first:end], in code points."""
    n = length(starts, data, text)
    first = max(first + n, 0) if first < 0 else min(first, n)
    end = max(end + n, 0) if end < 0 else min(end, n)
    place, start, stop = 0, starts[text + 1], starts[text + 1]
    for at in range(starts[text], starts[text + 1]):
        if data[at] & 0xC0 != 0x80:
            if place == first:
                start = at
            if place == end:
                stop = at
            place += 1
    return _part(slots, starts, data, pool, start, stop)


@kernel
def _point(data: Any, at: Any) -> Any:
    """The code point that begins here, and its bytes."""
    byte = np.int64(data[at])
    if byte < 0x80:
        return byte, 1
    if byte < 0xE0:
        return (byte & 0x1F) << 6 | np.int64(data[at + 1] & 0x3F), 2
    if byte < 0xF0:
        return (byte & 0x0F) << 12 | np.int64(data[at + 1] & 0x3F) << 6 | np.int64(data[at + 2] & 0x3F), 3
    high = (byte & 0x07) << 18 | np.int64(data[at + 1] & 0x3F) << 12
    return high | np.int64(data[at + 2] & 0x3F) << 6 | np.int64(data[at + 3] & 0x3F), 4


@kernel
def _before(data: Any, at: Any) -> Any:
    """Where the code point before this place begins."""
    at -= 1
    while data[at] & 0xC0 == 0x80:
        at -= 1
    return at


@kernel
def _space(point: Any) -> Any:
    """Whether Python strips it."""
    if point < 128:
        return point == 32 or 9 <= point <= 13 or 28 <= point <= 31
    if point in (0x85, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000):
        return True
    return 0x2000 <= point <= 0x200A


@kernel
def _strip(slots: Any, starts: Any, data: Any, pool: Any, text: Any, left: Any, right: Any) -> Any:
    """Without white space at its ends."""
    start, end = starts[text], starts[text + 1]
    while left and start < end:
        point, n = _point(data, start)
        if not _space(point):
            break
        start += n
    while right and start < end:
        at = _before(data, end)
        point, _ = _point(data, at)
        if not _space(point):
            break
        end = at
    return _part(slots, starts, data, pool, start, end)


@kernel
def strip(slots: Any, starts: Any, data: Any, pool: Any, text: Any) -> Any:
    return _strip(slots, starts, data, pool, text, True, True)


@kernel
def lstrip(slots: Any, starts: Any, data: Any, pool: Any, text: Any) -> Any:
    return _strip(slots, starts, data, pool, text, True, False)


@kernel
def rstrip(slots: Any, starts: Any, data: Any, pool: Any, text: Any) -> Any:
    return _strip(slots, starts, data, pool, text, False, True)


# -- upper and lower case -----------------------------------------------------------------------


@kernel
def _write(data: Any, at: Any, point: Any) -> Any:
    """Write a code point; how many bytes it takes."""
    if point < 0x80:
        data[at] = np.uint8(point)
        return 1
    if point < 0x800:
        data[at] = np.uint8(0xC0 | point >> 6)
        data[at + 1] = np.uint8(0x80 | point & 0x3F)
        return 2
    if point < 0x10000:
        data[at] = np.uint8(0xE0 | point >> 12)
        data[at + 1] = np.uint8(0x80 | point >> 6 & 0x3F)
        data[at + 2] = np.uint8(0x80 | point & 0x3F)
        return 3
    data[at] = np.uint8(0xF0 | point >> 18)
    data[at + 1] = np.uint8(0x80 | point >> 12 & 0x3F)
    data[at + 2] = np.uint8(0x80 | point >> 6 & 0x3F)
    data[at + 3] = np.uint8(0x80 | point & 0x3F)
    return 4


@kernel
def _ends_word(data: Any, start: Any, at: Any, end: Any, kinds: Any) -> Any:
    """Whether a letter stands before a sigma, and none behind it, but for marks between."""
    k, kind = at, 0
    while k > start:
        k = _before(data, k)
        kind = kinds[_point(data, k)[0]]
        if kind != _IGNORED:
            break
    if kind != _CASED:
        return False
    k, kind = at + 2, 0
    while k < end:
        point, n = _point(data, k)
        kind = kinds[point]
        if kind != _IGNORED:
            break
        k += n
    return kind != _CASED


@kernel
def _case(slots: Any, starts: Any, data: Any, pool: Any, cases: Any, kinds: Any, text: Any, upper: Any) -> Any:
    """text.upper(), or text.lower()."""
    if not _has_room(slots, starts, data, pool):
        return FULL
    at, n = starts[pool[0]], 0
    place, end = starts[text], starts[text + 1]
    while place < end:
        point, size = _point(data, place)
        if point < 128:
            if upper and 97 <= point <= 122:
                point -= 32
            elif not upper and 65 <= point <= 90:
                point += 32
            data[at + n] = np.uint8(point)
            n += 1
        elif point == _SIGMA and not upper and _ends_word(data, starts[text], place, end, kinds):
            n += _write(data, at + n, np.int64(_FINAL))
        elif point * 6 >= cases.size:
            n += _write(data, at + n, point)
        else:
            for k in range(3):
                other = np.int64(cases[point * 6 + (3 if upper else 0) + k])
                if other == 0:
                    break
                n += _write(data, at + n, other)
        place += size
        if n > LONGEST:
            return LOST
    return _number(slots, starts, data, pool, n)


@kernel
def lower(slots: Any, starts: Any, data: Any, pool: Any, cases: Any, kinds: Any, text: Any) -> Any:
    return _case(slots, starts, data, pool, cases, kinds, text, False)


@kernel
def upper(slots: Any, starts: Any, data: Any, pool: Any, cases: Any, kinds: Any, text: Any) -> Any:
    return _case(slots, starts, data, pool, cases, kinds, text, True)


@cache
def cases() -> tuple[Any, Any]:
    """What this Python's own lower() and upper() make of each code point, up to three of each, as far as any changes;
    and what each is to a sigma."""
    # What is not assigned, or anybody's own, has no case; half of a surrogate pair is no text.
    points = [c for c in map(chr, range(0x110000)) if unicodedata.category(c) not in ("Cn", "Co", "Cs")]
    changed = [c for c in points if c.lower() != c or c.upper() != c]
    last = ord(changed[-1])
    table = np.zeros((last + 1, 6), np.int32)
    table[:, 0] = table[:, 3] = np.arange(last + 1)
    for c in changed:
        for column, text in ((0, c.lower()), (3, c.upper())):
            table[ord(c), column : column + 3] = [*map(ord, text), 0, 0][:3]
    # Behind a letter and before nothing a sigma is final unless what stands between is no mark.
    kinds = np.zeros(0x110000, np.uint8)
    behind, alone = ("".join(f"{a}{c}\u03a3 \n" for c in points).lower().split(" \n") for a in ("a", ""))
    for c, one, other in zip(points, behind, alone, strict=False):
        if other.endswith(chr(_FINAL)):
            kinds[ord(c)] = _CASED
        elif one.endswith(chr(_FINAL)):
            kinds[ord(c)] = _IGNORED
    return table.reshape(-1), kinds
