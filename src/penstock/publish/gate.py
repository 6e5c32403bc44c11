"""Who may touch a database: one writer at a time, readers between two batches.

A reader waits at the turnstile, and the writer has to pass it before each batch: so a writer that never
rests still lets readers in, and a reader waits for one batch at most.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.errors import StateError


class Gate:
    def __init__(self, app: str) -> None:
        self._app = app
        self._turnstile, self._lock = threading.Lock(), threading.Lock()
        self.closed = False
        self._failure = ""

    @contextmanager
    def writing(self) -> Iterator[None]:
        with self._turnstile:
            self._lock.acquire()
        try:
            self._refuse_unusable()
            yield
        finally:
            self._lock.release()

    @contextmanager
    def reading(self) -> Iterator[None]:
        with self._turnstile, self._lock:
            self._refuse_unusable()
            yield

    @contextmanager
    def closing(self) -> Iterator[bool]:
        """Gives whether there is anything left to close."""
        with self._turnstile, self._lock:
            was_open, self.closed = not self.closed, True
            yield was_open

    @contextmanager
    def whole(self) -> Iterator[None]:
        """What fails in here leaves memory and disk apart: nothing more may run."""
        try:
            yield
        except BaseException as error:
            self._failure = f"{type(error).__name__}: {error}"  # not the error itself, which holds all it has seen
            raise

    @property
    def broken(self) -> bool:
        return bool(self._failure)

    def _refuse_unusable(self) -> None:
        if self.closed:
            raise StateError(f"the database of app '{self._app}' is closed; open it again")
        if self._failure:
            # Whoever is refused may not be who saw it fail: a batch may have run ahead, in another thread.
            raise StateError(
                f"a batch of app '{self._app}' failed half-way ({self._failure}); close the database and open it again"
            )
