"""What one batch frees, the next one uses: up to 64 MiB of it.

glibc gives freed memory back to the system beyond some threshold, and a large batch would have to touch all its arrays
for the first time again, page by page: a fifth of its time, if its transactions do little. The threshold follows the
largest block that was ever freed, up to 32 MiB, and twice as much is kept: so one is freed here that was never touched.
Where memory is managed otherwise, this does nothing.
"""

from __future__ import annotations

import contextlib

import numpy as np

_LARGEST = (32 << 20) - (64 << 10)  # with its header still below the bound


def keep_what_is_freed() -> None:
    with contextlib.suppress(MemoryError):
        np.empty(_LARGEST, np.uint8)
