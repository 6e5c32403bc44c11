"""Large files past the page cache: a log is written once and hardly ever read, so its pages are room taken from others.

They also have to be found: on a virtual machine whose host lends memory, 38 MB took 110 to 200 ms into the page cache
and 25 to 50 ms past it (both with fsync); elsewhere the two are about equal.

The kernel takes whole blocks from aligned memory only, so the bytes pass through a small buffer that is both. The
last part of a block, and a file system that takes no direct writes, go the ordinary way.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections.abc import Sequence

# Below this the two ways differ by less than a millisecond.
LEAST = 1 << 20
# Fits in a core's cache; larger ones were no faster.
BUFFER = 1 << 20
# No device has larger blocks.
BLOCK = 4096


def write_direct(fd: int, buffers: Sequence[memoryview]) -> int:
    """Writes the buffers to the start of a file, as far as this way takes them: how many bytes that was."""
    whole = sum(map(len, buffers)) // BLOCK * BLOCK
    if whole < LEAST or not _set_direct(fd, True):
        return 0
    room = memoryview(mmap.mmap(-1, BUFFER))
    done = used = 0
    try:
        for buffer in buffers:
            while len(buffer) and done + used < whole:
                n = min(len(buffer), BUFFER - used, whole - done - used)
                room[used : used + n] = buffer[:n]
                buffer, used = buffer[n:], used + n
                if used == BUFFER or done + used == whole:
                    _write_at(fd, room[:used], done)
                    done, used = done + used, 0
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        _set_direct(fd, False)
    return done


def _write_at(fd: int, data: memoryview, offset: int) -> None:
    while len(data):
        n = os.pwrite(fd, data, offset)
        data, offset = data[n:], offset + n


def _set_direct(fd: int, on: bool) -> bool:
    """Whether the file system takes it."""
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    direct = getattr(os, "O_DIRECT", 0)  # Linux has it
    try:
        fcntl.fcntl(fd, fcntl.F_SETFL, flags | direct if on else flags & ~direct)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return False
    return bool(direct)
