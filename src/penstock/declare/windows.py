"""What a window may be: its size and how far it slides; and whether its time is that of the app's events."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from penstock.declare.limits import INT_MAX, LONGEST
from penstock.declare.model import WindowDef
from penstock.declare.types import DATETIME, Type
from penstock.errors import DeclarationError

# What a window has besides its columns.
NAMES = ("add", "entered", "expired", "definition")


def check_size(where: str, rows: Any, time: Any, slide: Any) -> None:
    if (rows is None) == (time is None):
        raise DeclarationError(f"{where} is a number of rows or a span of time: give rows=100 or time=600, one of them")
    if rows is not None:
        _check_count(where, "rows", rows)
        if slide is not None:
            _check_count(where, "slide", slide)
    else:
        _check_span(where, "time", time)
        if slide is not None:
            _check_span(where, "slide", slide)
            if isinstance(slide, timedelta) is not isinstance(time, timedelta):
                raise DeclarationError(f"{where}: time={time!r} and slide={slide!r}; give both in the same unit")
    size = time if rows is None else rows
    if slide is not None and slide > size:
        raise DeclarationError(
            f"{where} slides by {slide!r}, further than its size, {size!r}: what lies between would never be seen; "
            "give a slide up to the size"
        )


def _check_count(where: str, name: str, given: Any) -> None:
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= INT_MAX:
        raise DeclarationError(f"{where}: {name}={given!r}; it counts rows, so give an int from 1 on")


def _check_span(where: str, name: str, given: Any) -> None:
    if isinstance(given, timedelta):
        if not timedelta(0) < given <= LONGEST:
            raise DeclarationError(
                f"{where}: {name}={given!r}; give a timedelta above 0, of {LONGEST.days} days at most"
            )
    elif isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= INT_MAX:
        raise DeclarationError(
            f"{where}: {name}={given!r}; give a timedelta, or where ts is an int, an int from 1 on in its unit"
        )


def check_order(window: WindowDef, order: Type | None, where: str) -> None:
    """A span of time is in the unit of ts."""
    if window.time is None or order is None:
        return
    if (order == DATETIME) is not isinstance(window.time, timedelta):
        wanted = "a timedelta" if order == DATETIME else "an int, in the unit of ts"
        raise DeclarationError(
            f"{where}: window '{window.name}' has time={window.time!r}, but ts is {order}; give {wanted}"
        )
