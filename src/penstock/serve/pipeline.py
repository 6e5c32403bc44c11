"""Calls that do not wait for each other: many messages under way on one connection, each answered when its version is
durable.

    submit ──> socket ──> the writer (server.py)
    future <── a thread that reads the answers

Who submits waits only where so many calls are under way that the writer would refuse more.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.errors import PenstockError, StateError
from penstock.serve.address import connected
from penstock.serve.messages import BrokenMessage, Message, encode, receive, refused

# Calls under way: the writer lets twice as many wait, for all who call.
WINDOW = 1 << 15


@dataclass(frozen=True, slots=True)
class Reply:
    """What became of calls that were made together."""

    outcomes: pa.Table | None  # of those that have run, in their order
    refused: dict[int, PenstockError] = field(default_factory=dict)  # by their places
    waiting: tuple[int, ...] = ()  # whose time has not come

    def rows(self) -> list[dict[str, Any]]:
        """The outcomes of those that have run."""
        rows: list[dict[str, Any]] = [] if self.outcomes is None else self.outcomes.to_pylist()
        return rows

    def each(self, size: int) -> Iterator[dict[str, Any] | PenstockError | None]:
        """Of each call its outcome, why it was refused, or None where it waits."""
        rows = iter(self.rows())
        for place in range(size):
            if place in self.refused:
                yield self.refused[place]
            else:
                yield None if place in self.waiting else next(rows)


class Pipeline:
    """A connection to the writer of a state directory. Any thread may submit."""

    def __init__(self, app: str, state: str | os.PathLike[str], window: int = WINDOW) -> None:
        self._app, self._state, self._window = app, Path(state).absolute(), window
        self._connection = connected(self._state)
        self._numbers = count()
        self._mutex = threading.Condition()
        self._sending = threading.Lock()
        self._under_way: dict[int, tuple[Future[Reply], int]] = {}
        self._calls = 0  # under way
        self._ended: PenstockError | None = None
        self._reader = threading.Thread(target=self._read, name="penstock-pipeline", daemon=True)
        self._reader.start()

    @property
    def is_open(self) -> bool:
        return self._ended is None

    @property
    def under_way(self) -> int:
        return self._calls

    def submit(
        self, event: str, rows: pa.Table, *, strict: bool = True, since: int | None = None, waits: bool = True
    ) -> Future[Reply]:
        """Events of one type. The reply's error has `committed`: None, where nobody knows whether they have run."""
        header = {"app": self._app, "event": event, "strict": strict, "since": since, "waits": waits}
        future: Future[Reply] = Future()
        future.set_running_or_notify_cancel()  # it cannot be taken back
        size, number = rows.num_rows, next(self._numbers)
        data = encode({"number": number, **header}, rows)
        with self._mutex:
            self._mutex.wait_for(lambda: self._ended or not self._calls or self._calls + size <= self._window)
            if self._ended is not None:
                raise _again(self._ended, committed=False)
            self._under_way[number] = future, size
            self._calls += size
        try:
            with self._sending:
                self._connection.sendall(data)
        except OSError:
            self._end(self._gone())
        return future

    def close(self) -> None:
        """Those that are under way may have run."""
        self._end(self._gone("this connection was closed"))
        if self._reader is not threading.current_thread():
            self._reader.join()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> None:
        with suppress(OSError, BrokenMessage):
            while (message := receive(self._connection)) is not None:
                number = message.header.get("number")
                with self._mutex:
                    future, size = self._under_way.pop(number, (None, 0)) if type(number) is int else (None, 0)
                    self._calls -= size
                    self._mutex.notify_all()
                if future is None:  # It says why it goes, if it says anything.
                    break
                _resolve(future, message)
        self._end(self._gone())
        self._connection.close()

    def _end(self, error: PenstockError) -> None:
        with self._mutex:
            self._ended = self._ended or error
            left, self._under_way, self._calls = self._under_way, {}, 0
            self._mutex.notify_all()
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        for future, _ in left.values():
            future.set_exception(_again(error, committed=None))

    def _gone(self, how: str = "") -> PenstockError:
        how = how or f"the writer of state directory {self._state} has gone away"
        return StateError(
            f"{how} before it answered: whether the call has run is not known; call again with the same id, and it "
            "runs once"
        )


def _resolve(future: Future[Reply], message: Message) -> None:
    header = message.header
    if "error" in header:
        future.set_exception(refused(header))
        return
    told = {int(place): refused(one) for place, one in header.get("refused", {}).items()}
    future.set_result(Reply(message.rows, told, tuple(header.get("waiting", ()))))


def _again(error: PenstockError, *, committed: bool | None) -> PenstockError:
    """Each who waits gets an error of its own."""
    told = type(error)(str(error))
    told.committed = committed
    return told
