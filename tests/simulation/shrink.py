"""A failing history made small: fewer choices, and more of them the plainest one.

Blocks of choices are left out or become 0, large blocks first, as long as the history stays wrong in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator

from simulation.history import Result, run

# What it takes is bounded: a history that is small enough to be read will do.
RUNS_MAX = 1500


def shrink(found: Result, runs_max: int = RUNS_MAX) -> Result:
    """The smallest that was found, with its trace."""
    assert found.wrong is not None
    best, runs = found, 0
    improved = True
    while improved and runs < runs_max:
        improved = False
        for given in _smaller(best.choices):
            runs += 1
            result = run(found.seed, given)
            if result.wrong is not None and alike(result, found) and _size(result) < _size(best):
                best, improved = result, True
                break
            if runs >= runs_max:
                break
    return run(found.seed, best.choices, tracing=True)


def alike(one: Result, other: Result) -> bool:
    """The same thing is wrong: the first words say it, the rest are values."""
    return _kind(one) == _kind(other)


def _kind(result: Result) -> tuple[str, ...]:
    return (type(result.wrong).__name__, *str(result.wrong).split()[:3])


def _size(result: Result) -> tuple[int, int, int]:
    return result.counts.operations, len(result.choices), sum(1 for choice in result.choices if choice)


def _smaller(choices: list[int]) -> Iterator[list[int]]:
    size = len(choices)
    while size:
        for start in range(0, len(choices), size):
            yield choices[:start] + choices[start + size :]
            if any(choices[start : start + size]):
                yield choices[:start] + [0] * len(choices[start : start + size]) + choices[start + size :]
        size //= 2
