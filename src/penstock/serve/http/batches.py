"""The routes of what happened: the last batches, one batch, one event.

GET  /v1/batches           counts, aborts by reason, the clock, stages and policy of each; and sums over them
GET  /v1/batches/V         one of them: outcomes, and what it changed
GET  /v1/versions          from which version on tables can be read
GET  /v1/find?id=        where the event with this id is: its version, and its row there
GET  /v1/trace/ID          the event with this id: its outcome, its round, what its version changed
GET  /v1/batches/V/events/N            the same of the event that has row N of the outcomes of version V
GET  /v1/batches/V/events/N/again      what each step of its round read and wrote, by running it again
GET  /v1/batches/V/graph               who waits for whom, and the hottest records, by running it again
GET  /v1/app               the plan of each transaction, and the source that is compiled
"""

from __future__ import annotations

from typing import Any

from penstock.inspect.batch import OUTCOMES, OUTCOMES_MAX, batch
from penstock.inspect.batches import LIMIT, LIMIT_MAX, Batches
from penstock.inspect.overview import overview
from penstock.inspect.places import Place, at, find
from penstock.inspect.trace import trace
from penstock.serve.http.answers import Answer, Refusal
from penstock.serve.http.call import NEWEST, Call
from penstock.serve.http.options import Options
from penstock.serve.http.rerun import Rerun
from penstock.serve.http.routes import Param, Route
from penstock.serve.http.site import Site
from penstock.serve.http.values import dumps, plain

_LIMIT = Param("limit", "integer", f"How many, at most; {LIMIT} unless told, and {LIMIT_MAX} at most.")
_BEFORE = Param("before", "integer", "Only versions before this one.")
_ROWS = Param("limit", "integer", f"How many outcomes; {OUTCOMES} unless told, and {OUTCOMES_MAX} at most.")
_OFFSET = Param("offset", "integer", "How many outcomes to leave out first.")
_STATUS = Param("status", "string", "Only outcomes of this status: committed, aborted, late, duplicate, rejected.")


_ID = Param("id", "string", "An event's id.")


class History:
    """Handlers over what is retained of the log."""

    def __init__(self, batches: Batches, rerun: Rerun, *, sql: bool) -> None:
        self._batches, self._rerun, self._sql = batches, rerun, sql

    async def batches(self, call: Call) -> Answer:
        await call.moment()
        limit = _within(call, LIMIT, LIMIT_MAX)
        return await call.site.in_thread(self._last, call, limit)

    def _last(self, call: Call, limit: int) -> Answer:
        now = call.site.reader.version
        # The log may be ahead of the replica, and what is told of a version is there for whoever asks next.
        found = self._batches.last(now, limit, call.query.get("before"))
        return Answer(dumps({"version": now, "batches": found, "together": overview(found)}), now)

    async def versions(self, call: Call) -> Answer:
        await call.moment()
        return await call.site.in_thread(self._versions, call)

    def _versions(self, call: Call) -> Answer:
        now = call.site.reader.version
        oldest = min(self._batches.commits.directory.oldest, now)
        return Answer(dumps({"version": now, "oldest": oldest, "sql": self._sql}), now)

    async def batch(self, call: Call) -> Answer:
        await call.moment()
        limit = _within(call, OUTCOMES, OUTCOMES_MAX)
        return await call.site.in_thread(self._batch, call, self._known(call), limit)

    def _batch(self, call: Call, version: int, limit: int) -> Answer:
        now = call.site.reader.version
        offset, status = call.query.get("offset", 0), call.query.get("status")
        found = batch(self._batches, version, limit=limit, offset=offset, status=status)
        return Answer(dumps({"version": now, **plain(found)}), now)

    async def trace(self, call: Call) -> Answer:
        await call.moment()
        return await call.site.in_thread(self._trace, call, call.part("id"))

    def _trace(self, call: Call, id: str) -> Answer:
        now = call.site.reader.version
        place = find(self._batches, id, now)
        if place is None:
            says = f"no retained version has an event with the id {_short(id)}"
            raise Refusal(404, "no_event", says, version=now)
        return self._traced(place, now)

    async def events(self, call: Call) -> Answer:
        await call.moment()
        if "id" not in call.query:
            raise Refusal(400, "bad_request", "give the event's id: /v1/find?id=…")
        return await call.site.in_thread(self._events, call)

    def _events(self, call: Call) -> Answer:
        now = call.site.reader.version
        place = find(self._batches, call.query["id"], now)
        found = [] if place is None else [{"version": place.commit.version, "place": place.row}]
        return Answer(dumps({"version": now, "events": found}), now)

    async def event(self, call: Call) -> Answer:
        await call.moment()
        return await call.site.in_thread(self._event, call, self._known(call), number_of(call, "row"))

    def _event(self, call: Call, version: int, row: int) -> Answer:
        return self._traced(at(self._batches, version, row), call.site.reader.version)

    def _traced(self, place: Place, now: int) -> Answer:
        return Answer(dumps({"version": now, **plain(trace(self._batches, place))}), now)

    async def again(self, call: Call) -> Answer:
        await call.moment()
        return await self._ask(call, {"again": [self._known(call), number_of(call, "row")]})

    async def graph(self, call: Call) -> Answer:
        await call.moment()
        return await self._ask(call, {"graph": self._known(call)})

    async def app(self, call: Call) -> Answer:
        return await self._ask(call, {"app": True})

    async def _ask(self, call: Call, question: dict[str, Any]) -> Answer:
        told = await self._rerun.ask(question)
        now = call.site.reader.version
        return Answer(dumps({"version": now, **told}), now)

    def _known(self, call: Call) -> int:
        version, now = number_of(call, "number"), call.site.reader.version
        if not 1 <= version <= now:
            raise Refusal(
                404, "no_version", f"there is no batch of version {version}; the newest is {now}", version=now
            )
        return version


def number_of(call: Call, part: str) -> int:
    text = call.part(part)
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise Refusal(400, "bad_request", "a version, or a row, is a whole number, 0 or above")
    return int(text)


def _within(call: Call, usual: int, most: int) -> int:
    limit: int = call.query.get("limit", usual)
    if not 1 <= limit <= most:
        raise Refusal(400, "bad_request", f"limit={limit} is not 1 to {most}")
    return limit


def _short(id: str) -> str:
    return repr(id if len(id) <= 60 else f"{id[:57]}...")


_BATCH: dict[str, Any] = {"type": "object", "additionalProperties": True}
_EVENT = {"outcome": _BATCH, "batch": _BATCH, "round": {"type": "array", "items": _BATCH}, "changed": _BATCH}


def add(site: Site, options: Options) -> None:
    rerun = Rerun(site.reader.path, options.explain)
    site.cleanup.append(rerun.end)
    history = History(Batches(site.reader.path), rerun, sql=options.sql)
    site.add(
        (
            Route(
                "GET",
                "/v1/batches",
                history.batches,
                params=(_LIMIT, _BEFORE, *NEWEST),
                says="The last batches, newest first: what became of their events, and how long they took.",
                answer={"batches": {"type": "array", "items": _BATCH}, "together": _BATCH},
            ),
            Route(
                "GET",
                "/v1/versions",
                history.versions,
                params=NEWEST,
                says="The oldest version whose tables can be read, and the newest; and whether SQL is taken.",
                answer={"oldest": {"type": "integer"}, "sql": {"type": "boolean"}},
            ),
            Route(
                "GET",
                "/v1/batches/{number}",
                history.batch,
                params=(_ROWS, _OFFSET, _STATUS, *NEWEST),
                says="The batch that made a version: its outcomes, and what it changed.",
                answer={"batch": _BATCH, "outcomes": _BATCH, "changes": _BATCH, "emitted": _BATCH},
            ),
            Route(
                "GET",
                "/v1/find",
                history.events,
                params=(_ID, *NEWEST),
                says="Where the newest event with this id is: its version, and its place among the outcomes of that.",
                answer={"events": {"type": "array", "items": _BATCH}},
            ),
            Route(
                "GET",
                "/v1/trace/{id}",
                history.trace,
                params=NEWEST,
                answer=_EVENT,
                says="The newest event with this id: its outcome, its round, what its version changed.",
            ),
            Route(
                "GET",
                "/v1/batches/{number}/events/{row}",
                history.event,
                params=NEWEST,
                answer=_EVENT,
                says="The same of the event that has this row of a version's outcomes.",
            ),
            Route(
                "GET",
                "/v1/batches/{number}/events/{row}/again",
                history.again,
                params=NEWEST,
                says="What each step of its round read and wrote. Needs the app, and a log that keeps events.",
                answer={"again": {"type": "array", "items": _BATCH}},
            ),
            Route(
                "GET",
                "/v1/batches/{number}/graph",
                history.graph,
                params=NEWEST,
                says="Who waits for whom in a batch, and its hottest records. Needs the same.",
                answer={"strata": {"type": "array"}, "hottest": {"type": "array"}, "nodes": {"type": "array"}},
            ),
            Route(
                "GET",
                "/v1/app",
                history.app,
                says="The plan of each transaction, and the source that is compiled.",
                answer={"explain": {"type": "string"}, "source": {"type": "string"}},
            ),
        )
    )
