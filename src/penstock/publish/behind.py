"""Outcomes written behind a batch: while the stream plans the next one, this one's go to their file.

One at a time. Who runs batches waits before the next commit, so that a crash leaves the outcomes of the newest
version to be written again, and no others. A failure stays: whoever waits is told, however often.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

# With so few cores, what is done beside the stream must not hold up what the stream waits for.
FEW_CORES = (os.cpu_count() or 1) <= 2
_NICE = 10


def beside(name: str) -> ThreadPoolExecutor:
    """One thread for work that nobody waits for yet."""
    return ThreadPoolExecutor(1, name, initializer=_step_back)


def _step_back() -> None:
    """Let others go first. Linux alone gives a thread a priority of its own; elsewhere it would be the process's."""
    if FEW_CORES and sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)


class Behind:
    def __init__(self) -> None:
        self._pool = beside("penstock-outcomes")
        self._last: Future[None] | None = None

    def put(self, write: Callable[[], None]) -> None:
        self.wait()
        self._last = self._pool.submit(write)

    def wait(self) -> None:
        """Until what was put is written; raises what went wrong."""
        if self._last is not None:
            self._last.result()

    def wait_at_most(self, seconds: float) -> None:
        """Until what was put is written, or that long; says nothing of what went wrong."""
        if self._last is not None:
            wait([self._last], seconds)

    def close(self) -> None:
        self._pool.shutdown()
        self.wait()
