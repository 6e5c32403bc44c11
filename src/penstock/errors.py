"""Errors a user may catch.

    PenstockError
    ├── DeclarationError (ValueError)   an app that cannot be compiled; raised where it is declared
    ├── InputError (ValueError)         a batch that cannot be taken; nothing of it is applied
    │   └── ConflictError               an id that was called before, with other fields
    └── StateError (RuntimeError)       a state directory that is locked, damaged or not this app's
        ├── NotRetainedError            what was asked for has been pruned
        ├── NotYetError                 a version that did not come in time
        ├── FutureVersionError          a version that has not been made
        └── QueueFullError              more calls wait than may: this one has not run, and may be made again

A batch may be durable although `run` raised: a write behind its commit may fail, or the caller be interrupted. Then the
error has `committed` and `version`: True, and the version that the batch made; or None where only opening the directory
again can tell, by whether `db.version` has come to that version. Without them nothing of the batch was applied. A load
makes no version: its error's `version` is None, and only whether its rows are there tells.

An abort is not an error: it is a row of the outcomes. `Aborted` only carries one out of a
user's function while that function runs as plain Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class PenstockError(Exception):
    """The root of everything Penstock raises on purpose."""

    committed: bool | None = False
    version: int | None = None


class DeclarationError(ValueError, PenstockError):
    """An app that cannot be compiled."""


class InputError(ValueError, PenstockError):
    """A batch or load that cannot be taken."""


class ConflictError(InputError):
    """An id that was called before is called with other fields: it is another event, and needs an id of its own."""


class StateError(RuntimeError, PenstockError):
    """A state directory or database that cannot be used."""


class NotRetainedError(StateError):
    """What has been pruned was asked for; open the database with a larger retain to keep more."""


class NotYetError(StateError):
    """A version that a reader waits for did not come in time; ask again."""


class FutureVersionError(StateError):
    """A version was asked for that has not been made."""


class QueueFullError(StateError):
    """More calls wait for their turn than may. This one has not run; made again a little later, it may."""


@contextmanager
def committing(version: int, durable: bool | Callable[[], bool] | None, what: str = "batch") -> Iterator[None]:
    """What is raised in here is raised although the batch that makes this version is durable, or may be (None); a
    function is asked then whether it is."""
    try:
        yield
    except BaseException as error:
        durable = durable() if callable(durable) else durable
        if durable is not False:
            tell_committed(error, version, durable, what)
        raise


def tell_committed(error: BaseException, version: int, durable: bool | None, what: str = "batch") -> None:
    """The error says what became of the batch, unless whoever was nearer has said so."""
    if "committed" in vars(error):
        return
    makes = what != "load"
    error.committed, error.version = durable, version if makes else None  # type: ignore[attr-defined]
    it = f"batch of version {version}" if makes else "load"
    look = "look" if makes else "look whether its rows are there"
    whether = "is committed all the same" if durable else f"may be committed: open the directory again, and {look}"
    error.add_note(f"the {it} {whether}")


class Aborted(Exception):
    """Leaves a transaction that runs as plain Python; never reaches the caller of `run`."""

    def __init__(self, reason: str, fields: dict[str, Any] | None = None) -> None:
        """fields: what the outcome's columns are given besides."""
        super().__init__(reason)
        self.reason, self.fields = reason, fields or {}
