"""Requests to a server: connections that are kept and used again, and answers, or the errors that they say."""

from __future__ import annotations

import json
import select
import socket
import ssl
import threading
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, NoReturn
from urllib.parse import urlencode, urlsplit

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

_KINDS: dict[str, type[PenstockError]] = {
    "conflict": ConflictError,
    "not_retained": NotRetainedError,
    "no_version": FutureVersionError,
    "not_yet": NotYetError,
    "queue_full": QueueFullError,
}
_KEPT = 64


class UnreachableError(StateError):
    """No answer came. `committed` is False where the server cannot have seen the request."""


class Web:
    def __init__(self, url: str, token: str | None, tls: ssl.SSLContext | None, timeout: float) -> None:
        found = urlsplit(url)
        if found.scheme not in ("http", "https") or not found.hostname or found.path not in ("", "/") or found.query:
            raise InputError(f"{url!r} is no address of a server; give one such as http://127.0.0.1:7400")
        self.url, self._host, self._tls = url.rstrip("/"), found.hostname, None
        self.is_local = found.hostname in ("localhost", "127.0.0.1", "::1")
        self.port = found.port or (443 if found.scheme == "https" else 80)
        if found.scheme == "https":
            self._tls = tls or ssl.create_default_context()
        self.timeout = timeout
        self.headers = {"Accept": "application/json"}
        if token is not None:
            self.headers["Authorization"] = f"Bearer {token}"
        self._mutex = threading.Lock()
        self._idle: list[HTTPConnection] = []
        self._closed = False

    def ask(
        self,
        path: str,
        query: dict[str, Any] | None = None,
        body: Any = None,
        *,
        again: bool = True,
        timeout: float | None = None,
    ) -> tuple[int, dict[str, Any]]:
        """The status, and what the answer says; an error where it says one. again: whether the request may be sent
        twice, where the connection was gone."""
        given = {name: value for name, value in (query or {}).items() if value is not None}
        target = f"{path}?{urlencode(given)}" if given else path
        content = None if body is None else dumps(body)
        while True:
            connection, is_used = self._take()
            try:
                connection.timeout = timeout or self.timeout
                if connection.sock is not None:
                    connection.sock.settimeout(connection.timeout)
                response = self._sent(connection, target, content)
                answer = response.read()
            except (OSError, HTTPException) as error:
                refused = connection.sock is None and isinstance(error, OSError)  # it never got there
                connection.close()
                if is_used and again and not isinstance(error, TimeoutError):
                    continue
                self._unreachable(error, sent=not refused)
            except BaseException:
                connection.close()
                raise
            self._give_back(connection, response)
            return response.status, self._said(response.status, answer)

    def stream(self, path: str, query: dict[str, Any], last: int | None) -> tuple[HTTPConnection, HTTPResponse]:
        """A connection of its own, for what goes on."""
        given = {name: value for name, value in query.items() if value is not None}
        connection = self._connection()
        try:
            headers = {**self.headers, "Accept": "text/event-stream"}
            headers |= {} if last is None else {"Last-Event-ID": str(last)}
            connection.request("GET", f"{path}?{urlencode(given)}" if given else path, headers=headers)
            response = connection.getresponse()
            if response.status != 200:
                self._said(response.status, response.read())
        except (OSError, HTTPException) as error:
            connection.close()
            self._unreachable(error, sent=True)
        except BaseException:
            connection.close()
            raise
        return connection, response

    def close(self) -> None:
        with self._mutex:
            self._closed, several, self._idle = True, self._idle, []
        for one in several:
            one.close()

    # -- inside -----------------------------------------------------------------------------

    def _sent(self, connection: HTTPConnection, target: str, content: bytes | None) -> HTTPResponse:
        if content is None:
            connection.request("GET", target, headers=self.headers)
        else:
            connection.request("POST", target, content, {**self.headers, "Content-Type": "application/json"})
        return connection.getresponse()

    def _take(self) -> tuple[HTTPConnection, bool]:
        with self._mutex:
            if self._closed:
                raise StateError(f"the connection to {self.url} is closed; connect again")
            while self._idle:
                found = self._idle.pop()
                if _is_quiet(found):
                    return found, True
                found.close()
        return self._connection(), False

    def _connection(self) -> HTTPConnection:
        if self._tls is not None:
            return HTTPSConnection(self._host, self.port, timeout=self.timeout, context=self._tls)
        return HTTPConnection(self._host, self.port, timeout=self.timeout)

    def _give_back(self, connection: HTTPConnection, response: HTTPResponse) -> None:
        with self._mutex:
            if not self._closed and not response.will_close and len(self._idle) < _KEPT:
                self._idle.append(connection)
                return
        connection.close()

    def _said(self, status: int, answer: bytes) -> dict[str, Any]:
        try:
            told = json.loads(answer)
        except ValueError:
            told = None
        if not isinstance(told, dict):
            raise StateError(f"{self.url} has answered what is no JSON object, with status {status}: is it Penstock's?")
        if status >= 400 or ("error" in told and "version" not in told):
            raise error_of(told, status)
        return told

    def _unreachable(self, error: Exception, *, sent: bool) -> NoReturn:
        why = (
            "no answer came in time" if isinstance(error, TimeoutError | socket.timeout) else str(error) or repr(error)
        )
        told = UnreachableError(f"{self.url} does not answer: {why}")
        told.committed = None if sent else False
        raise told from error


def _is_quiet(connection: HTTPConnection) -> bool:
    """Whether nothing has come since its last answer: what comes is that the server closes it."""
    if connection.sock is None:
        return False
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return not poll.poll(0)


def error_of(told: dict[str, Any], status: int) -> PenstockError:
    """What a server has refused, as the error that it was there."""
    kind = str(told.get("error"))
    made = _KINDS.get(kind, InputError if 400 <= status < 500 else StateError)
    if kind in ("no_writer", "unknown", "busy", "state"):
        made = UnreachableError
    error = made(str(told.get("says", kind)))
    with suppress(AttributeError):
        error.kind = kind  # type: ignore[attr-defined]
    error.committed = told.get("committed", False)
    error.version = told.get("ran_in")
    return error
