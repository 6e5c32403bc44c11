"""One connection, from the writer's side: a thread reads what comes, and where messages have numbers another one sends
the answers, as they come. It reads no further while too much of what it has read waits for its answer to be taken.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Protocol

import pyarrow as pa

from penstock.errors import InputError, PenstockError, StateError
from penstock.serve.messages import BrokenMessage, Message, encode, receive, refusal, send

# Calls that were read, and whose answers the client has not taken.
_UNDER_WAY_MAX = 1 << 17


class Part(Protocol):
    """Calls that were answered together: call.py."""

    size: int
    refused: dict[int, PenstockError]
    waiting: list[int]
    failure: BaseException | None

    def outcomes(self) -> pa.Table | None: ...

    def result(self) -> dict[str, Any]: ...


class Desk(Protocol):
    """Who answers."""

    def run(self, header: dict[str, Any], rows: pa.Table) -> Part:
        """One event, at once."""

    def submit(self, header: dict[str, Any], rows: pa.Table, told: Callable[[list[Any]], None]) -> None: ...

    def ask(self, header: dict[str, Any]) -> Message: ...


class Line:
    def __init__(self, connection: socket.socket, desk: Desk) -> None:
        self._connection, self._desk = connection, desk
        self._answers: SimpleQueue[tuple[int, int, list[Part] | BaseException] | None] = SimpleQueue()
        self._sender: threading.Thread | None = None
        self._changed = threading.Condition()
        self._under_way = 0

    def serve(self) -> None:
        """Until the client is gone, or nothing more is to be read."""
        try:
            with suppress(OSError):  # The client is gone: whoever it was, there is nobody to be told.
                while self._answer():
                    pass
        finally:
            if self._sender is not None:
                self._wait_until(0)
                self._answers.put(None)
                self._sender.join()

    def _answer(self) -> bool:
        """Whether more may come."""
        try:
            message = receive(self._connection)
        except BrokenMessage as error:
            self._wait_until(0)
            broken = InputError(f"what has come is not a call: {error}; nothing of it was run")
            send(self._connection, refusal(broken))
            return False
        if message is None:
            return False
        number = message.header.get("number")
        if type(number) is int and "asks" not in message.header:
            self._begin(number, message)
        else:
            self._wait_until(0)  # One thread sends.
            self._connection.sendall(self._answered(message))
        return True

    def _answered(self, message: Message) -> bytes:
        try:
            if "asks" in message.header:
                return encode(*self._desk.ask(message.header))
            return _told(self._desk.run(message.header, _rows(message)))
        except Exception as error:
            return encode(refusal(error))

    # -- messages with numbers ----------------------------------------------------------------

    def _begin(self, number: int, message: Message) -> None:
        if self._sender is None:
            self._sender = threading.Thread(target=self._send, name="penstock-call-answers", daemon=True)
            self._sender.start()
        size = 1 if message.rows is None else max(1, message.rows.num_rows)
        self._wait_until(_UNDER_WAY_MAX)
        with self._changed:
            self._under_way += size

        def told(parts: list[Part]) -> None:
            self._answers.put((number, size, parts))

        try:
            self._desk.submit(message.header, _rows(message), told)
        except Exception as error:
            self._answers.put((number, size, error))

    def _wait_until(self, most: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._under_way <= most)

    def _send(self) -> None:
        while (one := self._answers.get()) is not None:
            number, size, parts = one
            with suppress(OSError):
                self._connection.sendall(_numbered(number, parts))
            with self._changed:
                self._under_way -= size
                self._changed.notify_all()


def _rows(message: Message) -> pa.Table:
    if message.rows is None or not isinstance(message.header.get("event"), str):
        raise InputError("what has come is not a call: it names no event, or brings none")
    return message.rows


def _told(call: Part) -> bytes:
    """Of one event."""
    if call.failure is not None or call.refused:
        call.result()  # raises
    outcome = call.outcomes()
    assert outcome is not None
    return _encoded({}, outcome)


def _numbered(number: int, parts: list[Part] | BaseException) -> bytes:
    failure = parts if isinstance(parts, BaseException) else next((p.failure for p in parts if p.failure), None)
    if failure is not None or isinstance(parts, BaseException):
        assert failure is not None
        return encode({"number": number, **refusal(failure)})
    refused, waiting, outcomes, at = dict[str, Any](), list[int](), list[pa.Table](), 0
    for part in parts:
        refused |= {str(at + row): refusal(error) for row, error in part.refused.items()}
        waiting += [at + row for row in part.waiting]
        found = part.outcomes()
        outcomes += [] if found is None else [found]
        at += part.size
    header: dict[str, Any] = {"number": number}
    header |= {"refused": refused} if refused else {}
    header |= {"waiting": sorted(waiting)} if waiting else {}
    return _encoded(header, joined(outcomes) if outcomes else None)


def joined(outcomes: list[pa.Table]) -> pa.Table:
    """One below another; by their values, where the app has changed between them."""
    if len(outcomes) == 1:
        return outcomes[0]
    if all(table.schema.equals(outcomes[0].schema) for table in outcomes):
        return pa.concat_tables(outcomes).unify_dictionaries().combine_chunks()
    return pa.Table.from_pylist([row for table in outcomes for row in table.to_pylist()])


def _encoded(header: dict[str, Any], outcomes: pa.Table | None) -> bytes:
    try:
        return encode(header, outcomes)
    except InputError:
        assert outcomes is not None
        version = int(outcomes.column("version")[-1].as_py())
        untold = StateError(
            f"the call has run, but its outcome is larger than an answer may be; the outcomes of version {version} "
            "have it"
        )
        untold.committed, untold.version = True, version
        return encode({**header, **refusal(untold)})
