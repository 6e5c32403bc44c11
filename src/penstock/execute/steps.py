"""Steps of generated kernels over the arrays of the state: finding a slot, noting what to undo, marking a record.

They are functions rather than generated lines because numba's work grows with the square of a kernel's length,
while LLVM puts these few instructions in place all the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.state.ages import expired as expired
from penstock.state.hashing import ONE, TWO, first
from penstock.state.jit import kernel


@kernel
def seek(slots: Any, tag: Any) -> Any:
    """The slot of a key that is its own tag, or the empty slot where it would go."""
    mask = np.uint64(slots.size - 1)
    h = first(tag, slots)
    # An empty slot may still hold the tag of what was there: then it is the slot for this key.
    while slots[h] != tag and slots[h + ONE] != -1:
        h = (h + TWO) & mask
    return h


@kernel
def push(what: Any, at: Any, old: Any, n: Any, code: Any, place: Any, value: Any) -> Any:
    """Note an old value in the undo log; the log's new length."""
    what[n] = code
    at[n] = np.int64(place)
    old[n] = value
    return n + 1


@kernel
def touch(written: Any, dirty: Any, n: Any, row: Any, batch: Any) -> Any:
    """The first write to a record in this batch makes it dirty; no branch, since no guess would be good."""
    before = written[row]
    written[row] = batch
    dirty[n] = np.int64(row)
    return n + (before != batch)


@kernel
def bury(flags: Any, tombstones: Any, n: Any, row: Any) -> Any:
    """A row dies; list it once among the batch's tombstones."""
    if flags[row] & np.uint8(2) == 0:
        tombstones[n] = np.int64(row)
        n += 1
    flags[row] = np.uint8(2)
    return n


@kernel
def lay(slots: Any, flags: Any, tombstones: Any, free: Any, meta: Any, at: Any, tag: Any) -> Any:
    """A dead record at an empty slot, listed a tombstone: gone after the batch unless it comes to life."""
    meta[4] += 1
    if meta[1] > 0:
        meta[1] -= 1
        row = free[meta[1]]
    else:
        row = meta[0]
        meta[0] += 1
    slots[at] = tag
    slots[at + ONE] = -2 - row
    flags[row] = np.uint8(2)
    tombstones[meta[3]] = row
    meta[3] += 1
    return row


@kernel
def rise(at: Any, number: Any, kind: Any, row: Any, place: Any) -> None:
    """Put the last entry of the heap of timers where it belongs."""
    while place > 0:
        above = (place - 1) >> 1
        if at[above] < at[place] or (at[above] == at[place] and number[above] < number[place]):
            return
        _swap(at, number, kind, row, above, place)
        place = above


@kernel
def sink(at: Any, number: Any, kind: Any, row: Any, n: Any) -> None:
    """Take the first entry out of the heap of timers, which leaves n."""
    _swap(at, number, kind, row, 0, n)
    place = 0
    while 2 * place + 1 < n:
        least = 2 * place + 1
        other = least + 1
        if other < n and (at[other] < at[least] or (at[other] == at[least] and number[other] < number[least])):
            least = other
        if at[place] < at[least] or (at[place] == at[least] and number[place] < number[least]):
            return
        _swap(at, number, kind, row, place, least)
        place = least


@kernel
def _swap(at: Any, number: Any, kind: Any, row: Any, a: Any, b: Any) -> None:
    at[a], at[b] = at[b], at[a]
    number[a], number[b] = number[b], number[a]
    kind[a], kind[b] = kind[b], kind[a]
    row[a], row[b] = row[b], row[a]
