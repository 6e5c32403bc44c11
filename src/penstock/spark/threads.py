"""Threads for work beside the stream, which nobody waits for yet."""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

# With so few cores, what is done beside the stream must not hold up what the stream waits for.
FEW_CORES = (os.cpu_count() or 1) <= 2
_NICE = 10


def worker(name: str) -> ThreadPoolExecutor:
    """One thread."""
    return ThreadPoolExecutor(1, name, initializer=_lower_priority)


def _lower_priority() -> None:
    """Let others go first. Linux alone gives a thread a priority of its own; elsewhere it would be the process's."""
    if FEW_CORES and sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
