"""The routes of what happened: the last batches, one batch, one event.

    GET  /v1/batches           counts, aborts by reason, the clock, stages and policy of each; and sums over them
    GET  /v1/batches/V         one of them: outcomes, and what it changed
    GET  /v1/versions          from which version on tables can be read
"""

from __future__ import annotations

from typing import Any

from penstock.inspect.batch import OUTCOMES, OUTCOMES_MAX, batch
from penstock.inspect.batches import LIMIT, LIMIT_MAX, Batches
from penstock.inspect.overview import overview
from penstock.serve.http.answers import Answer, Refusal
from penstock.serve.http.call import NEWEST, Call
from penstock.serve.http.options import Options
from penstock.serve.http.routes import Param, Route
from penstock.serve.http.site import Site
from penstock.serve.http.values import dumps, plain

_LIMIT = Param("limit", "integer", f"How many, at most; {LIMIT} unless told, and {LIMIT_MAX} at most.")
_BEFORE = Param("before", "integer", "Only versions before this one.")
_ROWS = Param("limit", "integer", f"How many outcomes; {OUTCOMES} unless told, and {OUTCOMES_MAX} at most.")
_OFFSET = Param("offset", "integer", "How many outcomes to leave out first.")
_STATUS = Param("status", "string", "Only outcomes of this status: committed, aborted, late, duplicate, rejected.")


class History:
    """Handlers over what is retained of the log."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches

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
        return Answer(dumps({"version": now, "oldest": min(self._batches.commits.directory.oldest, now)}), now)

    async def batch(self, call: Call) -> Answer:
        await call.moment()
        limit = _within(call, OUTCOMES, OUTCOMES_MAX)
        return await call.site.in_thread(self._batch, call, version_of(call), limit)

    def _batch(self, call: Call, version: int, limit: int) -> Answer:
        now = call.site.reader.version
        if not 1 <= version <= now:
            raise Refusal(404, "no_version", f"there is no batch of version {version}; the newest is {now}", version=now)
        offset, status = call.query.get("offset", 0), call.query.get("status")
        found = batch(self._batches, version, limit=limit, offset=offset, status=status)
        return Answer(dumps({"version": now, **plain(found)}), now)


def version_of(call: Call) -> int:
    text = call.part("number")
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise Refusal(400, "bad_request", "a version is a whole number, 0 or above")
    return int(text)


def _within(call: Call, usual: int, most: int) -> int:
    limit: int = call.query.get("limit", usual)
    if not 1 <= limit <= most:
        raise Refusal(400, "bad_request", f"limit={limit} is not 1 to {most}")
    return limit


_BATCH: dict[str, Any] = {"type": "object", "additionalProperties": True}


def add(site: Site, options: Options) -> None:
    history = History(Batches(site.reader.path))
    site.add(
        (
            Route(
                "GET", "/v1/batches", history.batches, params=(_LIMIT, _BEFORE, *NEWEST),
                says="The last batches, newest first: what became of their events, and how long they took.",
                answer={"batches": {"type": "array", "items": _BATCH}, "together": _BATCH},
            ),
            Route(
                "GET", "/v1/versions", history.versions, params=NEWEST,
                says="The oldest version whose tables can be read, and the newest.",
                answer={"oldest": {"type": "integer"}},
            ),
            Route(
                "GET", "/v1/batches/{number}", history.batch, params=(_ROWS, _OFFSET, _STATUS, *NEWEST),
                says="The batch that made a version: its outcomes, and what it changed.",
                answer={"batch": _BATCH, "outcomes": _BATCH, "changes": _BATCH, "emitted": _BATCH},
            ),
        )
    )
