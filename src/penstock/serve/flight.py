"""Arrow Flight, for bulk: what `penstock serve --flight HOST:PORT` listens with, beside HTTP, behind the same tokens.

    DoExchange  {"get": "Account", "at_least": 7}       batches of keys ──> batches of records, a row for each key
    DoGet       {"table": "Account", "version": 7}      a table at one version
                {"sql": "select …"}                     where the server takes SQL
    ListFlights, GetFlightInfo                          the tables

Commands and tickets are JSON. A batch of records has the table's columns, and before them `$found`: false where there
is no record with that key, and the row is null. Each batch is of one version, which is its metadata: {"version": 8}.
That of a table is in the metadata of its schema.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import orjson
import pyarrow as pa
from pyarrow import flight

from penstock.errors import InputError, NotRetainedError, PenstockError
from penstock.serve.http.answers import Refusal, refusal_of
from penstock.serve.http.options import Options
from penstock.serve.http.site import Site
from penstock.serve.http.tokens import Tokens

if TYPE_CHECKING:
    from penstock.serve.http.sql import SqlProcess

F = TypeVar("F", bound=Callable[..., Any])
FOUND = "$found"
# Of one batch of keys; of streams that are open; of those that are worked on at once; of an answer to SQL.
KEYS_MAX, STREAMS_MAX, _AT_ONCE, _SQL_ROWS = 1_000_000, 100, 4, 1_000_000
_TIMEOUT_S, _TIMEOUT_MAX_S = 5.0, 60.0
_log = logging.getLogger("penstock")


def add(site: Site, options: Options) -> None:
    if options.flight is None:
        return
    host, port = options.flight_address or ("", 0)
    shown = f"[{host}]" if ":" in host else host
    certificates = None
    if options.tls_cert is not None and options.tls_key is not None:
        certificates = [(options.tls_cert.read_bytes(), options.tls_key.read_bytes())]
    scheme = "grpc" if certificates is None else "grpc+tls"
    try:
        server = FlightServer(site, f"{scheme}://{shown}:{port}", certificates)
    except (pa.ArrowException, flight.FlightError) as error:
        raise InputError(f"cannot listen on --flight {options.flight}: {error}; is another server there?") from None
    site.flight = f"{scheme}://{shown}:{server.port}"
    site.cleanup.append(server.shutdown)


def _told(handler: F) -> F:
    """Errors in words, and none with a traceback: Flight would send it."""

    @functools.wraps(handler)
    def told(*given: Any) -> Any:
        try:
            return handler(*given)
        except flight.FlightError:
            raise
        except (PenstockError, Refusal, pa.ArrowException) as error:
            failure = _failure(error)
        except Exception:
            _log.exception("a request by Flight failed, which is a bug")
            failure = flight.FlightInternalError("the server has a bug; its log says which")
        raise failure

    return told  # type: ignore[return-value]


class FlightServer(flight.FlightServerBase):  # type: ignore[misc]
    def __init__(self, site: Site, location: str, certificates: list[tuple[bytes, bytes]] | None) -> None:
        self._reader, self._site = site.reader, site
        self._streams = threading.BoundedSemaphore(STREAMS_MAX)
        self._slots = threading.BoundedSemaphore(_AT_ONCE)
        auth = _Auth(site.guard.tokens)
        super().__init__(location, tls_certificates=certificates, middleware={"token": auth})

    @_told
    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        asked = _asked(descriptor.command)
        if not isinstance(asked.get("get"), str):
            raise InputError('the command of an exchange is {"get": TABLE}')
        schema: pa.Schema | None = None
        with self._stream():
            while True:
                try:
                    keys = reader.read_chunk().data
                except StopIteration:
                    return
                if keys is None:
                    continue
                with self._slots:
                    rows, version = self._records(asked, keys)
                if schema is None:
                    schema = rows.schema
                    writer.begin(schema)
                elif not rows.schema.equals(schema):
                    raise NotRetainedError(f"table '{asked['get']}' has other columns now; ask again")
                writer.write_with_metadata(rows, b'{"version":%d}' % version)

    @_told
    def do_get(self, context: Any, ticket: Any) -> Any:
        asked = _asked(ticket.ticket)
        with self._stream(), self._slots:
            if isinstance(asked.get("sql"), str):
                table, version = self._sql(asked)
            elif isinstance(asked.get("table"), str):
                with self._cut(asked) as cut:
                    table, version = cut.table(asked["table"]), cut.version
            else:
                raise InputError('a ticket is {"table": TABLE}, or {"sql": QUERY}')
        return flight.RecordBatchStream(table.replace_schema_metadata({"version": str(version)}))

    @_told
    def list_flights(self, context: Any, criteria: bytes) -> Iterator[Any]:
        return iter([self._info(name) for name in self._reader.tables])

    @_told
    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        if not descriptor.path:
            raise InputError("a table is asked for by its name, as the path")
        return self._info(descriptor.path[0].decode())

    @_told
    def list_actions(self, context: Any) -> Any:
        return []

    @_told
    def do_action(self, context: Any, action: Any) -> Any:
        raise InputError("this server has no actions")

    @_told
    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        raise InputError("nothing is put here; POST /v1/events/EVENT calls")

    @_told
    def get_schema(self, context: Any, descriptor: Any) -> Any:
        return flight.SchemaResult(self.get_flight_info(context, descriptor).schema)

    # -- inside -----------------------------------------------------------------------------

    def _records(self, asked: dict[str, Any], keys: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
        if keys.num_rows > KEYS_MAX:
            raise InputError(f"{keys.num_rows} keys are more than {KEYS_MAX}; send several batches")
        keys.validate(full=True)
        with self._cut(asked) as cut:
            wanted = keys.column(0) if keys.num_columns == 1 else pa.Table.from_batches([keys])
            table, found = cut.get_arrow(asked["get"], wanted)
            version = cut.version
        if not found.all():
            place = np.cumsum(found) - 1
            table = table.take(pa.array(place, mask=~found))
        columns = [pa.array(found), *(column.combine_chunks() for column in table.columns)]
        columns = [column.chunk(0) if isinstance(column, pa.ChunkedArray) else column for column in columns]
        fields = [pa.field(FOUND, pa.bool_()), *(field.with_nullable(True) for field in table.schema)]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields)), version

    @contextmanager
    def _cut(self, asked: dict[str, Any]) -> Iterator[Any]:
        version, least = _number(asked, "version"), _number(asked, "at_least")
        if least is not None:
            self._reader.wait(least, _timeout(asked))
        with self._site.cuts.at(version) as cut:
            yield cut

    def _sql(self, asked: dict[str, Any]) -> tuple[pa.Table, int]:
        process: SqlProcess | None = self._site.sql
        loop = self._site.loop
        if process is None or loop is None:
            raise Refusal(403, "forbidden", "this server takes no SQL; it was started without --sql")
        version, least, timeout = _number(asked, "version"), _number(asked, "at_least"), _timeout(asked)
        least = max(least or 0, self._reader.version)
        question = {"sql": asked["sql"], "limit": _SQL_ROWS, "version": version, "timeout": timeout, "arrow": True}
        question["at_least"] = least if version is None else min(version, least)
        told, body = asyncio.run_coroutine_threadsafe(process.ask(question, timeout), loop).result()
        if "error" in told:
            raise Refusal(told["status"], told["error"], told["says"])
        return pa.ipc.open_stream(body).read_all(), told["version"]

    def _info(self, name: str) -> Any:
        table = self._reader.tables.get(name)
        if table is None:
            raise InputError(f"there is no table {name[:60]!r}; there is {', '.join(self._reader.tables) or 'none'}")
        descriptor = flight.FlightDescriptor.for_path(name)
        endpoint = flight.FlightEndpoint(orjson.dumps({"table": name}), [])
        return flight.FlightInfo(table.arrow(), descriptor, [endpoint], -1, -1)

    @contextmanager
    def _stream(self) -> Iterator[None]:
        if not self._streams.acquire(blocking=False):
            raise Refusal(503, "busy", f"{STREAMS_MAX} streams are open; come again")
        try:
            yield
        finally:
            self._streams.release()


class _Auth(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    def __init__(self, tokens: Tokens | None) -> None:
        super().__init__()
        self._tokens = tokens

    def start_call(self, info: Any, headers: Any) -> None:
        if self._tokens is None:
            return
        for name, values in headers.items():
            if name.lower() == "authorization":
                given = values[0].encode() if isinstance(values[0], str) else values[0]
                if given.startswith(b"Bearer ") and self._tokens.may_read(given.removeprefix(b"Bearer ")):
                    return
        raise flight.FlightUnauthenticatedError("give a token: the header authorization: Bearer …")


def _asked(content: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise InputError('what is asked for is JSON, such as {"table": "Account"}')
    known = {"get", "table", "sql", "version", "at_least", "timeout_ms"}
    if not found.keys() <= known:
        raise InputError(f"there is no {min(found.keys() - known)[:60]!r}; there is {', '.join(sorted(known))}")
    return found


def _number(asked: dict[str, Any], name: str) -> int | None:
    value = asked.get(name)
    if value is None or (type(value) is int and 0 <= value < 1 << 62):
        return value
    raise InputError(f"{name} is a whole number, 0 or above")


def _timeout(asked: dict[str, Any]) -> float:
    given = _number(asked, "timeout_ms")
    return _TIMEOUT_S if given is None else min(given / 1000, _TIMEOUT_MAX_S)


def _failure(error: Exception) -> flight.FlightError:
    """Of Flight's own kinds: any other would take a traceback along. What it is, as HTTP says it, is its extra_info."""
    if isinstance(error, Refusal):
        refusal = error
    elif isinstance(error, PenstockError):
        refusal = refusal_of(error)
    else:  # Arrow's
        refusal = Refusal(400, "bad_request", str(error))
    kinds = {"not_yet": flight.FlightTimedOutError, "forbidden": flight.FlightUnauthorizedError}
    kind = flight.FlightUnavailableError if refusal.status == 503 else flight.FlightServerError
    return kinds.get(refusal.error, kind)(
        refusal.says, orjson.dumps({"error": refusal.error, "status": refusal.status})
    )
