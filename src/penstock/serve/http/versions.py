"""Which version the replica is at, for those who wait: one thread waits for the next one, and wakes them all.

Requests wait on the event loop, not each in a thread of its own: thousands may wait for a version at once.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import math
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.errors import NotYetError, PenstockError
from penstock.serve.http.answers import Refusal

if TYPE_CHECKING:
    from penstock.replica.lag import Lag
    from penstock.replica.reader import Reader

_LOOK_S = 0.5  # how long the thread waits at a time: it ends so soon after the server
_AGAIN_S = 0.2


def behind_s(lag: Lag) -> float:
    """How old what the replica has is, at most, compared with what is durable: 0 where that is all there is."""
    if lag.newest is None or lag.newest <= lag.version:
        return 0.0
    return math.inf if lag.committed_at is None else max(time.time() - lag.committed_at, 0.0)


class Versions:
    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="penstock-versions", daemon=True)
        self.broken: str | None = None  # why the replica does not follow, if it does not

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()

    async def wait(self, least: int, timeout: float) -> None:
        """Until the replica is at this version; a Refusal where it does not come in time."""
        if self._reader.version >= least:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (least, next(self._order), future))
        self._wake(self._reader.version)  # It may have come since.
        try:
            async with asyncio.timeout(timeout):
                await future
        except TimeoutError:
            now = self._reader.version
            raise Refusal(
                503,
                "not_yet",
                f"version {least} has not come within {timeout * 1000:.0f} ms; the newest here is {now}"
                + (f"; the replica stands still: {self.broken}" if self.broken else ""),
                version=now,
            ) from None

    async def fresh(self, age: float, timeout: float) -> None:
        """Until the replica is at most so many seconds behind what is durable."""
        lag = await asyncio.to_thread(self._reader.lag)
        if behind_s(lag) > age and lag.newest is not None:
            await self.wait(lag.newest, timeout)

    def _watch(self) -> None:
        assert self._loop is not None
        told = self._reader.version
        while not self._closed.is_set():
            try:
                told = self._reader.wait(told + 1, timeout=_LOOK_S)
                self.broken = None
            except NotYetError:
                self.broken = None
                continue
            except PenstockError as error:
                if self.broken is None:
                    logging.getLogger("penstock").error("the replica stands still: %s", error)
                self.broken = str(error)
                time.sleep(_AGAIN_S)
                continue
            with suppress(RuntimeError):  # The loop is closed: the server has ended.
                self._loop.call_soon_threadsafe(self._wake, told)

    def _wake(self, now: int) -> None:
        while self._waiting and self._waiting[0][0] <= now:
            future = heapq.heappop(self._waiting)[2]
            if not future.done():
                future.set_result(None)
        # Those who have gone are not kept for a version that may never come.
        if len(self._waiting) > 64 and sum(one[2].done() for one in self._waiting) * 2 > len(self._waiting):
            self._waiting = [one for one in self._waiting if not one[2].done()]
            heapq.heapify(self._waiting)
