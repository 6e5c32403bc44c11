"""The writer's side: it listens, and hands each call on to the database, in a thread for each connection.

Threads wait for their calls together, so calls of many connections share commits as those of many threads do. A client
that goes away has made its call all the same, if all of it had come; half a message is no call.
"""

from __future__ import annotations

import os
import selectors
import socket
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.declare.model import Program
from penstock.errors import InputError, PenstockError, StateError
from penstock.serve.address import make_folder, socket_path
from penstock.serve.messages import BrokenMessage, Message, receive, send

_WAITING_MAX = 128  # connections that nobody has taken yet
_LEAVES_S = 5.0


class Server:
    def __init__(self, program: Program, call: Callable[[Any], dict[str, Any]], state: Path) -> None:
        """call: runs an event, given as its name and a table of one row, and gives its outcome."""
        self._program, self._call = program, call
        self._schema = program.outcomes()
        self.path = socket_path(state)
        self._listener = _listen(self.path)
        self._inode = self.path.lstat().st_ino
        self._waker, self._wakes = socket.socketpair()
        self._mutex = threading.Lock()
        self._open: dict[socket.socket, threading.Thread] = {}
        self._closed = False
        _forget_in_children(self)
        self._thread = threading.Thread(target=self._accept, name="penstock-calls", daemon=True)
        try:
            self._thread.start()
        except BaseException:
            self._shut()
            raise

    def stop(self) -> None:
        """No more calls come; those that have come are still answered. While the directory is still this writer's: the
        next one listens at the same place."""
        with self._mutex:
            self._closed = True
            self._waker.send(b".")
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RD)
        self._thread.join()
        self._shut()

    def close(self) -> None:
        """After `stop`, and once whoever runs the calls has answered them all."""
        with self._mutex:
            several = list(self._open.values())
        for thread in several:
            if thread is not threading.current_thread():
                thread.join(_LEAVES_S)

    def forget(self) -> None:
        """In a child: the parent goes on."""
        for one in (self._listener, self._waker, self._wakes, *self._open):
            one.close()

    def _shut(self) -> None:
        for one in (self._listener, self._waker, self._wakes):
            one.close()
        # A writer that has lost its directory without knowing leaves the next one's socket where it is.
        with suppress(FileNotFoundError):
            if self.path.lstat().st_ino == self._inode:
                self.path.unlink()

    def _accept(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._wakes, selectors.EVENT_READ)
            while not self._closed:
                selector.select()
                with suppress(OSError):  # The client has gone again, or there is no descriptor left for it.
                    self._begin(self._listener.accept()[0])

    def _begin(self, connection: socket.socket) -> None:
        connection.setblocking(True)
        thread = threading.Thread(target=self._serve, args=(connection,), name="penstock-call", daemon=True)
        with self._mutex:
            if self._closed:
                connection.close()
                return
            self._open[connection] = thread
            try:
                thread.start()
            except RuntimeError:  # No thread is to be had.
                del self._open[connection]
                connection.close()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with suppress(OSError):  # The client is gone: whoever it was, there is nobody to be told.
                while self._answer(connection):
                    pass
        finally:
            with self._mutex:
                self._open.pop(connection, None)
            connection.close()

    def _answer(self, connection: socket.socket) -> bool:
        """Whether more may come."""
        try:
            message = receive(connection)
        except BrokenMessage as error:
            refusal = InputError(f"what has come is not a call: {error}; nothing of it was run")
            send(connection, _refusal(refusal))
            return False
        if message is None:
            return False
        try:
            outcome = self._run(message)
        except Exception as error:
            send(connection, _refusal(error))
        else:
            send(connection, {}, pa.Table.from_pylist([outcome], schema=self._schema))
        return True

    def _run(self, message: Message) -> dict[str, Any]:
        app, event = message.header.get("app"), message.header.get("event")
        if app != self._program.name:
            raise InputError(
                f"calls of app {app!r} cannot be answered here: this is the state of '{self._program.name}'"
            )
        if not isinstance(event, str) or message.row is None:
            raise InputError("what has come is not a call: it names no event, or brings none")
        return self._call((event, message.row))


_listening: weakref.WeakSet[Server] | None = None


def _forget_in_children(server: Server) -> None:
    """A forked child inherits the descriptors: it would keep clients waiting for a writer that has died."""
    global _listening
    if _listening is None:
        _listening = weakref.WeakSet()
        os.register_at_fork(after_in_child=_forget)
    _listening.add(server)


def _forget() -> None:
    for server in list(_listening or ()):
        server.forget()


def _refusal(error: Exception) -> dict[str, Any]:
    kind = "InputError" if isinstance(error, InputError) else "StateError"
    says = str(error) if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"
    told = {name: getattr(error, name, None) for name in ("committed", "version")}
    return {"error": kind, "says": says, **told}


def _listen(path: Path) -> socket.socket:
    """The directory has one writer, so a socket that is there was left by a dead one."""
    make_folder(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)
        listener.bind(os.fspath(path))
        path.chmod(0o600)  # Before it listens nobody gets in.
        listener.listen(_WAITING_MAX)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise StateError(
            f"calls cannot be served at {path}: {error.strerror}; nothing else may be there, and the file system has "
            "to allow sockets"
        ) from error
    return listener
