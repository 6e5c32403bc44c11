"""Spans of time as users write them: "5 seconds", "1 day"."""

from __future__ import annotations

import re

_UNITS = {
    "microsecond": 1,
    "millisecond": 1000,
    "second": 10**6,
    "minute": 60 * 10**6,
    "hour": 3600 * 10**6,
    "day": 86400 * 10**6,
}


def microseconds_of(text: object) -> int | None:
    """How long it is; None where it is no such text."""
    found = re.fullmatch(r"\s*(\d+)\s*([a-z]+?)s?\s*", text.lower()) if isinstance(text, str) else None
    return int(found[1]) * _UNITS[found[2]] if found and found[2] in _UNITS else None
