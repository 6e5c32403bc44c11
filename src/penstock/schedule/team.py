"""Threads that run native code together. The caller is one of them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait


class Team:
    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._size = 0

    def each(self, threads: int, work: Callable[[int], None], release: Callable[[], None] | None = None) -> None:
        """work(0) … work(threads - 1), all at the same time: they may wait for each other.

        release: called where one fails, so that those who wait for it end too. When they have, the failure is raised.
        """
        if threads > 1 and self._size < threads - 1:
            if self._pool is not None:
                self._pool.shutdown()
            self._pool, self._size = ThreadPoolExecutor(threads - 1, "penstock"), threads - 1

        def one(k: int) -> None:
            try:
                work(k)
            except BaseException:
                if release is not None:
                    release()
                raise

        others: list[Future[None]] = []
        try:
            for k in range(1, threads):
                assert self._pool is not None
                others.append(self._pool.submit(one, k))
            work(0)
        except BaseException:  # of this thread, or there was no other to be had
            if release is not None:
                release()
                wait(others)
            raise
        for failure in [other.exception() for other in others]:
            if failure is not None:
                raise failure

    def split(self, threads: int, count: int, work: Callable[[int, int], None], least: int) -> None:
        """work(start, stop) over `count` things, a range a thread, but for fewer things than `least` no thread more: it
        takes 60 us to get one going, and they get going one after the other."""
        threads = max(1, min(threads, count // least))
        bounds = [count * k // threads for k in range(threads + 1)]
        self.each(threads, lambda k: work(bounds[k], bounds[k + 1]))

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool, self._size = None, 0
