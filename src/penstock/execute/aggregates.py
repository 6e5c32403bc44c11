"""Sums and extremes of what a list or a generator expression gives, as a body means them: turn by turn, in order.

Python's own sum adds floats otherwise than `total += x` does, and its min raises where there is nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from penstock.declare.objects import Table
from penstock.errors import Aborted
from penstock.execute.scans import Scan
from penstock.execute.values import lift


class Turns:
    """A generator expression, and what it goes through."""

    def __init__(self, items: Any, over: Callable[[Any], Iterator[Any]]) -> None:
        self.items, self._values = items, over(items)

    def __iter__(self) -> Iterator[Any]:
        return self._values


def _sum(turns: Turns, start: Any = 0) -> Any:
    total = lift(start)
    for one in turns:
        total = total + one
    return total


_NO_DEFAULT, _NOTHING = object(), object()


def _extreme(function: Callable[..., Any]) -> Callable[..., Any]:
    """min or max, of what a list or a generator gives, or of its arguments."""

    def extreme(*values: Any, default: Any = _NO_DEFAULT) -> Any:
        if len(values) > 1:
            return function(*values)
        (turns,) = values
        first = next(each := iter(turns), _NOTHING)
        if first is not _NOTHING:
            return function(chain([first], each))  # which compares turn by turn: a None aborts before the next turn
        if default is not _NO_DEFAULT:
            return default
        items = turns.items if isinstance(turns, Turns) else turns
        over = items.definition if isinstance(items, Table) else items.table if isinstance(items, Scan) else None
        raise Aborted("empty" if over is None else f"empty {over.name}")

    return extreme


REFERENCES: dict[Any, Callable[..., Any]] = {sum: _sum, min: _extreme(min), max: _extreme(max)}
