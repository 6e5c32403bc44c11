"""Every choice of a history. The seed decides; the list of what was chosen decides it again.

A choice is a number below n, and 0 is always the plainest one: go on with the same task, no crash, no fault, stop.
So a list of choices that ends early, or has zeros in it, is a simpler history (shrink.py).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Choices:
    def __init__(self, seed: int, given: Sequence[int] | None = None) -> None:
        self.seed = seed
        self.made: list[int] = []
        self._random = random.Random(seed).random
        self._given = given

    def below(self, n: int) -> int:
        if self._given is None:
            value = int(self._random() * n)
        else:
            place = len(self.made)
            value = self._given[place] % n if place < len(self._given) else 0
        self.made.append(value)
        return value

    def once_in(self, n: int) -> bool:
        """True once in n times; never for 0."""
        return n > 0 and self.below(n) == n - 1

    def of(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def between(self, low: int, high: int) -> int:
        """Both included."""
        return low + self.below(high - low + 1)
