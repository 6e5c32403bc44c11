"""The writer, from the server's side: what requests call goes to its socket, as few messages that hold much.

    request ──> Gathered, by type of event ──> one message of all that has come ──> pipeline ──> the writer
    request <── its slice of the answer    <──

A message goes out as soon as it can; while some are under way, what comes meanwhile is the next one. So many clients
share messages, as they share versions at the writer. Where the writer refuses a message as a whole, since one
of its events cannot be, each request is sent again by itself, and told of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.declare.types import Type, of_text
from penstock.errors import InputError, PenstockError, QueueFullError, StateError
from penstock.serve.address import connected
from penstock.serve.http.values import finite
from penstock.serve.messages import BrokenMessage, Message, receive, refused, send
from penstock.serve.pipeline import Pipeline, Reply

# Messages that the writer has and has not answered: one runs while the other is on its way. With more of them each
# would hold less, and a version costs as much whatever it holds.
_UNDER_WAY = 2
_ROWS = 8192  # of a message: what a version of calls takes
WAITING_MAX = 65_536  # events that wait here; more are told to come again


@dataclass(frozen=True, slots=True)
class ServedEvent:
    """An event that may be called."""

    name: str
    types: dict[str, Type]
    left_out: dict[str, Any]  # what fields hold that are not given
    id: str | None
    order: str | None

    def schema(self) -> pa.Schema:
        return pa.schema([(name, type_.arrow()) for name, type_ in self.types.items()])


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of a request's events."""

    rows: list[dict[str, Any]]  # outcomes of those that have run, in their order, as JSON takes them
    refused: dict[int, PenstockError]  # by their places
    waiting: tuple[int, ...]  # whose time has not come


@dataclass(slots=True)
class Request:
    """Events of one type, as columns, and who waits for what becomes of them."""

    event: ServedEvent
    columns: list[list[Any]]
    size: int
    future: asyncio.Future[Ended]
    since: int | None = None


@dataclass(slots=True)
class Gathered:
    requests: list[Request] = field(default_factory=list)
    size: int = 0


class Writer:
    def __init__(self, app: str, state: Path) -> None:
        self._app, self._state = app, state
        self._pipeline: Pipeline | None = None
        self._events: dict[str, ServedEvent] = {}
        self.told: dict[str, Any] = {}  # of the events, as JSON has it
        self._gathered: dict[tuple[str, int | None], Gathered] = {}
        self._size = 0  # of all that is gathered
        self._under_way = 0
        self._sending = ThreadPoolExecutor(1, thread_name_prefix="penstock-to-writer")  # the socket may be full
        self._asking = ThreadPoolExecutor(1, thread_name_prefix="penstock-asks-writer")
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> int:
        """Events that have come, and were not sent yet."""
        return self._size

    async def all_events(self) -> dict[str, Any]:
        """What may be called, with the types of fields and outcomes."""
        if self._gone():
            await self._in(self._sending, self._connect)
        return self.told

    async def event(self, name: str) -> ServedEvent | None:
        """One that may be called; None where there is none of this name."""
        if self._gone():
            await self._in(self._sending, self._connect)
        return self._events.get(name)

    @property
    def events(self) -> tuple[str, ...]:
        return tuple(self._events)

    async def call(self, event: ServedEvent, columns: list[list[Any]], size: int, since: int | None) -> Ended:
        """Events, in this order; each is answered, or refused, or waits for its time."""
        if self._size and self._size + size > WAITING_MAX:
            raise QueueFullError(f"{self._size} calls wait already, of which at most {WAITING_MAX} may; come again")
        request = Request(event, columns, size, asyncio.get_running_loop().create_future(), since)
        gathered = self._gathered.setdefault((event.name, since), Gathered())
        gathered.requests.append(request)
        gathered.size += size
        self._size += size
        if len(gathered.requests) == 1:
            asyncio.get_running_loop().call_soon(self._send)
        return await request.future

    async def outcome(self, id: str, event: str | None) -> Message:
        """What became of the calls with an id."""
        return await self._in(self._asking, self._ask, {"asks": "outcome", "id": id, "event": event})

    def close(self) -> None:
        if self._pipeline is not None:
            self._pipeline.close()
        self._sending.shutdown(wait=False)
        self._asking.shutdown(wait=False)

    # -- inside -----------------------------------------------------------------------------

    def _send(self) -> None:
        while self._gathered and self._under_way < _UNDER_WAY:
            key = next(iter(self._gathered))
            requests = self._taken(key)
            self._under_way += 1
            task = asyncio.get_running_loop().create_task(self._exchange(requests))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _taken(self, key: tuple[str, int | None]) -> list[Request]:
        gathered, rows, count = self._gathered[key], 0, 0
        for request in gathered.requests:
            if count and rows + request.size > _ROWS:
                break
            rows, count = rows + request.size, count + 1
        taken, gathered.requests = gathered.requests[:count], gathered.requests[count:]
        gathered.size -= rows
        self._size -= rows
        if not gathered.requests:
            del self._gathered[key]
        return taken

    async def _exchange(self, requests: list[Request]) -> None:
        try:
            await self._answer(requests)
        except BaseException as error:
            for request in requests:
                _fail(request, error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._under_way -= 1
            self._send()

    async def _answer(self, requests: list[Request]) -> None:
        try:
            reply = await self._sent(requests)
        except InputError:
            if len(requests) == 1:
                raise
            for request in requests:  # Which of them it was is for each to be told.
                try:
                    _tell([request], await self._sent([request]))
                except PenstockError as error:
                    _fail(request, error)
            return
        _tell(requests, reply)

    async def _sent(self, requests: list[Request]) -> Reply:
        event = requests[0].event
        columns = requests[0].columns
        if len(requests) > 1:
            columns = [[value for one in requests for value in one.columns[k]] for k in range(len(event.types))]
        rows = pa.Table.from_arrays(
            [pa.array(values, type_.arrow()) for values, type_ in zip(columns, event.types.values(), strict=True)],
            schema=event.schema(),
        )
        future = await self._in(self._sending, self._submit, event.name, rows, requests[0].since)
        return await asyncio.wrap_future(future)

    def _submit(self, event: str, rows: pa.Table, since: int | None) -> Any:
        for again in (False, True):
            if self._pipeline is None or not self._pipeline.is_open:
                self._connect()
            assert self._pipeline is not None
            try:
                return self._pipeline.submit(event, rows, since=since, waits=False)
            except StateError as error:
                if again or error.committed is not False or not self._gone():
                    raise
        raise AssertionError

    def _gone(self) -> bool:
        return self._pipeline is None or not self._pipeline.is_open

    def _connect(self) -> None:
        if self._pipeline is not None:
            self._pipeline.close()
            self._pipeline = None
        told = self._ask({"asks": "events"})
        self._events, self.told = _events_of(told), told.header
        self._pipeline = Pipeline(self._app, self._state)

    def _ask(self, header: dict[str, Any]) -> Message:
        connection = connected(self._state)
        try:
            send(connection, {"app": self._app, **header})
            found = receive(connection)
        except (OSError, BrokenMessage) as error:
            raise StateError(f"the writer of state directory {self._state} has gone away; ask again") from error
        finally:
            connection.close()
        if found is None:
            raise StateError(f"the writer of state directory {self._state} has gone away; ask again")
        if "error" in found.header:
            raise refused(found.header)
        return found

    @staticmethod
    async def _in(pool: ThreadPoolExecutor, function: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(pool, function, *args)


def _events_of(told: Message) -> dict[str, ServedEvent]:
    left_out = {} if told.rows is None else told.rows.to_pylist()[0]
    found = {}
    for name, event in told.header["events"].items():
        types = {field: type_of(text) for field, text in event["fields"].items()}
        own = {field: left_out.get(f"{name}.{field}") for field in types}
        found[name] = ServedEvent(name, types, own, event["id"], event["order"])
    return found


def type_of(text: str) -> Type:
    """The type of a field whose str() this is."""
    if text.startswith("list["):
        return Type("list", item=type_of(text.removeprefix("list[").removesuffix("]")))
    found = of_text(text)
    if found is None:
        raise StateError(f"the writer has a field of type {text}, which this server does not know; restart it")
    return found


def _tell(requests: list[Request], reply: Reply) -> None:
    """Each its own part."""
    rows = [] if reply.outcomes is None else plain_rows(reply.outcomes)
    start, row = 0, 0
    for request in requests:
        places, refused_, waiting = range(start, start + request.size), dict[int, PenstockError](), tuple[int, ...]()
        if reply.refused or reply.waiting:
            refused_ = {place - start: reply.refused[place] for place in places if place in reply.refused}
            waiting = tuple(place - start for place in reply.waiting if place in places)
        ran = request.size - len(refused_) - len(waiting)
        if not request.future.done():
            request.future.set_result(Ended(rows[row : row + ran], refused_, waiting))
        start, row = start + request.size, row + ran


def plain_rows(outcomes: pa.Table) -> list[dict[str, Any]]:
    """Outcomes as JSON takes them."""
    floats = [field.name for field in outcomes.schema if pa.types.is_floating(field.type)]
    rows: list[dict[str, Any]] = outcomes.to_pylist()
    return [finite(row, floats) for row in rows] if floats else rows


def _fail(request: Request, error: BaseException) -> None:
    if not request.future.done():
        told = type(error)(str(error)) if isinstance(error, PenstockError) else StateError(f"{error!r}")
        if isinstance(error, PenstockError):
            told.committed, told.version = error.committed, error.version
        request.future.set_exception(told)
