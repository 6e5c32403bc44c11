"""Which records of a table have outlived their time, so that their memory is given back.

    at     int64[n]   the clock of a record's last write, oldest first
    rows   int64[n]   its row
    from which a batch takes those that are due, off the front, and to which it adds what it wrote

An entry may be old: its record was written again, or its row holds another one by now. What the row says counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.state import hashing
from penstock.state.jit import kernel

# When a record was written of which nothing says it: no clock comes behind it, so it does not expire.
NEVER = (1 << 63) - 1
_LOWEST = -(1 << 63)
_NONE = np.zeros(0, np.int64)


class Ages:
    def __init__(self, at: Any = _NONE, rows: Any = _NONE) -> None:
        """In any order; those that never expire are left out."""
        known = at != NEVER
        order = np.argsort(at[known], kind="stable")
        self._at, self._rows = at[known][order], rows[known][order]

    def add(self, at: Any, rows: Any) -> None:
        """Records that a batch wrote. No entry is newer, unless the clock was set back."""
        new = Ages(at, rows)
        falls = self._at.size and new._at.size and new._at[0] < self._at[-1]
        self._at, self._rows = np.concatenate([self._at, new._at]), np.concatenate([self._rows, new._rows])
        if falls:
            order = np.argsort(self._at, kind="stable")
            self._at, self._rows = self._at[order], self._rows[order]

    def take(self, newest: int) -> tuple[Any, Any]:
        """The entries up to this clock, which are forgotten."""
        due = int(np.searchsorted(self._at, newest, side="right")) if newest >= _LOWEST else 0
        at, rows = self._at[:due], self._rows[:due]
        if due:
            self._at, self._rows = self._at[due:], self._rows[due:]
        return at, rows


@kernel
def expired(at: Any, clock: Any, lifetime: Any) -> Any:
    """Whether a record has outlived its time; at: the clock of its last write. They may be further apart than int64
    counts."""
    return at <= clock and np.uint64(clock) - np.uint64(at) >= np.uint64(lifetime)


@kernel
def bury(
    at: Any, rows: Any, own: Any, flags: Any, written: Any, dirty: Any, tombstones: Any, meta: Any, batch: Any
) -> Any:
    """The records of these entries die, as far as they live and were not written again; own: the table's clocks. The
    rows that died."""
    died = np.empty(rows.size, np.int64)
    n = 0
    for k in range(rows.size):
        row = rows[k]
        if flags[row] & hashing.ALIVE == 0 or own[row] != at[k]:
            continue
        if flags[row] & hashing.LISTED == 0:
            tombstones[meta[3]] = row
            meta[3] += 1
        flags[row] = hashing.LISTED
        if written[row] != batch:
            dirty[meta[2]] = row
            meta[2] += 1
            written[row] = batch
        died[n] = row
        n += 1
    return died[:n]
