"""How a typed value lies in an array: three lanes for all types.

int64    int, decimal (unscaled), str (its number in the string pool), datetime (us), date (days)
float64  float
bool     bool
"""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np

from penstock.declare.types import Type

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)
_LANES: dict[str, Any] = {"float": np.float64, "bool": np.bool_}


def dtype(type_: Type) -> Any:
    return _LANES.get(type_.kind, np.int64)


def constant(value: Any, type_: Type) -> Any:
    """A constant that is not a str, as it lies in its lane (decimals come unscaled)."""
    if isinstance(value, datetime.datetime):
        return (value - _EPOCH) // _MICROSECOND
    if isinstance(value, datetime.date):
        return (value - _EPOCH.date()).days
    return value
