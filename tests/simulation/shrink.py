"""A failing history made small: fewer choices, and more of them the plainest one.

Blocks of choices are left out or become 0, large blocks first, as long as the history stays wrong in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from simulation.history import Result, run

# What it takes is bounded: a history that is small enough to be read will do.
RUNS_MAX = 1500


def shrink(found: Result, runs_max: int = RUNS_MAX) -> Result:
    """The smallest that was found, with its trace."""
    assert found.wrong is not None
    best, runs, improved = found, 0, True
    while improved and runs < runs_max:
        improved = False
        size = len(best.choices)
        while size:
            start = 0
            while start < len(best.choices) and runs < runs_max:
                smaller = None
                for given in _without(best.choices, start, start + size):
                    runs += 1
                    result = run(found.seed, given, found.focus)
                    if result.wrong is not None and alike(result, found) and _size(result) < _size(best):
                        smaller = result
                        break
                if smaller is None:
                    start += size
                else:
                    best, improved = smaller, True
            size //= 2
    return run(found.seed, best.choices, found.focus, tracing=True)


def alike(one: Result, other: Result) -> bool:
    """The same thing is wrong: the first words say it, numbers and the rest are values."""
    return _kind(one) == _kind(other)


def _kind(result: Result) -> tuple[str, ...]:
    return (type(result.wrong).__name__, *re.sub(r"\d+", "", str(result.wrong)).split()[:3])


def _size(result: Result) -> tuple[int, int, int]:
    return result.counts.operations, len(result.choices), sum(1 for choice in result.choices if choice)


def _without(choices: list[int], start: int, end: int) -> Iterator[list[int]]:
    """Left out, or the plainest."""
    yield choices[:start] + choices[end:]
    if any(choices[start:end]):
        yield choices[:start] + [0] * len(choices[start:end]) + choices[end:]
