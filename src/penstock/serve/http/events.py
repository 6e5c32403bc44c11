"""The routes of calls.

GET  /v1/events            what may be called
POST /v1/events/E          run an event now, or a list of them: answered when it is durable, with what became of it
GET  /v1/outcomes/ID       what became of a call, as long as that is retained

An event's id makes it safe to send again: it gets its first outcome. With other fields it is refused: 409. Where it may
have run before what is retained it is refused, too: 410. A call whose ts has to wait for the watermark is kept: 202;
its outcome comes in its time.
"""

from __future__ import annotations

import asyncio
import decimal
from typing import Any
from urllib.parse import quote

from penstock.errors import PenstockError, StateError
from penstock.serve.http.answers import Answer, Refusal, refusal_of
from penstock.serve.http.call import Call
from penstock.serve.http.metrics import Sample
from penstock.serve.http.options import Options
from penstock.serve.http.routes import READ, WRITE, Param, Route
from penstock.serve.http.site import Site
from penstock.serve.http.values import dumps, of_json
from penstock.serve.http.writer import WAITING_MAX, Ended, ServedEvent, Writer, plain_rows

_BODY_MAX = 8 << 20
_TIMEOUT_MS, _TIMEOUT_MS_MAX = 30_000, 600_000


class Events:
    def __init__(self, site: Site) -> None:
        self.writer = Writer(site.reader.app, site.reader.path)
        self.counts = {"ran": 0, "refused": 0, "waiting": 0}
        site.cleanup.append(self.writer.close)
        site.metrics.add(self._samples)

    async def post(self, call: Call) -> Answer:
        given = await call.json()
        name = call.part("event")
        event = await self._event(name)
        several = given if isinstance(given, list) else [given]
        if len(several) > WAITING_MAX:
            raise Refusal(413, "too_large", f"{len(several)} events are more than {WAITING_MAX}; send less at a time")
        if not several:
            return Answer(b'{"version":%d,"outcomes":[]}' % call.site.reader.version, call.site.reader.version)
        columns = _columns(event, several)
        timeout = min(call.query.get("timeout_ms", _TIMEOUT_MS), _TIMEOUT_MS_MAX) / 1000
        try:
            async with asyncio.timeout(timeout):
                reply = await self.writer.call(event, columns, len(several), call.query.get("since"))
        except TimeoutError:
            says = f"no answer has come within {timeout * 1000:.0f} ms: whether it has run is not known"
            raise _unknown(event, says) from None
        except StateError as error:
            if error.committed is None:
                raise _unknown(event, str(error)) from None
            raise
        self.counts["ran"] += len(several) - len(reply.refused) - len(reply.waiting)
        self.counts["refused"] += len(reply.refused)
        self.counts["waiting"] += len(reply.waiting)
        if isinstance(given, list):
            return _many(event, reply, several, call.site.reader.version)
        return _one(event, reply, several[0], call.site.reader.version)

    async def all_events(self, call: Call) -> Answer:
        try:
            told = await self.writer.all_events()
        except StateError as error:
            raise Refusal(503, "no_writer", str(error)) from None
        now = call.site.reader.version
        return Answer(dumps({"version": now, "events": told["events"], "outcomes": told["outcomes"]}), now)

    async def outcome(self, call: Call) -> Answer:
        id, event = call.part("id"), call.query.get("event")
        found = await self.writer.outcome(id, event)
        now = call.site.reader.version
        names, waiting = found.header["events"], found.header["waiting"]
        if not names and not waiting:
            says = f"nothing is known of a call with id {id!r}: there was none, or its outcome is not retained any more"
            raise Refusal(404, "no_outcome", says, version=now)
        rows = [] if found.rows is None else plain_rows(found.rows)
        told = [{"event": name, "outcome": row} for name, row in zip(names, rows, strict=True)]
        told += [{"event": name, "waiting": True} for name in waiting]
        version = max([now, *(row["version"] for row in rows)])
        return Answer(dumps({"version": version, "outcomes": told}), version, 202 if not names else 200)

    async def _event(self, name: str) -> ServedEvent:
        try:
            event = await self.writer.event(name)
        except StateError as error:
            raise Refusal(503, "no_writer", str(error)) from None
        if event is None:
            known = ", ".join(self.writer.events) or "none"
            raise Refusal(404, "no_event", f"there is no event {name[:60]!r} that may be called; there is {known}")
        return event

    def _samples(self) -> Any:
        for what, count in self.counts.items():
            yield Sample("penstock_calls_total", "Calls by what became of them.", count, "counter", (("ended", what),))
        yield Sample("penstock_calls_waiting", "Calls that wait to be sent to the writer.", self.writer.waiting)


def _columns(event: ServedEvent, several: list[Any]) -> list[list[Any]]:
    for place, one in enumerate(several):
        if not isinstance(one, dict):
            raise Refusal(400, "bad_request", f"{_at(event, place, several)}an event is an object of its fields")
        if not one.keys() <= event.types.keys():
            unknown = min(one.keys() - event.types.keys())
            known = ", ".join(event.types) or "none"
            says = f"{_at(event, place, several)}there is no field {unknown[:60]!r}; it has {known}"
            raise Refusal(400, "bad_request", says)
    columns = []
    for name, type_ in event.types.items():
        left_out, values = event.left_out[name], list[Any]()
        for place, one in enumerate(several):
            value = one.get(name, _ABSENT)
            try:
                values.append(left_out if value is _ABSENT else _value(type_, value))
            except (ValueError, TypeError, OverflowError, decimal.InvalidOperation):
                shown = repr(value)
                shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
                says = f"{_at(event, place, several)}field '{name}' is {type_}, not {shown}; {type_.takes}"
                raise Refusal(400, "bad_request", says) from None
        columns.append(values)
    return columns


_ABSENT = object()


def _value(type_: Any, value: Any) -> Any:
    if value is None:
        return None
    if type_.item is None:
        return of_json(type_, value)
    if not isinstance(value, list):
        raise ValueError(value)
    return [None if one is None else of_json(type_.item, one) for one in value]


def _at(event: ServedEvent, place: int, several: list[Any]) -> str:
    return f"event '{event.name}'{f', event {place} of {len(several)}' if len(several) > 1 else ''}: "


def _unknown(event: ServedEvent, says: str) -> Refusal:
    again = "; send it again with the same id, and it runs once" if event.id is not None else ""
    if "call again with the same id" in says:
        again = ""
    return Refusal(503, "unknown", f"{says}{again}", committed=None)


def _one(event: ServedEvent, reply: Ended, given: Any, now: int) -> Answer:
    if reply.refused:
        raise _refusal(reply.refused[0])
    if reply.waiting:
        told = {"version": now, "waiting": True, "outcome_at": _place(event, given)}
        return Answer(dumps(told), now, 202)
    (row,) = reply.rows
    version = max(row["version"], now)
    return Answer(b'{"version":%d,"outcome":%b}' % (version, dumps(row)), version)


def _many(event: ServedEvent, reply: Ended, given: list[Any], now: int) -> Answer:
    rows = iter(reply.rows)
    told: list[Any] = []
    version = now
    for place, one in enumerate(given):
        if place in reply.refused:
            refusal = _refusal(reply.refused[place])
            told.append({"error": refusal.error, "says": refusal.says, **refusal.more})
        elif place in reply.waiting:
            told.append({"waiting": True, "outcome_at": _place(event, one)})
        else:
            row = next(rows)
            version = max(version, row["version"])
            told.append(row)
    return Answer(dumps({"version": version, "outcomes": told}), version, 202 if reply.waiting else 200)


def _refusal(error: PenstockError) -> Refusal:
    refusal = refusal_of(error)
    refusal.more = {"committed": error.committed}
    if error.version is not None:
        refusal.more["ran_in"] = error.version
    return refusal


def _place(event: ServedEvent, given: dict[str, Any]) -> str | None:
    """Where its outcome will be; None: it has no id."""
    if event.id is None:
        return None
    return f"/v1/outcomes/{quote(str(given[event.id]), safe='')}?event={quote(event.name)}"


def add(site: Site, options: Options) -> None:
    events = Events(site)
    site.add(
        (
            Route(
                "GET",
                "/v1/events",
                events.all_events,
                READ,
                says="The events that may be called, their fields, and the columns of outcomes.",
                answer={"events": {"type": "object"}, "outcomes": {"type": "object"}},
            ),
            Route(
                "POST",
                "/v1/events/{event}",
                events.post,
                WRITE,
                says="Run an event now, or a list of events; answered when they are durable.",
                params=(
                    Param("since", "integer", "Of a retry: the version that there was before the first attempt."),
                    Param("timeout_ms", "integer", "How long to wait for what becomes of it; 30000 unless told."),
                ),
                body={"oneOf": [{"type": "object"}, {"type": "array", "items": {"type": "object"}}]},
                answer={"outcome": {"type": "object"}, "outcomes": {"type": "array", "items": {"type": "object"}}},
                body_max=_BODY_MAX,
            ),
            Route(
                "GET",
                "/v1/outcomes/{id}",
                events.outcome,
                READ,
                says="What became of the calls with an id, as long as it is retained.",
                params=(Param("event", "string", "Of this type of event only."),),
                answer={"outcomes": {"type": "array", "items": {"type": "object"}}},
            ),
        )
    )
