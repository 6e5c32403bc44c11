"""A stream on which nothing comes: after a while its clock goes on by itself, to the wall clock minus the watermark.

    so long no batch ──> what is held, or waits, up to there? ──> Database.advance ──> its outcomes to their files

So a deadline passes, and what a watermark holds runs, although no event comes that would say what time it is. It is a
version of its own, logged as such: a replay asks no clock. It never runs beside a batch, and makes no version where
nothing would run. How long is to be longer than Spark needs from batch to batch: what comes behind it may be late.
"""

from __future__ import annotations

import datetime
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.declare.limits import EPOCH, MICROSECOND, TIMES, microseconds
from penstock.execute.request import wall_clock


class Idle:
    """advance: moves the clock to a time, if anything runs by then. after: microseconds; delay: the watermark."""

    def __init__(
        self,
        advance: Callable[[datetime.datetime], None],
        after: int,
        delay: int,
        *,
        wall: Callable[[], datetime.datetime] = wall_clock,
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        self._advance, self._after_s, self._delay = advance, after / 10**6, delay
        self._wall, self._elapsed = wall, elapsed
        self._busy = threading.Lock()
        self._ended = threading.Event()
        self._since = elapsed()  # the end of the last batch, or of the last advance
        self._failed: BaseException | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="penstock-idle", daemon=True)
        self._thread.start()

    @contextmanager
    def batch(self) -> Iterator[None]:
        """While a batch runs, the stream is not idle. Raises what went wrong since the last one."""
        with self._busy:
            self._raise_failure()
            yield
            self._since = self._elapsed()

    def look(self) -> None:
        """Move the clock, if it is time to."""
        with self._busy:
            if self._ended.is_set() or self._elapsed() - self._since < self._after_s:
                return
            to = microseconds(self._wall()) - self._delay
            if to >= TIMES[0]:
                self._advance(EPOCH + to * MICROSECOND)
            self._since = self._elapsed()

    def close(self) -> None:
        """Ends it; raises what went wrong and nobody has been told."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        self._raise_failure()

    def _run(self) -> None:
        while not self._ended.wait(max(0.01, self._since + self._after_s - self._elapsed())):
            try:
                self.look()
            except BaseException as error:
                # The next batch raises it, but on an idle stream there may be none for long, and no timer runs.
                logging.getLogger("penstock").exception("the clock of an idle stream stands still: it failed to go on")
                self._failed = error
                return

    def _raise_failure(self) -> None:
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed
