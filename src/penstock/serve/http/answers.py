"""What goes back to a client: an Answer, or a Refusal, which names its kind and says what to do.

    200  {"version": 7, …}
    4xx  {"error": "no_record", "says": "table 'Account' has no record …", "version": 7}

No answer ever holds a traceback: what nobody foresaw is logged here, and the client is told that it was.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from penstock.errors import (
    ConflictError,
    FutureVersionError,
    InputError,
    NotRetainedError,
    NotYetError,
    PenstockError,
    QueueFullError,
    StateError,
)
from penstock.serve.http.values import dumps

JSON = b"application/json"
Header = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Answer:
    body: bytes
    version: int | None = None
    status: int = 200
    type: bytes = JSON
    headers: tuple[Header, ...] = ()


@dataclass(frozen=True, slots=True)
class Stream:
    """An answer that goes on: parts as they come, each sent when the client has taken the one before."""

    parts: AsyncIterator[bytes]
    version: int | None = None
    type: bytes = b"text/event-stream"


class Refusal(Exception):
    """What a client is told instead of an answer."""

    def __init__(
        self,
        status: int,
        error: str,
        says: str,
        *,
        version: int | None = None,
        headers: tuple[Header, ...] = (),
        **more: Any,
    ) -> None:
        super().__init__(says)
        self.status, self.error, self.says, self.version, self.headers = status, error, says, version, headers
        self.more = more  # further names of the answer

    def answer(self) -> Answer:
        told: dict[str, Any] = {"error": self.error, "says": self.says, **self.more}
        if self.version is not None:
            told["version"] = self.version
        headers = (*self.headers, (b"retry-after", b"1")) if self.status in (429, 503) else self.headers
        return Answer(dumps(told), self.version, self.status, headers=headers)


def refusal_of(error: PenstockError) -> Refusal:
    """What Penstock says, in the words of HTTP."""
    says = str(error)
    for kind, status, name in _KINDS:
        if isinstance(error, kind):
            return Refusal(status, name, says)
    return Refusal(503, "state", says)


_KINDS: tuple[tuple[type[PenstockError], int, str], ...] = (
    (NotRetainedError, 410, "not_retained"),
    (FutureVersionError, 404, "no_version"),
    (NotYetError, 503, "not_yet"),
    (QueueFullError, 429, "queue_full"),
    (ConflictError, 409, "conflict"),
    (InputError, 400, "bad_request"),
    (StateError, 503, "state"),
)
