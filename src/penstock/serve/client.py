"""The other side: `app.connect(state)`, in any process of this machine that may read the state directory.

Connections are kept and used again, one for each call that is under way: threads that call at the same time do not wait
for each other here, and share commits there.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

from penstock.declare.model import Program
from penstock.errors import StateError
from penstock.execute import intake
from penstock.serve.address import connected
from penstock.serve.messages import BrokenMessage, Message, receive, refused, send
from penstock.serve.pipeline import Pipeline
from penstock.state.arrow import one_below_another


class Connection:
    """Calls to the writer of a state directory. Any thread may call."""

    def __init__(self, program: Program, state: str | os.PathLike[str]) -> None:
        self._program, self._state = program, Path(state).absolute()  # wherever this process goes from here
        self._mutex = threading.Lock()
        self._idle: list[socket.socket] = []
        self._closed = False
        self._process = os.getpid()
        self._idle.append(connected(self._state))

    def call(self, event: object) -> dict[str, Any]:
        """Run one event now, in the writer's process; its outcome, as `Database.call` gives it.

        Where the writer goes away before it has answered, the error's `committed` is None: whether the call has run is
        not known. Called again with the same id, it runs once.

        Args:
            event: `Look(seat="A1")`: of any type that a transaction takes; one with a `ps.order()` needs no ts.
        """
        taken = intake.called(self._program, event)
        message = self._exchange({"event": taken.event.name}, taken.table)
        if "error" not in message.header and message.rows is not None and message.rows.num_rows == 1:
            outcome: dict[str, Any] = message.rows.to_pylist()[0]
            return outcome
        raise refused(message.header)

    def call_many(self, events: Iterable[object]) -> list[dict[str, Any]]:
        """Run events now, in their order; their outcomes. It takes about as long as one call: they share versions.

        Each is a transaction of its own. Where one cannot be called none is; where the writer goes away in the middle,
        some may have run, and called again with the same ids they run once.
        """
        taken = [intake.called(self._program, event) for event in events]
        if not taken:
            return []
        with Pipeline(self._program.name, self._state) as line:
            futures = [
                line.submit(name, one_below_another([one.table for one in several]), strict=False)
                for name, several in ((name, list(group)) for name, group in groupby(taken, lambda one: one.event.name))
            ]
            return [row for future in futures for row in future.result().rows()]

    def find(self, id: object, event: str | None = None) -> list[dict[str, Any]]:
        """The calls with this id, as long as their outcomes are retained: the event, and the outcome, which is None
        where its time has not come."""
        found = self._ask({"asks": "outcome", "id": id, "event": event})
        rows = iter([] if found.rows is None else found.rows.to_pylist())
        ran = [{"event": name, "outcome": next(rows)} for name in found.header["events"]]
        return ran + [{"event": name, "outcome": None} for name in found.header["waiting"]]

    def events(self) -> dict[str, Any]:
        """What may be called: by event the types of its fields, and which of them are its id and its order."""
        events: dict[str, Any] = self._ask({"asks": "events"}).header["events"]
        return events

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

    def _ask(self, header: dict[str, Any]) -> Message:
        message = self._exchange(header, None)
        if "error" in message.header:
            raise refused(message.header)
        return message

    def _exchange(self, header: dict[str, Any], rows: Any) -> Message:
        connection = self._take()
        kept = False
        try:
            message = self._answered(connection, header, rows)
            kept = True
        finally:
            if not kept:
                connection.close()
        self._give_back(connection)
        return message

    def _answered(self, connection: socket.socket, header: dict[str, Any], rows: Any) -> Message:
        try:
            send(connection, {"app": self._program.name, **header}, rows)
        except OSError as error:
            raise StateError(f"{self._gone()}, and the call has not run; call again when there is one") from error
        try:
            message = receive(connection)
        except (OSError, BrokenMessage) as error:
            raise self._unknown() from error
        if message is None:
            raise self._unknown()
        return message

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
                return connected(self._state)
            if _is_open(found):
                return found
            found.close()

    def _give_back(self, connection: socket.socket) -> None:
        with self._mutex:
            if not self._closed:
                self._idle.append(connection)
                return
        connection.close()

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
