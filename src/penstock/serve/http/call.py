"""Call: one request, as a handler sees it: its parts, its query, its body, and the version that it is answered at.

version=7          exactly this version
at_least=7         this one or a newer; waits for it
max_age_ms=100     no more than so far behind what is durable; waits for that
timeout_ms=5000    how long it waits, before it is told 503
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import orjson

from penstock.serve.http.answers import Refusal
from penstock.serve.http.routes import Param, Route, text_of

if TYPE_CHECKING:
    from penstock.serve.http.site import Site

VERSION = Param("version", "integer", "Answer as of exactly this version.")
AT_LEAST = Param("at_least", "integer", "Answer as of this version or a newer one; wait for it.")
TIMEOUT = Param("timeout_ms", "integer", "How long to wait before the answer is 503; 5000 unless told.")
MAX_AGE = Param("max_age_ms", "integer", "Be at most so far behind what is durable; wait for that.")
NEWEST = (AT_LEAST, MAX_AGE, TIMEOUT)
ANY_VERSION = (VERSION, *NEWEST)

TIMEOUT_MS, TIMEOUT_MS_MAX = 5_000, 60_000
BODY_S = 30.0
_DIGITS_MAX = 18  # what an int64 holds for certain
_PARAMS_MAX = 20


class Call:
    __slots__ = ("_query", "method", "raw", "receive", "route", "scope", "site")

    def __init__(self, site: Site, route: Route, raw: dict[str, bytes], scope: Any, receive: Any) -> None:
        self.site, self.route, self.raw, self.scope, self.receive = site, route, raw, scope, receive
        self._query: dict[str, Any] | None = None

    def part(self, name: str) -> str:
        """A part of the path in braces."""
        return text_of(self.raw[name])

    @property
    def query(self) -> dict[str, Any]:
        """The query string: names that the route knows, each once, of its kind."""
        if self._query is None:
            text = self.scope["query_string"]
            self._query = _parsed(text, self.route) if text else {}
        return self._query

    @property
    def timeout(self) -> float:
        """How many seconds it may wait for its version."""
        return min(self.query.get("timeout_ms", TIMEOUT_MS), TIMEOUT_MS_MAX) / 1000

    async def moment(self) -> int | None:
        """Waits for the version that was asked for; gives it where it is exactly one, and None for the newest."""
        if not self.scope["query_string"]:
            return None
        query, timeout = self.query, self.timeout
        versions = self.site.versions
        exact: int | None = query.get("version")
        least: int | None = query.get("at_least")
        if exact is not None and least is not None and exact < least:
            raise Refusal(400, "bad_request", f"version={exact} is not at_least={least}; give one of them")
        if least is not None:
            await versions.wait(least, timeout)
        if "max_age_ms" in query and exact is None:
            await versions.fresh(query["max_age_ms"] / 1000, timeout)
        return exact

    async def body(self) -> bytes:
        """All of it, within the limits of size and time."""
        most = self.route.body_max
        length = next((value for name, value in self.scope["headers"] if name == b"content-length"), b"")
        if length.isdigit() and int(length[:20]) > most:
            raise _too_large(most)
        message = await self.receive()
        if message.get("more_body"):
            try:
                async with asyncio.timeout(BODY_S):
                    return await self._rest(message, most)
            except TimeoutError:
                raise Refusal(408, "timeout", f"the body did not come within {BODY_S:g} s; send it at once") from None
        body: bytes = message.get("body", b"")
        if len(body) > most:
            raise _too_large(most)
        return body

    async def _rest(self, message: Any, most: int) -> bytes:
        parts, size = list[bytes](), 0
        while True:
            if message["type"] == "http.disconnect":
                raise Refusal(400, "bad_request", "the request ended before its body did")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > most:
                raise _too_large(most)
            if not message.get("more_body"):
                return b"".join(parts)
            message = await self.receive()

    async def json(self) -> Any:
        """The body as JSON. Only as such a type do browsers ask before a foreign page may send it."""
        kind = next((value for name, value in self.scope["headers"] if name == b"content-type"), b"")
        if kind.split(b";")[0].strip().lower() != b"application/json":
            raise Refusal(415, "media_type", "the body is to be JSON; say so: Content-Type: application/json")
        try:
            return orjson.loads(await self.body())
        except orjson.JSONDecodeError as error:
            raise Refusal(400, "bad_request", f"the body is not JSON: {error}") from None


def _parsed(text: bytes, route: Route) -> dict[str, Any]:
    try:
        pairs = parse_qsl(text.decode("ascii"), True, True, errors="strict", max_num_fields=_PARAMS_MAX)
    except ValueError:  # which a UnicodeError is
        raise Refusal(
            400, "bad_request", f"the query is not name=value&…, in UTF-8, with at most {_PARAMS_MAX} names"
        ) from None
    found: dict[str, Any] = {}
    for name, value in pairs:
        param = route.param(name)
        if param is None:
            known = ", ".join(param.name for param in route.params) or "none"
            raise Refusal(400, "bad_request", f"this path has no {_short(name)}=; it has {known}")
        if name in found:
            raise Refusal(400, "bad_request", f"{name}= is there twice; give it once")
        if param.kind == "integer":
            if not (value.isascii() and value.isdigit() and len(value) <= _DIGITS_MAX):
                raise Refusal(400, "bad_request", f"{name}={_short(value)} is not a whole number, 0 or above")
            found[name] = int(value)
        else:
            found[name] = value
    return found


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."


def _too_large(most: int) -> Refusal:
    return Refusal(
        413,
        "too_large",
        f"the body has more than {most} bytes; send less at a time",
        headers=((b"connection", b"close"),),
    )
