"""The other side: `app.connect(state)`, in any process of this machine that may read the state directory.

Connections are kept and used again, one for each call that is under way: threads that call at the same time do not wait
for each other here, and share commits there.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
from typing import Any

from penstock.declare.model import Program
from penstock.errors import InputError, StateError
from penstock.execute import intake
from penstock.serve.address import refuse_foreign_folder, socket_path
from penstock.serve.messages import BrokenMessage, Message, receive, send

_ABSENT = (errno.ENOENT, errno.ECONNREFUSED, errno.ENOTSOCK, errno.ENOTDIR)


class Connection:
    """Calls to the writer of a state directory. Any thread may call."""

    def __init__(self, program: Program, state: str | os.PathLike[str]) -> None:
        self._program, self._state = program, os.fspath(state)
        self._mutex = threading.Lock()
        self._idle: list[socket.socket] = []
        self._closed = False
        self._process = os.getpid()
        self._idle.append(self._connect())

    def call(self, event: object) -> dict[str, Any]:
        """Run one event now, in the writer's process; its outcome, as `Database.call` gives it.

        Where the writer goes away before it has answered, the error's `committed` is None: whether the call has run is
        not known. Called again with the same id, it runs once.

        Args:
            event: `Look(seat="A1")`: of any type that a transaction takes; one with a `ps.order()` needs no ts.
        """
        taken = intake.called(self._program, event)
        connection = self._take()
        kept = False
        try:
            message = self._exchange(connection, taken.event.name, taken.table)
            kept = True
        finally:
            if not kept:
                connection.close()
        self._give_back(connection)
        return self._result(message)

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            several, self._idle = self._idle, []
        for one in several:
            one.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _exchange(self, connection: socket.socket, event: str, row: Any) -> Message:
        try:
            send(connection, {"app": self._program.name, "event": event}, row)
        except OSError as error:
            raise StateError(f"{self._gone()}, and the call has not run; call again when there is one") from error
        try:
            message = receive(connection)
        except (OSError, BrokenMessage) as error:
            raise self._unknown() from error
        if message is None:
            raise self._unknown()
        return message

    def _result(self, message: Message) -> dict[str, Any]:
        header = message.header
        if "error" not in header and message.row is not None and message.row.num_rows == 1:
            outcome: dict[str, Any] = message.row.to_pylist()[0]
            return outcome
        error = InputError if header.get("error") == "InputError" else StateError
        told = error(str(header.get("says", "the writer's answer says nothing")))
        told.committed, told.version = header.get("committed"), header.get("version")
        raise told

    def _take(self) -> socket.socket:
        while True:
            with self._mutex:
                if self._process != os.getpid():  # a forked child: these are its parent's
                    self._process, several, self._idle = os.getpid(), self._idle, []
                    for one in several:
                        one.close()
                if self._closed:
                    raise StateError(f"the connection to state directory {self._state} is closed; connect again")
                found = self._idle.pop() if self._idle else None
            if found is None:
                return self._connect()
            if _is_open(found):
                return found
            found.close()

    def _give_back(self, connection: socket.socket) -> None:
        with self._mutex:
            if not self._closed:
                self._idle.append(connection)
                return
        connection.close()

    def _connect(self) -> socket.socket:
        path = socket_path(self._state)
        refuse_foreign_folder(path)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(os.fspath(path))
        except OSError as error:
            connection.close()
            if error.errno in _ABSENT:
                raise StateError(
                    f"nobody serves calls of state directory {self._state}: open it, or start its query, with "
                    "calls=True, on this machine"
                ) from error
            raise StateError(f"{path}: {error.strerror}; calls are for the user whose state it is") from error
        return connection

    def _gone(self) -> str:
        return f"the writer of state directory {self._state} has gone away"

    def _unknown(self) -> StateError:
        error = StateError(
            f"{self._gone()} before it answered: whether the call has run is not known; call again with "
            "the same id, and it runs once"
        )
        error.committed = None
        return error


def _is_open(connection: socket.socket) -> bool:
    """Whether the other side has not closed it since it was used last."""
    connection.setblocking(False)
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        connection.setblocking(True)
