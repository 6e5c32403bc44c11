"""Changes as they come, as Server-Sent Events: a browser's EventSource goes on by itself where it was cut off.

    GET /v1/tables/T/records/K/changes       first the record as it is, then each version that changed it, once
    GET /v1/tables/T/changes                 first the version, then what each one changed

    id: 17                                   the version: sent back as Last-Event-ID, what follows it comes
    data: {"version":17,"change":"written","record":{…}}

A version with many changes comes in several events; only the last has the id, so that none is lost where a connection
ends between them. What is retained no more is told as 410, or, in the middle, as an event `error`, which ends the
stream.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.declare.model import TableDef
from penstock.errors import PenstockError
from penstock.serve.http.answers import Refusal, Stream, refusal_of
from penstock.serve.http.call import AT_LEAST, TIMEOUT, Call
from penstock.serve.http.feed import Feed, Item, chunks
from penstock.serve.http.metrics import Sample
from penstock.serve.http.options import Options
from penstock.serve.http.records import table_of
from penstock.serve.http.routes import Param, Route, texts_of
from penstock.serve.http.site import Site
from penstock.serve.http.values import dumps, finite, floats_of, key_of_path

STREAMS_MAX = 500
_ROWS_MAX = 1000  # in one event
AFTER = Param("after", "integer", "What follows this version; as the header Last-Event-ID, which goes before.")
_AT_ONCE = 20_000  # rows that are looked through on the event loop


async def of_record(call: Call, feed: Feed) -> Stream:
    after = await _after(call)
    site = call.site
    table = table_of(site.reader.tables, call.part("table"), site.reader.version)
    key = key_of_path(table, texts_of(call.raw["key"]))
    version, first = after, list[bytes]()
    await _begin(feed, after)
    last: bytes | None = None
    if version is None:
        with site.cuts.at(None) as cut:
            version, found = cut.version, cut.get(table.name, key)
        last = dumps(None if found is None else finite(found, floats_of(table)))
        first.append(_event(b'{"version":%d,"record":%b}' % (version, last), version))
    parts = key if isinstance(key, tuple) else (key,)
    where = {column.name: [part] for column, part in zip(table.keys, parts, strict=True)}

    async def events() -> AsyncIterator[bytes]:
        nonlocal last
        for event in first:
            yield event
        async for item in feed.after(table.name, version, where):
            if item is None:
                yield _beat(site)
                continue
            rows = item.tables.get(table.name)
            if rows is None:
                continue
            record = await _last_of(site, rows, where)
            if record is None:
                continue
            change = record.pop("change")
            told = dumps(None if change == "deleted" else finite(record, _floats(rows)))
            if change == "loaded" and told == last:
                continue  # It was there when the first event was made.
            last = told
            yield _event(
                b'{"version":%d,"change":"%b","record":%b}' % (item.version, change.encode(), told), item.version
            )

    return _stream(feed, events(), version)


async def of_table(call: Call, feed: Feed) -> Stream:
    after = await _after(call)
    site = call.site
    table = table_of(site.reader.tables, call.part("table"), site.reader.version)
    await _begin(feed, after)
    version = site.reader.version if after is None else after

    async def events() -> AsyncIterator[bytes]:
        if after is None:
            yield _event(b'{"version":%d}' % version, version)
        async for item in feed.after(table.name, version, None):
            if item is None:
                yield _beat(site)
            elif table.name in item.tables:
                if table.name not in item.told:
                    item.told[table.name] = await site.in_thread(_told, table, item)
                for event in item.told[table.name]:
                    yield event

    return _stream(feed, events(), version)


async def _after(call: Call) -> int | None:
    """Behind which version to begin; None: now."""
    given = next((value for name, value in call.scope["headers"] if name == b"last-event-id"), None)
    if given is not None and not (given.isdigit() and len(given) <= 18):
        raise Refusal(400, "bad_request", "Last-Event-ID is no version; send the id of the last event, or none")
    await call.moment()
    after: int | None = call.query.get("after") if given is None else int(given)
    if after is not None and after > call.site.reader.version:
        await call.site.versions.wait(after, call.timeout)
    return after


async def _begin(feed: Feed, after: int | None) -> None:
    if feed.streams >= STREAMS_MAX:
        raise Refusal(503, "busy", f"{STREAMS_MAX} streams are open; close one, or come again")
    await feed.begin()
    if after is not None:
        await feed.check(after)


def _stream(feed: Feed, events: AsyncIterator[bytes], version: int) -> Stream:
    async def parts() -> AsyncIterator[bytes]:
        feed.streams += 1
        try:
            yield b"retry: 1000\n\n"
            async for event in events:
                yield event
        except (PenstockError, KeyError) as error:
            # Else the table has gone, or its key has another name, since the stream began.
            told = refusal_of(error) if isinstance(error, PenstockError) else _OTHER
            yield b"event: error\ndata: " + told.answer().body + b"\n\n"
        finally:
            feed.streams -= 1

    return Stream(parts(), version)


_OTHER = Refusal(410, "not_retained", "the table has other keys now; begin anew")


async def _last_of(site: Site, rows: pa.Table, where: dict[str, list[Any]]) -> dict[str, Any] | None:
    if rows.num_rows > _AT_ONCE:
        return await site.in_thread(_matching, rows, where)
    return _matching(rows, where)


def _matching(rows: pa.Table, where: dict[str, list[Any]]) -> dict[str, Any] | None:
    for name, (value,) in where.items():
        rows = rows.filter(pc.equal(rows.column(name), pa.scalar(value, rows.schema.field(name).type)))
    found: dict[str, Any] | None = rows.slice(rows.num_rows - 1).to_pylist()[0] if rows.num_rows else None
    return found


def _told(table: TableDef, item: Item) -> list[bytes]:
    several, events = list(chunks(item.tables[table.name], _ROWS_MAX)), []
    floats = _floats(several[0])
    for place, rows in enumerate(several, 1):
        changes = dumps([finite(row, floats) for row in rows.to_pylist()])
        is_last = place == len(several)
        more = b"" if is_last else b',"more":true'
        content = b'{"version":%d,"changes":%b%b}' % (item.version, changes, more)
        events.append(_event(content, item.version if is_last else None))
    return events


def _floats(rows: pa.Table) -> list[str]:
    """Of the rows themselves: a column may be newer than the stream."""
    return [field.name for field in rows.schema if pa.types.is_floating(field.type)]


def _event(data: bytes, version: int | None) -> bytes:
    # JSON has no line breaks of its own.
    return (b"" if version is None else b"id: %d\n" % version) + b"data: %b\n\n" % data


def _beat(site: Site) -> bytes:
    return b": version %d\n\n" % site.reader.version


_PARAMS = (AFTER, AT_LEAST, TIMEOUT)


def add(site: Site, options: Options) -> None:
    feed = Feed(site)
    site.add(
        [
            Route(
                "GET",
                "/v1/tables/{table}/records/{key}/changes",
                partial(of_record, feed=feed),
                says="A record as it is, and then each version that changes it, as Server-Sent Events.",
                params=_PARAMS,
                type="text/event-stream",
            ),
            Route(
                "GET",
                "/v1/tables/{table}/changes",
                partial(of_table, feed=feed),
                says="What each version changes in a table, as Server-Sent Events.",
                params=_PARAMS,
                type="text/event-stream",
            ),
        ]
    )
    site.metrics.add(lambda: [Sample("penstock_http_streams", "Streams of changes that are open.", feed.streams)])
