"""Who may touch a database: one writer at a time; readers, and calls, between two batches.

A reader waits at the turnstile, and the writer has to pass it before each batch: so a writer that never
rests still lets readers in, and a reader waits for one batch at most. Calls come in as readers do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from penstock.commit.disk import Disk
from penstock.errors import StateError


class Gate:
    def __init__(self, app: str, disk: Disk | None = None) -> None:
        self._app, disk = app, disk or Disk()
        self._turnstile, self._lock = disk.mutex(), disk.mutex()
        self._whole = _Whole(self)
        self.closed = False
        self._failure = ""

    @contextmanager
    def writing(self) -> Iterator[None]:
        # Whoever is interrupted here drops a generator, which lets go of what it holds; an object would not.
        with self._turnstile:
            pass
        with self._lock:
            self._refuse_unusable()
            yield

    @contextmanager
    def reading(self) -> Iterator[None]:
        with self._turnstile, self._lock:
            self._refuse_unusable()
            yield

    def calling(self) -> AbstractContextManager[None]:
        """They write, but must not wait until a stream rests."""
        return self.reading()

    @contextmanager
    def closing(self) -> Iterator[bool]:
        """Gives whether there is anything left to close."""
        with self._turnstile, self._lock:
            was_open, self.closed = not self.closed, True
            yield was_open

    def whole(self) -> _Whole:
        """What fails in here leaves memory and disk apart: nothing more may run. Until it has come
        through it counts as failed, since no failure can be relied on to get as far as to say so."""
        return self._whole

    def begins(self) -> None:
        self._failure = "it was interrupted"

    def succeeds(self) -> None:
        self._failure = ""

    def fails(self, error: BaseException) -> None:
        self._failure = f"{type(error).__name__}: {error}"  # not the error itself, which holds all it has seen

    @property
    def broken(self) -> bool:
        return self._failure != ""

    def _refuse_unusable(self) -> None:
        if self.closed:
            raise StateError(f"the database of app '{self._app}' is closed; open it again")
        if self._failure:
            # Whoever is refused may not be who saw it fail: a batch may have run ahead, in another thread.
            raise StateError(
                f"a batch of app '{self._app}' failed half-way ({self._failure}); close the database and open it again"
            )


class _Whole:
    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def __enter__(self) -> None:
        self._gate.begins()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self._gate.succeeds()
        else:
            self._gate.fails(error)
