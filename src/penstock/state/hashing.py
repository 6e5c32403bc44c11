"""The hash index: open addressing over pairs (tag, row) in one int64 array.

    slots = [tag, row, tag, row, …]       a pair shares a cache line
    row  >= 0   the record is at this row
    row == -1   the slot is empty
    row <= -2   the record is dead; its row is -2 - row

For a table with one key column the tag is the key itself; with several it is a hash, and the key
columns decide. A dead record keeps its slot until the end of the batch, so that undoing a delete
or an insert is one store; `sweep` then takes dead records out for good.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.state.jit import kernel
from penstock.state.prefetch import BLOCK, prefetch

ALIVE, LISTED = 1, 2

# Slots are numbered in uint64, so that indexing needs no test for negative numbers; an int literal beside a
# uint64 would turn both into floats.
ONE, TWO = np.uint64(1), np.uint64(2)


# From here on memory counts for more than the shortest probes, and for more than few copies while a table grows.
_MANY = 1 << 20


def most(slots: int) -> int:
    """How many entries so many slots take: half as many, or three quarters where there are many."""
    return slots // 2 if slots <= 2 * _MANY else slots // 4 * 3


def slots_for(entries: int) -> int:
    size = 16
    while entries > most(size):
        size *= 2
    return size


def grown(need: int, before: int) -> int:
    """The size of an array that is to hold so much, where one of the size before was too small."""
    return max(need, 2 * before if before < _MANY else before + before // 2)


@kernel
def mix(x: Any) -> Any:
    """Spread the bits of a key (murmur3's finalizer)."""
    h = np.uint64(x)
    h ^= h >> np.uint64(33)
    h *= np.uint64(0xFF51AFD7ED558CCD)
    h ^= h >> np.uint64(33)
    return h


@kernel
def combine(tag: Any, part: Any) -> Any:
    """The tag of a composite key, part by part."""
    return np.int64(mix(np.uint64(tag) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(part) + np.uint64(1)))


@kernel
def tags_of(keys: Any) -> Any:
    """The tag of each key; keys is one int64 array per column (as a 2-d array, columns first)."""
    width, n = keys.shape
    tags = np.empty(n, np.int64)
    for i in range(n):
        if width == 1:
            tags[i] = keys[0, i]
        else:
            tag = np.int64(0)
            for c in range(width):
                tag = combine(tag, keys[c, i])
            tags[i] = tag
    return tags


@kernel
def first(tag: Any, slots: Any) -> Any:
    """Where the search for a tag begins: the index of its first slot's tag."""
    return (mix(tag) << ONE) & np.uint64(slots.size - 1)


@kernel
def seek(slots: Any, stored: Any, tag: Any, keys: Any, i: Any) -> Any:
    """The slot of key i, or the empty slot where it would go. stored: the table's key columns, as keys."""
    mask = np.uint64(slots.size - 1)
    h = first(tag, slots)
    width = keys.shape[0]
    while True:
        row = slots[h + ONE]
        if row == -1:
            return h
        if slots[h] == tag:
            if width == 1:
                return h
            if row < 0:
                row = -2 - row
            same = True
            for c in range(width):
                same &= stored[c, row] == keys[c, i]
            if same:
                return h
        h = (h + TWO) & mask


@kernel
def rows_of(slots: Any, stored: Any, keys: Any) -> Any:
    """The row of each key, -1 where there is no record."""
    n = keys.shape[1]
    tags = tags_of(keys)
    rows = np.empty(n, np.int64)
    for block in range(0, n, BLOCK):
        end = min(block + BLOCK, n)
        for i in range(block, end):
            prefetch(slots, first(tags[i], slots))
        for i in range(block, end):
            row = slots[seek(slots, stored, tags[i], keys, i) + ONE]
            rows[i] = row if row >= 0 else -1
    return rows


@kernel
def add_rows(slots: Any, stored: Any, flags: Any, free: Any, meta: Any, keys: Any) -> Any:
    """Give every key a row (its own if it has one), and say which; room must have been made before."""
    n = keys.shape[1]
    tags = tags_of(keys)
    rows = np.empty(n, np.int64)
    for block in range(0, n, BLOCK):
        end = min(block + BLOCK, n)
        for i in range(block, end):
            prefetch(slots, first(tags[i], slots))
        for i in range(block, end):
            h = seek(slots, stored, tags[i], keys, i)
            row = slots[h + ONE]
            if row < 0:
                if meta[1] > 0:
                    meta[1] -= 1
                    row = free[meta[1]]
                else:
                    row = meta[0]
                    meta[0] += 1
                slots[h] = tags[i]
                slots[h + ONE] = row
                meta[4] += 1
                flags[row] = ALIVE
                for c in range(keys.shape[0]):
                    stored[c, row] = keys[c, i]
            rows[i] = row
    return rows


@kernel
def rebuild(slots: Any, stored: Any, flags: Any, rows: Any) -> None:
    """Fill an empty index from the rows below `rows`: the live ones, and those that died in this batch as dead."""
    mask = np.uint64(slots.size - 1)
    width = stored.shape[0]
    tags = np.empty(BLOCK, np.int64)
    for block in range(0, rows, BLOCK):
        end = min(block + BLOCK, rows)
        for row in range(block, end):
            tag = stored[0, row]
            if width > 1:
                tag = np.int64(0)
                for c in range(width):
                    tag = combine(tag, stored[c, row])
            tags[row - block] = tag
            prefetch(slots, first(tag, slots))
        for row in range(block, end):
            if flags[row] == 0:
                continue
            tag = tags[row - block]
            h = first(tag, slots)
            while slots[h + ONE] != -1:
                h = (h + TWO) & mask
            slots[h] = tag
            slots[h + ONE] = row if flags[row] & ALIVE else -2 - row


@kernel
def sweep(slots: Any, stored: Any, flags: Any, tombstones: Any, free: Any, meta: Any) -> None:
    """Take the records that died in this batch out of the index, and free their rows."""
    width = stored.shape[0]
    key = np.empty((width, 1), np.int64)
    for g in range(meta[3]):
        row = tombstones[g]
        if flags[row] & ALIVE:
            flags[row] = ALIVE
            continue
        flags[row] = 0
        for c in range(width):
            key[c, 0] = stored[c, row]
        tag = tags_of(key)[0]
        remove(slots, seek(slots, stored, tag, key, 0))
        meta[4] -= 1
        free[meta[1]] = row
        meta[1] += 1
    meta[3] = 0


@kernel
def remove(slots: Any, at: Any) -> None:
    """Empty a slot and move back what its presence had pushed along."""
    mask = np.uint64(slots.size - 1)
    hole = at
    h = (hole + TWO) & mask
    while slots[h + ONE] != -1:
        home = first(slots[h], slots)
        # An entry may move into the hole unless its home lies after the hole.
        if ((h - home) & mask) >= ((h - hole) & mask):
            slots[hole] = slots[h]
            slots[hole + ONE] = slots[h + ONE]
            hole = h
        h = (h + TWO) & mask
    slots[hole + ONE] = -1


@kernel
def mend_index(slots: Any, stored: Any, flags: Any, rows: Any) -> None:
    """Let the index say of these rows what their flags say: whether the record lives."""
    width = stored.shape[0]
    key = np.empty((width, 1), np.int64)
    for row in rows:
        for c in range(width):
            key[c, 0] = stored[c, row]
        at = seek(slots, stored, tags_of(key)[0], key, 0)
        slots[at + ONE] = row if flags[row] & ALIVE else -2 - row
