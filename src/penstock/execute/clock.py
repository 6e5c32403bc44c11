"""The clock: the highest ts that has run. Before anything has, there is none, and a called event gets this."""

from __future__ import annotations

import time

from penstock.declare.types import Type


def first_ts(order: Type) -> int:
    """The ts of a called event that leaves it to the clock: the wall clock, or 0 where times are ints."""
    return time.time_ns() // 1000 if order.kind == "datetime" else 0
