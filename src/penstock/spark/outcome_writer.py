"""Outcomes written after their batch has committed: while the stream plans the next one, this one's go to their file.

One at a time. Who runs batches waits before the next commit, so that a crash leaves the outcomes of the newest
version to be written again, and no others. A failure stays: whoever waits is told, however often.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait

from penstock.spark.threads import worker


class OutcomeWriter:
    def __init__(self) -> None:
        self._pool = worker("penstock-outcomes")
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
