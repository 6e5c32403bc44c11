"""Sums and extremes of what a generator expression gives, as a body means them: turn by turn, in order.

Python's own sum adds floats otherwise than `total += x` does, and its min raises where there is nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from penstock.declare.objects import Table
from penstock.errors import Aborted
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


def _extreme(function: Callable[..., Any]) -> Callable[..., Any]:
    """min or max, of a scan's values or of its arguments."""

    def extreme(*values: Any) -> Any:
        if len(values) > 1:
            return function(*values)
        (turns,) = values
        found = list(turns)
        if not found:
            over = turns.items.definition if isinstance(turns.items, Table) else turns.items.table
            raise Aborted(f"empty {over.name}")
        return function(found)

    return extreme


REFERENCES: dict[Any, Callable[..., Any]] = {sum: _sum, min: _extreme(min), max: _extreme(max)}
