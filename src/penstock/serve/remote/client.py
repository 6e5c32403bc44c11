"""The client of a server: what `ps.connect(url)` gives. Threads share one.

get     those of many threads at the same time are one request, at one version
read    never of an older version than this client has seen: what it has called, it sees
call    sent again, with its id, until it is known what became of it
"""

from __future__ import annotations

import enum
import random
import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from penstock.declare.types import Type
from penstock.errors import InputError, NotYetError, PenstockError, QueueFullError, StateError
from penstock.serve.http.values import dumps, of_json, plain
from penstock.serve.http.writer import type_of
from penstock.serve.remote.follow import follow
from penstock.serve.remote.here import token_of
from penstock.serve.remote.together import Together
from penstock.serve.remote.web import UnreachableError, Web, error_of

# Of one request: the server takes 10,000 keys, and a list of events of 8 MB.
_KEYS, _CALLS, _SQL_ROWS, _PAGE = 5_000, 4_096, 10_000, 10_000
_AT_MOST_S = 1.0  # between two attempts


class Client:
    """A server's tables, and calls to its writer. Made by `ps.connect(url)`; any thread may use it."""

    def __init__(
        self, url: str, token: str | None = None, *, timeout: float = 30.0, tls: ssl.SSLContext | None = None
    ) -> None:
        self._web = Web(url, token, tls, timeout)
        if token is None and self._web.is_local and (found := token_of(self._web.port)) is not None:
            self._web.headers["Authorization"] = f"Bearer {found}"
        self._timeout = timeout
        self._mutex = threading.Lock()
        self._tables: dict[str, _Columns] = {}
        self._outcomes: dict[str, Type] | None = None
        self._ids: dict[str, str | None] = {}  # event -> its id
        self._gets: Together[tuple[str, Any], dict[str, Any] | PenstockError | None] = Together(self._get_all, _KEYS)
        self._calls: Together[tuple[str, dict[str, Any], int | None], _Told] = Together(self._call_all, _CALLS, 4)
        status = self._web.ask("/v1/status")[1]
        self.app, self._version = str(status["app"]), int(status["version"])

    @property
    def url(self) -> str:
        return self._web.url

    @property
    def version(self) -> int:
        """The newest that this client has seen: nothing that it reads is older."""
        return self._version

    # -- reading ----------------------------------------------------------------------------

    def get(self, table: str, key: Any, *, at_least: int | None = None) -> dict[str, Any] | None:
        """A record; None where there is none. key: a value, or a tuple of those of a composite key."""
        self._see(at_least)
        found = self._gets.ask((table, _key(key)))
        if isinstance(found, PenstockError):
            raise found
        return found

    def get_many(self, table: str, keys: Iterable[Any], *, at_least: int | None = None) -> list[dict[str, Any] | None]:
        """Records in the order of keys, all of one version; None where there is none."""
        self._see(at_least)
        asked = [_key(key) for key in keys]
        if len(asked) <= _KEYS:
            return self._records(table, asked)
        first, version = self._asked(table, asked[:_KEYS], None)
        parts = [first]
        for start in range(_KEYS, len(asked), _KEYS):
            parts.append(self._asked(table, asked[start : start + _KEYS], version)[0])
        return [one for part in parts for one in part]

    def table(self, table: str, where: str | None = None, *, version: int | None = None) -> pa.Table:
        """All records of a table at one version, or those for which `where` holds, by their keys."""
        columns, rows, page = self._columns(table), list[dict[str, Any]](), None
        while True:
            query = {"where": where, "limit": _PAGE, "page": page}
            query |= {} if page is not None else self._moment(version)
            told = self._read(f"/v1/tables/{quote(table, safe='')}/records", query, pinned=version is not None)
            rows += told["records"]
            page = told["next"]
            if page is None:
                break
        if rows and rows[0].keys() != columns.types.keys():
            columns = self._columns(table, anew=True)
        return columns.table(rows)

    def sql(self, query: str, *, version: int | None = None) -> pa.Table:
        """One SELECT, where the server takes SQL: at most 10,000 rows."""
        told = self._read(
            "/v1/sql", self._moment(version), {"sql": query, "limit": _SQL_ROWS}, pinned=version is not None
        )
        if told["more"]:
            raise InputError(f"the query has more than {_SQL_ROWS} rows; ask for less, or for a page of them")
        names = [column["name"] for column in told["columns"]]
        types = [_sql_type(column["type"]) for column in told["columns"]]
        rows = told["rows"]
        columns = [
            [row[name] if type_ is None else _value(type_, row[name]) for row in rows]
            for name, type_ in zip(names, types, strict=True)
        ]
        arrays = [
            pa.array(values, None if type_ is None else type_.arrow())
            for values, type_ in zip(columns, types, strict=True)
        ]
        return pa.Table.from_arrays(arrays, names=names)

    def history(self, table: str, key: Any) -> pa.Table:
        """Every retained change of one record, oldest first: version, change, and its columns."""
        columns = self._columns(table)
        path = f"/v1/tables/{quote(table, safe='')}/records/{_in_path(key)}/history"
        rows = self._read(path, self._moment(None))["history"]
        return columns.table(rows, {"version": pa.int64(), "change": pa.string()})

    def changes(self, table: str, key: Any = None, *, after: int | None = None) -> Iterator[tuple[int, Any]]:
        """Goes on until it is closed. Of a record: (version, record), first as it is, then each version that changed
        it, once; None where it was deleted. Without a key: (version, changes) of the table, each with a column
        "change". after: what follows that version, without the first. Where the connection ends it goes on."""
        columns = self._columns(table)
        path = f"/v1/tables/{quote(table, safe='')}"
        path += "/changes" if key is None else f"/records/{_in_path(key)}/changes"
        for told in follow(self._web, path, after, self._timeout):
            self._see(told["version"])
            if key is not None:
                yield told["version"], columns.record(told["record"])
            elif "changes" in told:
                yield told["version"], [columns.record(one) for one in told["changes"]]

    # -- calling ----------------------------------------------------------------------------

    def call(self, event: Any, fields: dict[str, Any] | None = None, *, timeout: float | None = None) -> dict[str, Any]:
        """Run one event now; its outcome, once it is durable. `call(Transfer(id="t1", …))`, or `call("Transfer", {…})`.

        Where no answer comes it is sent again, with its id, so that it runs once: as long as timeout says. An event
        without an id is sent again only where it cannot have run. Where nobody knows whether it has, the error's
        `committed` is None. An event that has to wait for its time is waited for.
        """
        name, values = _given(event, fields)
        until = time.monotonic() + (self._timeout if timeout is None else timeout)
        return self._called(name, values, None, until)

    def call_many(self, events: Iterable[Any], *, timeout: float | None = None) -> list[dict[str, Any]]:
        """Run events in their order, each as a transaction of its own; their outcomes. Where some are refused, the
        first one's error is raised, once it is known what became of all; called again, each runs once."""
        given = [_given(*one) if isinstance(one, tuple) else _given(one, None) for one in events]
        until = time.monotonic() + (self._timeout if timeout is None else timeout)
        found: list[dict[str, Any] | PenstockError] = []
        for name, group in groupby(given, lambda one: one[0]):
            several = [values for _, values in group]
            for start in range(0, len(several), _CALLS):
                found += self._in_order(name, several[start : start + _CALLS], until)
        failed = next((one for one in found if isinstance(one, PenstockError)), None)
        if failed is not None:
            raise failed
        return [one for one in found if isinstance(one, dict)]

    def outcome(self, id: Any, event: str | None = None) -> list[dict[str, Any]]:
        """The calls with an id, as long as that is retained: the event, and its outcome, which is None where its time
        has not come."""
        try:
            told = self._web.ask(f"/v1/outcomes/{quote(str(id), safe='')}", {"event": event})[1]
        except InputError as error:
            if getattr(error, "kind", "") == "no_outcome":
                return []
            raise
        self._see(told["version"])
        found = [(one["event"], one.get("outcome")) for one in told["outcomes"]]
        return [{"event": name, "outcome": None if row is None else self._outcome(row)} for name, row in found]

    def events(self) -> dict[str, Any]:
        """What may be called: by event the types of its fields, and which of them are its id and its order."""
        events: dict[str, Any] = self._web.ask("/v1/events")[1]["events"]
        return events

    def close(self) -> None:
        self._web.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Client {self.url}, version {self.version}>"

    # -- inside -----------------------------------------------------------------------------

    def _see(self, version: int | None) -> None:
        if version is not None and version > self._version:
            with self._mutex:
                self._version = max(self._version, version)

    def _moment(self, version: int | None) -> dict[str, Any]:
        return {"at_least": self._version or None} if version is None else {"version": version}

    def _read(self, path: str, query: dict[str, Any], body: Any = None, *, pinned: bool = False) -> dict[str, Any]:
        told = self._web.ask(path, query, body)[1]
        if not pinned:
            self._see(told["version"])
        return told

    def _get_all(self, asked: list[tuple[str, Any]]) -> list[dict[str, Any] | PenstockError | None]:
        """What threads have asked for at the same time: one request, one version."""
        wanted: dict[str, list[Any]] = {}
        for table, key in asked:
            wanted.setdefault(table, []).append(key)
        try:
            told = self._read("/v1/get", self._moment(None), {"get": wanted})
        except InputError:  # One of them is wrong, and it is for its own thread to be told.
            if len(asked) == 1:
                raise
            return [self._get_one(table, key) for table, key in asked]
        found = {table: iter(told["records"][table]) for table in wanted}
        return [self._record(table, next(found[table])) for table, _ in asked]

    def _get_one(self, table: str, key: Any) -> dict[str, Any] | PenstockError | None:
        try:
            return self._records(table, [key])[0]
        except PenstockError as error:
            return error

    def _records(self, table: str, keys: list[Any]) -> list[dict[str, Any] | None]:
        return self._asked(table, keys, None)[0]

    def _asked(self, table: str, keys: list[Any], version: int | None) -> tuple[list[dict[str, Any] | None], int]:
        told = self._read("/v1/get", self._moment(version), {"get": {table: keys}}, pinned=version is not None)
        return [self._record(table, one) for one in told["records"][table]], told["version"]

    def _record(self, table: str, record: dict[str, Any] | None) -> dict[str, Any] | None:
        if record is None:
            return None
        columns = self._columns(table)
        if record.keys() != columns.types.keys():  # The schema has changed since.
            columns = self._columns(table, anew=True)
        return columns.record(record)

    def _columns(self, table: str, *, anew: bool = False) -> _Columns:
        found = self._tables.get(table)
        if found is None or anew:
            told = self._web.ask(f"/v1/tables/{quote(table, safe='')}", {"at_least": self._version or None})[1]["table"]
            found = self._tables[table] = _Columns(told["columns"])
        return found

    # -- calls, inside ----------------------------------------------------------------------

    def _called(self, name: str, values: dict[str, Any], told: _Told | None, until: float) -> dict[str, Any]:
        since, pause, tried = self._version, 0.02, told is not None
        while True:
            if told is None:
                try:
                    found = self._calls.ask((name, values, since if tried else None))
                except (UnreachableError, QueueFullError) as error:
                    found = error
            else:
                found, told = told, None
            if isinstance(found, dict) and found.get("waiting"):
                return self._waited(name, values, until)
            if isinstance(found, dict):
                return self._outcome(found)
            if not isinstance(found, UnreachableError | QueueFullError):
                raise found
            tried = tried or found.committed is None
            if (tried and not self._has_id(name, values)) or time.monotonic() + pause > until:
                if tried:
                    found.committed = None
                raise found
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _AT_MOST_S)

    def _in_order(self, name: str, several: list[dict[str, Any]], until: float) -> list[dict[str, Any] | PenstockError]:
        since = self._version
        try:
            told = self._posted(name, several, None)
        except (UnreachableError, QueueFullError) as error:
            if error.committed is None and not all(self._has_id(name, values) for values in several):
                raise
            told = self._again(name, several, since, until, error)
        found = list[dict[str, Any] | PenstockError]()
        for values, one in zip(several, told, strict=True):
            try:
                found.append(self._called(name, values, one, until))
            except PenstockError as error:
                found.append(error)
        return found

    def _again(
        self, name: str, several: list[dict[str, Any]], since: int, until: float, error: StateError
    ) -> list[_Told]:
        pause = 0.02
        while time.monotonic() + pause < until:
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _AT_MOST_S)
            try:
                return self._posted(name, several, since)
            except (UnreachableError, QueueFullError) as another:
                committed = None if error.committed is None else another.committed
                error = another
                error.committed = committed
        raise error

    def _waited(self, name: str, values: dict[str, Any], until: float) -> dict[str, Any]:
        """For an event that is kept, until its time has come."""
        id, pause = self._id(name), 0.02
        while id is not None and time.monotonic() < until:
            try:
                (found,) = self.outcome(values[id], name) or [{"outcome": None}]
                if found["outcome"] is not None:
                    outcome: dict[str, Any] = found["outcome"]
                    return outcome
            except UnreachableError:
                pass
            time.sleep(pause)
            pause = min(2 * pause, _AT_MOST_S)
        error = NotYetError(
            f"event '{name}' is kept, and its time has not come: the watermark holds it back; client.outcome(id) tells "
            "what becomes of it"
        )
        error.committed = True
        raise error

    def _call_all(self, asked: list[tuple[str, dict[str, Any], int | None]]) -> list[_Told]:
        """Calls that threads make at the same time: a request for each type of event. Those that may have been made
        before say so, and go apart."""
        found: dict[int, _Told] = {}
        groups: dict[tuple[str, int | None], list[int]] = {}
        for place, (name, _, since) in enumerate(asked):
            groups.setdefault((name, since), []).append(place)
        for (name, since), places in groups.items():
            several = [asked[place][1] for place in places]
            try:
                told = self._posted(name, several, since)
            except InputError as error:  # One of them is wrong: which one is for its own thread to be told.
                told = [error] if len(several) == 1 else [self._posted_alone(name, one, since) for one in several]
            except PenstockError as error:
                told = [error] * len(several)
            found |= dict(zip(places, told, strict=True))
        return [found[place] for place in range(len(asked))]

    def _posted_alone(self, name: str, values: dict[str, Any], since: int | None) -> _Told:
        try:
            return self._posted(name, [values], since)[0]
        except PenstockError as error:
            return error

    def _posted(self, name: str, several: list[dict[str, Any]], since: int | None) -> list[_Told]:
        path = f"/v1/events/{quote(name, safe='')}"
        query = {"since": since, "timeout_ms": int(self._timeout * 900)}
        told = self._web.ask(path, query, several, again=False)[1]
        self._see(told["version"])
        return [error_of(one, 400) if "error" in one else one for one in told["outcomes"]]

    def _outcome(self, row: dict[str, Any]) -> dict[str, Any]:
        self._see(row["version"])
        types = self._outcome_types()
        return {name: _value(types[name], value) if name in types else value for name, value in row.items()}

    def _outcome_types(self) -> dict[str, Type]:
        if self._outcomes is None:
            told = self._web.ask("/v1/events")[1]
            self._ids = {name: event["id"] for name, event in told["events"].items()}
            self._outcomes = {name: type_of(text) for name, text in told["outcomes"].items()}
        return self._outcomes

    def _id(self, name: str) -> str | None:
        """The field of an event that is its id."""
        if name not in self._ids:
            self._outcomes = None
            self._outcome_types()
        return self._ids.get(name)

    def _has_id(self, name: str, values: dict[str, Any]) -> bool:
        try:
            id = self._id(name)
        except UnreachableError:
            return "id" in values  # The server is gone: so its field is called most often.
        return id is not None and values.get(id) is not None


def connect(url: str, token: str | None = None, *, timeout: float = 30.0, tls: ssl.SSLContext | None = None) -> Client:
    """A client of `penstock serve`.

    Args:
        url: Where the server is, as it says: "http://127.0.0.1:7400".
        token: What it wants to see; a write token to call. Of a server of this user on this machine it is found.
        timeout: Seconds for an answer, and for a call that has to be sent again until it is known what became of it.
        tls: For https; None: certificates that this machine trusts.
    """
    return Client(url, token, timeout=timeout, tls=tls)


_Told = dict[str, Any] | PenstockError


class _Columns:
    """A table's columns, and what JSON has of them that is not as Python has it."""

    def __init__(self, told: list[dict[str, Any]]) -> None:
        self.types = types = {one["name"]: type_of(one["type"]) for one in told}
        self._nullable = {one["name"]: bool(one["nullable"]) for one in told}
        self._other = [(name, type_) for name, type_ in types.items() if type_.kind not in ("int", "str", "bool")]

    def record(self, record: dict[str, Any] | None) -> dict[str, Any] | None:
        if record is not None:
            for name, type_ in self._other:
                if name in record:
                    record[name] = _value(type_, record[name])
        return record

    def table(self, rows: list[dict[str, Any]], more: dict[str, pa.DataType] | None = None) -> pa.Table:
        """more: columns before these, where a row may lack any of the table's."""
        fields = [pa.field(name, type_) for name, type_ in (more or {}).items()]
        fields += [
            pa.field(name, type_.arrow(), nullable=more is not None or self._nullable[name])
            for name, type_ in self.types.items()
        ]
        return pa.Table.from_pylist([self.record(row) for row in rows], schema=pa.schema(fields))


def _value(type_: Type, value: Any) -> Any:
    return None if value is None else of_json(type_, value)


def _key(key: Any) -> Any:
    return list(key) if isinstance(key, tuple) else key


def _in_path(key: Any) -> str:
    parts = key if isinstance(key, tuple) else (key,)
    texts = [part if isinstance(part, str) else dumps(part).decode().strip('"') for part in parts]
    return ",".join(quote(text, safe="") for text in texts)


def _given(event: Any, fields: dict[str, Any] | None) -> tuple[str, dict[str, Any]]:
    """Its name, and its fields as JSON has them."""
    if isinstance(event, str) and isinstance(fields, dict):
        name, values = event, fields
    elif fields is None and hasattr(event, "definition") and hasattr(event, "values"):
        name, values = event.definition.name, event.values
    else:
        raise InputError(f'{event!r} is not an event; give one such as Transfer(id=7), or "Transfer" and its fields')
    return name, {field: plain(_bare(value)) for field, value in values.items()}


def _bare(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    return [_bare(one) for one in value] if isinstance(value, list | tuple) else value


def _sql_type(text: str) -> Type | None:
    """What a column of DuckDB's is here; None where JSON has its values as they are."""
    if text.startswith("DECIMAL("):
        precision, scale = map(int, text.removeprefix("DECIMAL(").removesuffix(")").split(","))
        return Type("decimal", precision, scale)
    kinds = {"TIMESTAMP WITH TIME ZONE": "datetime", "DATE": "date", "DOUBLE": "float", "FLOAT": "float"}
    return Type(kinds[text]) if text in kinds else None
