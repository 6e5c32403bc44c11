"""One column, or one list of Python values, as an Arrow array of a declared type.

    Arrow column    --column()-->   pa.Array of type.arrow()     only casts that lose nothing
    Python values   --values()-->   pa.Array of type.arrow()     only types that mean the same

An array that has the right type already is handed on as it is, without a copy, if it is sound (validate.py).
declare/kinds.py says what each type takes.
"""

from __future__ import annotations

import decimal
import enum
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as at

from penstock.declare.model import Column, Field
from penstock.declare.types import Type, plain
from penstock.errors import InputError
from penstock.execute.validate import refuse_strangers, refuse_unsound

# Strings that came dictionary-encoded stay so where the caller asks for it.
DICTIONARY = pa.dictionary(pa.int32(), pa.string())

# Wide enough for any int64 or uint64 beside 18 digits after the point.
_WIDE_DIGITS = 38


def column(
    data: pa.ChunkedArray, type_: Type, *, where: str, dictionary: bool = False, sound: bool = False
) -> pa.Array:
    """The column as one array of the type; InputError, opening with `where`, if that would lose anything or its values
    mean nothing. sound: whether these were looked at before."""
    try:
        array = _cast(one_array(data, where), type_, where, dictionary)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"{where}: a {data.type} value is not a {type_} ({error}); {type_.traits.give}") from None
    if not sound:
        refuse_unsound(array, type_, where=where)
        refuse_strangers(array, type_, where=where)
    return array


def one_array(data: pa.ChunkedArray, where: str) -> pa.Array:
    """All chunks as one."""
    if data.num_chunks == 1:
        return data.chunk(0)
    whole = data.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        raise InputError(f"{where}: more text than one Arrow array holds (2 GiB); give smaller batches")
    return whole


def _cast(array: pa.Array, type_: Type, where: str, dictionary: bool) -> pa.Array:
    target = type_.arrow()
    if array.type == target:
        return array
    if at.is_null(array.type):
        return pa.nulls(len(array), target)
    if at.is_dictionary(array.type):
        # A null inside the dictionary would hide from null_count.
        if (
            dictionary
            and type_.kind == "str"
            and type_.traits.takes(array.type.value_type)
            and not array.dictionary.null_count
        ):
            return array if array.type == DICTIONARY else array.cast(DICTIONARY)
        return _cast(array.dictionary_decode(), type_, where, dictionary)
    if not type_.traits.takes(array.type):
        raise InputError(f"{where}: needs {type_}, got Arrow type {array.type}; {type_.traits.give}")
    if type_.item is not None:
        return _cast_list(array, type_, where)
    if type_.kind == "decimal" and at.is_integer(array.type):
        array = array.cast(pa.decimal128(_WIDE_DIGITS, type_.scale))
    if at.is_decimal(array.type) and abs(array.type.scale - target.scale) > _digits(array.type):
        raise InputError(f"{where}: {array.type} has more digits after its point than there are; {type_.traits.give}")
    return array.cast(target)


def _digits(type_: pa.DataType) -> int:
    """The most that a decimal of this kind has. Where its point moves by more, Arrow reads behind its own tables."""
    return 76 if at.is_decimal256(type_) else 38


def _cast_list(array: pa.Array, type_: Type, where: str) -> pa.Array:
    assert type_.item is not None
    # take() drops what lies outside a slice or under a null list, so that only real items are judged.
    value = array.type.value_type
    value = pa.string() if at.is_string_view(value) else value  # which take() does not know
    array = array.cast(pa.list_(value)).take(pa.array(np.arange(len(array))))
    items = _cast(array.values, type_.item, where, False)
    return pa.Array.from_buffers(type_.arrow(), len(array), array.buffers()[:2], array.null_count, 0, [items])


def values(data: Sequence[Any], type_: Type, *, where: Callable[[int], str]) -> pa.Array:
    """Python values as one array; None stays null. `where(i)` opens the message about value i."""
    out = []
    for i, value in enumerate(data):
        try:
            out.append(None if value is None else _given(value, type_))
        except (ValueError, TypeError, OverflowError, decimal.InvalidOperation):
            raise InputError(
                f"{where(i)}: needs {type_.called}, got {value!r}; {(type_.item or type_).takes}"
            ) from None
    return pa.array(out, type_.arrow())


def _given(value: Any, type_: Type) -> Any:
    if type_.item is not None and any(isinstance(one, enum.Enum) for one in value):
        value = [plain(one) for one in value]
    found = type_.traits.given(plain(value), type_)
    for one in found if type_.item is not None else (found,):
        members = (type_.item or type_).members
        if members and one is not None and one not in members:
            raise ValueError
    return found


def left_out(field: Field | Column, rows: int) -> pa.Array:
    """What nobody has given, as a column: its default, or null."""
    return pa.repeat(pa.scalar(field.default, field.type.arrow()), rows)


def without_columns(rows: int) -> pa.Table:
    """So many rows of nothing, as of an event without fields: Arrow's constructors forget their number."""
    return pa.table({"": pa.nulls(rows)}).select([])
