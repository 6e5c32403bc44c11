"""Whether an Arrow array holds only what its type means here: Arrow itself promises less, and does not look.

    str        UTF-8
    datetime   within Python's years, 1 to 9999; a date likewise
    timedelta  at most so many days that int64 microseconds hold them
    decimal    no more digits than its type has
    list       such items

What was made from Python values is sound; what was handed in may be made of any bytes. One look at the whole of a long
array tells most sound ones. What that does not tell, Arrow does, value by value; what lies under a null is not judged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.declare.kinds import COLUMNS
from penstock.declare.types import INT_MIN, Type
from penstock.errors import InputError

# Up to this many values, Arrow's look at each takes less time than one numpy call on all of them.
_FEW = 512
# The least byte, as int8, that a character of more than one byte begins with: those within it are below.
_BEGINS = -64
_NO_TEXT = np.zeros(0, np.int8)


def refuse_unsound(array: pa.Array, type_: Type, *, where: str) -> None:
    """InputError, opening with `where`, if the array, whose Arrow type is right, holds what the type cannot mean."""
    problem = _problem(array, type_)
    if problem:
        give = (type_.item or type_).traits.sound or type_.traits.sound
        raise InputError(f"{where}: holds what is no {type_} ({problem}); {give}")


def refuse_strangers(array: pa.Array, type_: Type, *, where: str) -> None:
    """InputError where a value is of no member of an Enum."""
    if type_.item is not None:
        array, type_ = array.flatten(), type_.item
    if not type_.members:
        return
    words = array.dictionary if pa.types.is_dictionary(array.type) else array
    known = pc.is_in(words, value_set=pa.array(type_.members, type_.arrow()), skip_nulls=False)
    known = known.take(array.indices) if words is not array else known
    strange = pc.and_(array.is_valid(), pc.invert(known)).index(True).as_py()
    if strange >= 0:
        raise InputError(f"{where}, row {strange}: {array[strange].as_py()!r} is no {type_.enum}; {type_.takes}")


def _problem(array: pa.Array, type_: Type) -> str:
    look = JUDGED.get(type_.kind)
    if look is None or not len(array):
        return ""
    try:
        array.validate()  # its buffers are as long as they have to be
        return look(array, type_)
    except pa.ArrowInvalid as error:
        return str(error)


def _text(array: pa.Array, type_: Type) -> str:
    if pa.types.is_dictionary(array.type):
        words, places = array.dictionary, array.indices
        return _problem(words, type_) or _judge(array, lambda: _are_within(places, len(words)))
    return _judge(array, lambda: _is_utf8(array))


def _decimals(array: pa.Array, type_: Type) -> str:
    words = np.frombuffer(array.buffers()[1], np.int64, 2 * len(array), array.offset * 16)
    low, high, limit = words[::2], words[1::2], 10**type_.precision
    _judge(array, lambda: low.max() < limit and low.min() > -limit and bool(((low >> 63) == high).all()))
    # Arrow takes the least of all numbers for a small one, since it has no absolute value.
    return "" if words.min() > INT_MIN else _first(array, high == INT_MIN, "has too many digits")


def _list(array: pa.Array, type_: Type) -> str:
    assert type_.item is not None
    if not _is_rising(array):
        return "a list ends before it begins"
    return _problem(array.flatten(), type_.item)  # only what lies in a list that is there


def _judge(array: pa.Array, is_sound: Callable[[], bool]) -> str:
    """ArrowInvalid where Arrow finds a value that is not. is_sound: tells most arrays of which it would find none."""
    if len(array) <= _FEW or not is_sound():
        array.validate(full=True)
    return ""


def _is_utf8(array: pa.Array) -> bool:
    """Whether all of the text together is, and no string begins inside a character."""
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int32, len(array) + 1, array.offset * 4)
    first, last = int(ends[0]), int(ends[-1])
    if not _is_rising(array):
        return False
    text = np.frombuffer(data, np.int8, last - first, first) if first < last else _NO_TEXT
    if text.min(initial=0) >= 0:
        return True  # ASCII
    try:
        pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(ends[[0, -1]]), data]).validate(full=True)
    except pa.ArrowInvalid:  # it may lie under a null
        return False
    begins = ends[:-1] - first
    return bool((text[begins[begins < text.size]] >= _BEGINS).all())


def _is_rising(array: pa.Array) -> bool:
    """Whether no string, or list, ends before it begins."""
    ends = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * 4)
    return bool((ends[:-1] <= ends[1:]).all())


def _are_within(places: pa.Array, count: int) -> bool:
    numbers = np.frombuffer(places.buffers()[1], np.int32, len(places), places.offset * 4)
    return bool(numbers.min() >= 0 and numbers.max() < count)


def _within(array: pa.Array, type_: Type) -> str:
    low, high = type_.traits.limits
    width = type_.traits.width // 8
    values = np.frombuffer(array.buffers()[1], f"i{width}", len(array), array.offset * width)
    if low <= values.min() and values.max() <= high:
        return ""
    return _first(array, (values < low) | (values > high), type_.traits.outside)


def _first(array: pa.Array, wrong: Any, what: str) -> str:
    """What is the matter with the first value that is wrong and not null."""
    found = np.flatnonzero(wrong & array.is_valid().to_numpy(zero_copy_only=False))
    return f"value {found[0]} {what}" if found.size else ""


# Kinds of types whose arrays may hold what they cannot mean.
JUDGED: dict[str, Callable[[pa.Array, Type], str]] = {
    "str": _text,
    "decimal": _decimals,
    "list": _list,
    **{row.name: _within for row in COLUMNS if row.limits},
}
