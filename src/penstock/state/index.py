"""An index of a column: from a value to the rows that have, or had, it. `Table.where` reads it.

    slots   (value, number) pairs, open addressing: the newest post of each value
    posts   (row, number) pairs: a row that was given the value, and the post before it, or -1
    meta    posts, values, whether it is stale

Whoever gives a row a value posts it, and nothing is ever taken back: who reads looks at the row, which may have another
value by now, or have died, and drops rows that were posted twice. So an undone write needs no undoing here. Where the
index is full, or records came otherwise than by the serial kernel, it is stale: no one posts any more, and the next
reader has it made anew, with room for as many posts as there are records.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.state.hashing import ALIVE, ONE, TWO, first
from penstock.state.jit import kernel

POSTS, VALUES, STALE = range(3)
# Posts that there is room for, at the least, beside one a record.
_SPARE = 1024


class ColumnIndex:
    """Costs next to nothing until it is read for the first time."""

    def __init__(self) -> None:
        self.slots, self.posts = _empty(4), np.zeros(0, np.int64)
        self.meta = np.array([0, 0, 1], np.int64)
        self._spare = 0

    def forget(self) -> None:
        self.meta[STALE] = 1
        self._spare = 0  # it was not too small: under a graph this comes before each event that runs alone

    def end_batch(self) -> None:
        self._spare = 0

    def build(self, column: Any, flags: Any, rows: int) -> None:
        """Make it anew from the rows below `rows`."""
        live = int(np.count_nonzero(flags[:rows] & ALIVE))
        # One event alone may post more than there are records, and runs again whenever the index was stale.
        self._spare = max(live, _SPARE, 2 * self._spare)
        posts = live + self._spare
        slots, room = _empty(2 * posts), np.zeros(2 * posts, np.int64)
        meta = np.zeros(3, np.int64)
        _fill(slots, room, meta, column, flags, rows)
        self.slots, self.posts, self.meta = slots, room, meta


def _empty(count: int) -> Any:
    size = 16
    while size < count:
        size *= 2
    slots = np.zeros(2 * size, np.int64)
    slots[1::2] = -1
    return slots


@kernel
def post(slots: Any, posts: Any, meta: Any, value: Any, row: Any) -> None:
    """A row was given a value."""
    if meta[2] != 0:
        return
    number = meta[0]
    mask = np.uint64(slots.size - 1)
    h = first(value, slots)
    while slots[h + ONE] != -1 and slots[h] != value:
        h = (h + TWO) & mask
    # At most half full, so that probes stay short.
    if 2 * number >= posts.size or (slots[h + ONE] == -1 and 4 * meta[1] >= slots.size):
        meta[2] = 1
        return
    meta[1] += slots[h + ONE] == -1
    posts[2 * number] = np.int64(row)
    posts[2 * number + 1] = slots[h + ONE]
    slots[h] = value
    slots[h + ONE] = number
    meta[0] += 1


@kernel
def newest(slots: Any, value: Any) -> Any:
    """The number of a value's newest post, -1 where it has none."""
    mask = np.uint64(slots.size - 1)
    h = first(value, slots)
    while slots[h + ONE] != -1 and slots[h] != value:
        h = (h + TWO) & mask
    return slots[h + ONE]


@kernel
def _fill(slots: Any, posts: Any, meta: Any, column: Any, flags: Any, rows: Any) -> None:
    for row in range(rows):
        if flags[row] & ALIVE:
            post(slots, posts, meta, np.int64(column[row]), row)
