"""The writer's side: it listens, and hands calls on to the database; each connection has a line of its own (line.py).

Calls that come at the same time share commits, whichever connections they come by. A client that goes away has made its
call all the same, if all of it had come; half a message is no call.
"""

from __future__ import annotations

import os
import selectors
import socket
import threading
import time
import weakref
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from penstock.declare.model import EventDef, Program
from penstock.errors import InputError, StateError
from penstock.execute.casting import left_out
from penstock.serve.address import make_folder, socket_path
from penstock.serve.line import Line, joined
from penstock.serve.messages import Message

_WAITING_MAX = 128  # connections that nobody has taken yet
_LEAVES_S = 5.0
_AGAIN_S = 0.05


class Answering(Protocol):
    """Whoever runs calls: calls.py."""

    def run(self, event: Any, *, strict: bool = False, since: int | None = None) -> Any: ...

    def submit(
        self,
        event: tuple[str, pa.Table],
        told: Callable[[list[Any]], None],
        *,
        strict: bool = False,
        since: int | None = None,
        waits: bool = True,
    ) -> None: ...

    def find(self, event: str, id: Any) -> Any: ...


class Server:
    def __init__(self, program: Program, calls: Answering, state: Path, only: Collection[str] | None = None) -> None:
        """only: the events that are open to calls of other processes; None: all."""
        self._program, self._calls, self._only = program, calls, only
        self._process = os.getpid()
        self.path = socket_path(state)
        self._mutex = threading.Lock()
        self._open: dict[socket.socket, threading.Thread] = {}
        self._closed = False
        self._listener = _listen(self.path)
        self._name = _file_at(self.path)
        self._files: list[socket.socket | selectors.BaseSelector] = [self._listener]
        self._thread = threading.Thread(target=self._accept, name="penstock-calls", daemon=True)
        try:
            # All that it takes is at hand before anybody connects: nobody waits for a thread that could not begin.
            self._waker, self._wakes = socket.socketpair()
            self._files += self._waker, self._wakes
            self._selector = selectors.DefaultSelector()
            self._files.append(self._selector)
            self._selector.register(self._listener, selectors.EVENT_READ)
            self._selector.register(self._wakes, selectors.EVENT_READ)
            _forget_in_children(self)
            self._thread.start()
        except (OSError, RuntimeError) as error:
            self._shut()
            raise StateError(
                f"calls cannot be served at {self.path}: {error}; this process has too many files open, or threads"
            ) from error
        except BaseException:
            self._shut()
            raise

    def stop(self) -> None:
        """No more calls come; those that have come are still answered. While the directory is still this writer's: the
        next one listens at the same place."""
        if self._process != os.getpid():
            return
        with self._mutex:
            self._closed = True
            self._waker.send(b".")
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RD)
        self._thread.join()
        self._shut()

    def close(self) -> None:
        """After `stop`, and once whoever runs the calls has answered them all. Who does not take its answer is left
        after a while."""
        if self._process != os.getpid():
            return
        end = time.monotonic() + _LEAVES_S
        for leaves in (False, True):
            with self._mutex:
                several = list(self._open.items())
            for connection, thread in several:
                if leaves:
                    with suppress(OSError):
                        connection.shutdown(socket.SHUT_RDWR)
                if thread is not threading.current_thread():
                    thread.join(max(0.0, end - time.monotonic()) + leaves)

    def forget(self) -> None:
        """In a child: the parent goes on."""
        for one in (*self._files, *self._open):
            one.close()

    def _shut(self) -> None:
        # What is there now may be another writer's, or anybody's; and to leave it there does no harm.
        with suppress(OSError):
            if _file_at(self.path) == self._name:
                self.path.unlink()
        for one in self._files:
            one.close()

    def _accept(self) -> None:
        while not self._closed:
            self._selector.select()
            try:
                connection = self._listener.accept()[0]
            except BlockingIOError:  # The client has gone again.
                continue
            except OSError:  # There is no descriptor left for it: it waits.
                time.sleep(_AGAIN_S)
                continue
            self._begin(connection)

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
            Line(connection, self).serve()
        finally:
            with self._mutex:
                self._open.pop(connection, None)
            connection.close()

    # -- what a line asks (line.py) ---------------------------------------------------------

    def run(self, header: dict[str, Any], rows: pa.Table) -> Any:
        if rows.num_rows > 1:
            raise InputError("what has come is several calls; give the message a number")
        event = self._event(header)
        return self._calls.run((event, rows), strict=header.get("strict") is True, since=_since(header))

    def submit(self, header: dict[str, Any], rows: pa.Table, told: Callable[[list[Any]], None]) -> None:
        event, strict, waits = self._event(header), header.get("strict") is True, header.get("waits") is not False
        self._calls.submit((event, rows), told, strict=strict, since=_since(header), waits=waits)

    def ask(self, header: dict[str, Any]) -> Message:
        self._refuse_others(header)
        if header.get("asks") == "events":
            events = {event.name: fields_of(event) for event in self._served()}
            return Message({"events": events, "outcomes": self._outcomes()}, self._left_out())
        if header.get("asks") == "outcome":
            return self._find(header.get("event"), header.get("id"))
        raise InputError(f"what has come asks for {header.get('asks')!r}, which nobody answers here")

    def _find(self, event: object, id: object) -> Message:
        type_ = self._program.id_type()
        if type_ is not None and type_.kind == "int" and isinstance(id, str):
            id = int(id) if id.removeprefix("-").isdecimal() else None
        if id is None or isinstance(id, list | dict):
            return Message({"waiting": [], "events": []}, None)
        names = [one.name for one in self._served() if one.id is not None and event in (None, one.name)]
        found = {name: self._calls.find(name, id) for name in names}
        ran = {name: outcome for name, outcome in found.items() if isinstance(outcome, pa.Table)}
        waiting = [name for name, one in found.items() if one is not None and name not in ran]
        return Message({"events": list(ran), "waiting": waiting}, joined(list(ran.values())) if ran else None)

    def _event(self, header: dict[str, Any]) -> str:
        self._refuse_others(header)
        event = str(header.get("event"))
        if self._only is not None and event not in self._only:
            open_ones = ", ".join(self._only) or "none"
            raise InputError(
                f"event '{event}' of app '{self._program.name}' is not open to calls of other processes; those that "
                f"are: {open_ones}"
            )
        return event

    def _refuse_others(self, header: dict[str, Any]) -> None:
        app = header.get("app")
        if app != self._program.name:
            raise InputError(
                f"calls of app {app!r} cannot be answered here: this is the state of '{self._program.name}'"
            )

    def _left_out(self) -> pa.Table | None:
        """What fields hold that are not given, each as EVENT.FIELD; None where no field has a default."""
        fields = {f"{event.name}.{f.name}": f for event in self._served() for f in event.fields if not f.required}
        return pa.table({name: left_out(f, 1) for name, f in fields.items()}) if fields else None

    def _outcomes(self) -> dict[str, str]:
        """The types of the columns that are not those of all apps."""
        program = self._program
        about = {"ts": program.order_type(), "id": program.id_type(), **dict(program.returns)}
        return {name: str(type_) for name, type_ in about.items() if type_ is not None}

    def _served(self) -> list[EventDef]:
        """The events that may be called."""
        program = self._program
        taken = [e for e in program.events if program.transaction_of(e) and not program.takes_several(e.name)]
        return [event for event in taken if self._only is None or event.name in self._only]


def _since(header: dict[str, Any]) -> int | None:
    since = header.get("since")
    return since if type(since) is int else None


def fields_of(event: EventDef) -> dict[str, Any]:
    """What a client has to know to make some."""
    return {"id": event.id, "order": event.order, "fields": {f.name: str(f.type) for f in event.fields}}


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


def _listen(path: Path) -> socket.socket:
    """The directory has one writer, so a socket that is there was left by a dead one."""
    listener: socket.socket | None = None
    try:
        make_folder(path)
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(os.fspath(path))
        path.chmod(0o600)  # Before it listens nobody gets in.
        listener.listen(_WAITING_MAX)
        listener.setblocking(False)
    except OSError as error:
        if listener is not None:
            listener.close()
        raise StateError(
            f"calls cannot be served at {path}: {error.strerror}; the file system has to allow sockets, and nothing "
            "else may be in the way"
        ) from error
    return listener


def _file_at(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_dev, found.st_ino
