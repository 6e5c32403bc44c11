"""Constant collections of a module, as a body means them: sets to ask `in`, and dicts to look up in.

What a dict gives is of one type: ints among floats are floats, and decimals have the digits of the longest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from penstock.declare.types import plain

COLLECTIONS = (tuple, list, set, frozenset, dict)


def is_collection(value: Any) -> bool:
    return type(value) in COLLECTIONS


def items(collection: Iterable[Any]) -> list[Any]:
    """What `in` asks, in an order that every process has."""
    found = [plain(one) for one in collection]
    return sorted(found, key=repr) if isinstance(collection, set | frozenset) else found


def values(table: Mapping[Any, Any]) -> list[Any]:
    """What a dict gives, in its order, as of one type."""
    found = [plain(one) for one in table.values()]
    kinds = {type(one) for one in found}
    if kinds == {int, float}:
        return [float(one) for one in found]
    if Decimal in kinds and kinds <= {int, Decimal} and all(Decimal(one).is_finite() for one in found):
        digits = max(0, *(-int(Decimal(one).as_tuple().exponent) for one in found))
        return [_with_digits(Decimal(one), digits) for one in found]
    return found


def _with_digits(value: Decimal, digits: int) -> Decimal:
    """From text, so that no decimal context can round it."""
    sign, numbers, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    return Decimal((sign, (*numbers, *[0] * (exponent + digits)), -digits))
