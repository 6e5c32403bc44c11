"""The query that `start` gives back: pyspark's own, which also closes its database when it ends.

Whoever waits for the query, or stops it, waits for its last outcomes too, and finds the directory closed. A listener of
Spark's could close it, but nobody would wait for that, so three methods are overridden, in a subclass of the query's
own class: the object stays a StreamingQuery.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from penstock.serve.http.child import Served
from penstock.spark import databases


def closing_query(query: Any, path: str, drain: Callable[[], None] | None, served: Served | None = None) -> Any:
    """The same query. drain: runs what is held, once all there was has been read. served: its server."""
    own = type(query)
    closing = type(own.__name__, (_Closing, own), {"__module__": own.__module__, "__doc__": own.__doc__})
    made: Any = object.__new__(closing)
    made.__dict__.update(query.__dict__)
    made._end = _End(query, path, drain, served)
    made.served = served
    return made


class _End:
    """What happens when a query ends: drain, close the database, end the server."""

    def __init__(self, query: Any, path: str, drain: Callable[[], None] | None, served: Served | None) -> None:
        self._query, self.path, self._drain, self._served = query, path, drain, served
        self._failed: BaseException | None = None
        self.stopped = threading.Event()
        self._thread = threading.Thread(target=self._close, name="penstock-close", daemon=True)
        self._thread.start()

    def _close(self) -> None:
        ended_well = True
        try:
            self._query.awaitTermination()
        except Exception:  # Whoever awaits the query is told; here it only means that there is more to come.
            ended_well = False
        try:
            with databases.released(self.path):
                if self._drain is not None and ended_well and not self.stopped.is_set():
                    # The query has ended, but is not done: nobody else is to have the directory yet.
                    databases.attach(self.path, None)
                    self._drain()
        except BaseException as error:  # Who awaits the query is told of this too.
            if ended_well:
                self._failed = error
        finally:
            if self._served is not None:
                self._served.stop()

    def wait(self) -> None:
        self._thread.join()

    def wait_and_tell(self) -> None:
        self.wait()
        if self._failed is not None:
            raise self._failed


class _Closing:
    """Before pyspark's own class in the order of methods."""

    _end: _End

    def awaitTermination(self, timeout: int | None = None) -> bool | None:
        wait: Any = super().awaitTermination  # type: ignore[misc]
        try:
            ended: bool | None = wait(timeout) if timeout is not None else wait()
        except Exception:
            self._end.wait()
            raise
        if ended is not False:
            self._end.wait_and_tell()
        return ended

    def stop(self) -> None:
        self._end.stopped.set()
        super().stop()  # type: ignore[misc]
        self._end.wait_and_tell()

    def processAllAvailable(self) -> None:
        super().processAllAvailable()  # type: ignore[misc]
        found = databases.found(self._end.path)
        if found is not None:
            found.flush()
            found.outcomes.wait()
