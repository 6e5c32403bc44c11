"""Threads that run native code together. The caller is one of them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


class Team:
    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._size = 0

    def each(self, threads: int, work: Callable[[int], None]) -> None:
        """work(0) … work(threads - 1), all at the same time: they may wait for each other."""
        if threads > 1 and self._size < threads - 1:
            if self._pool is not None:
                self._pool.shutdown()
            self._pool, self._size = ThreadPoolExecutor(threads - 1, "penstock"), threads - 1
        others = [self._pool.submit(work, k) for k in range(1, threads)] if self._pool and threads > 1 else []
        work(0)
        for other in others:
            other.result()

    def split(self, threads: int, count: int, work: Callable[[int, int], None], least: int = 1024) -> None:
        """work(start, stop) over `count` things, a range a thread; few things are not worth a second thread."""
        threads = max(1, min(threads, count // least))
        bounds = [count * k // threads for k in range(threads + 1)]
        self.each(threads, lambda k: work(bounds[k], bounds[k + 1]))

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool, self._size = None, 0
