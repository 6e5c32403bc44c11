"""Errors a user may catch.

    PenstockError
    ├── DeclarationError (ValueError)   an app that cannot be compiled; raised where it is declared
    ├── InputError (ValueError)         a batch that cannot be taken; nothing of it is applied
    └── StateError (RuntimeError)       a state directory that is locked, damaged or not this app's

An abort is not an error: it is a row of the outcomes. `Aborted` only carries one out of a
user's function while that function runs as plain Python.
"""


class PenstockError(Exception):
    """The root of everything Penstock raises on purpose."""


class DeclarationError(ValueError, PenstockError):
    """An app that cannot be compiled."""


class InputError(ValueError, PenstockError):
    """A batch or load that cannot be taken."""


class StateError(RuntimeError, PenstockError):
    """A state directory or database that cannot be used."""


class Aborted(Exception):
    """Leaves a transaction that runs as plain Python; never reaches the caller of `run`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
