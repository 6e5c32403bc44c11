"""Site: the server's ASGI app. Read this file first.

    request ──> Guard ──> Router ──> a handler of routes  (/v1/…, /metrics, /openapi.json)  ──> Answer
            (guard.py)  (routes.py)
                             └─────> pages (Starlette: /, /docs, and what others mount)

Routes are plain ASGI, without a framework between: a request for one record takes little more than parsing HTTP does.
Handlers that read much run in threads, a few at a time; who comes while too many wait is told to come again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from penstock.errors import PenstockError
from penstock.serve.http.answers import Answer, Refusal, Stream, refusal_of
from penstock.serve.http.call import Call
from penstock.serve.http.cuts import Cuts
from penstock.serve.http.guard import Guard
from penstock.serve.http.metrics import Metrics
from penstock.serve.http.routes import NONE, READ, Route, Router
from penstock.serve.http.versions import Versions

if TYPE_CHECKING:
    from penstock.replica.reader import Reader
    from penstock.serve.http.sql import SqlProcess

T = TypeVar("T")
_log = logging.getLogger("penstock")
_THREADS = 4
_WAITING_MAX = 64
# More than this goes out in parts, so that a client that does not read holds no more of it than that in the socket.
_PART = 1 << 16


class Site:
    def __init__(self, reader: Reader, guard: Guard) -> None:
        self.reader, self.guard = reader, guard
        self.versions = Versions(reader)
        self.cuts = Cuts(reader)
        self.metrics = Metrics()
        self.router = Router()
        self.begun = time.monotonic()
        self.connections: set[Any] = set()  # uvicorn's
        self.stopping = asyncio.Event()  # streams end then
        self.door: tuple[bytes, str] | None = None  # a page for who comes to / without a token, and its policy
        self.cleanup: list[Callable[[], None]] = []  # what is to be done when the server ends
        self.loop: asyncio.AbstractEventLoop | None = None  # once it serves
        self.sql: SqlProcess | None = None  # where the server takes SQL
        self.flight: str | None = None  # where it listens for Arrow Flight
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="penstock-http")
        self._slots = asyncio.Semaphore(_THREADS)
        self.queued = 0
        self._pages: list[BaseRoute] = []
        self._starlette: Starlette | None = None

    def add(self, routes: Iterable[Route]) -> None:
        for route in routes:
            self.router.add(route)

    def mount(self, pages: Iterable[BaseRoute]) -> None:
        """Pages, by Starlette: what no route takes goes to them, in this order, once the token was seen."""
        self._pages += pages
        self._starlette = Starlette(routes=self._pages, exception_handlers={HTTPException: _in_json})
        self._starlette.router.redirect_slashes = False

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """For what takes longer than a lookup."""
        if self.queued >= _WAITING_MAX:
            raise Refusal(503, "busy", f"{_WAITING_MAX} requests wait already; come again")
        self.queued += 1
        try:
            async with self._slots:
                return await asyncio.get_running_loop().run_in_executor(self._threads, function, *args)
        finally:
            self.queued -= 1

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        kind = scope["type"]
        if kind == "http":
            await self._http(scope, receive, send)
        elif kind == "lifespan":
            await self._lifespan(receive, send)
        elif kind == "websocket":
            await self._websocket(scope, receive, send)

    async def _http(self, scope: Any, receive: Any, send: Any) -> None:
        begun = time.perf_counter()
        name = "none"
        try:
            found = self.router.match(scope["method"], scope["raw_path"])
            if found is None:
                name = "pages"
                status = await self._page(scope, receive, send)
                self.metrics.note(name, status, time.perf_counter() - begun)
                return
            route, parts = found
            name = route.path
            self.guard.check(scope, route.token)
            answer: Answer | Stream = await route.handler(Call(self, route, parts, scope, receive))
        except Refusal as refusal:
            answer = refusal.answer()
        except PenstockError as error:
            answer = refusal_of(error).answer()
        except Exception:
            _log.exception("a request of %s failed, which is a bug", name)
            answer = Refusal(500, "internal", "the server has a bug; its log says which").answer()
        if isinstance(answer, Stream) and scope["method"] == "HEAD":
            answer = Answer(b"", answer.version, type=answer.type)
        if isinstance(answer, Stream):
            await self._stream(answer, receive, send)
            self.metrics.note(name, 200, 0.0)
            return
        await _send(answer, send)
        self.metrics.note(name, answer.status, time.perf_counter() - begun)

    async def _page(self, scope: Any, receive: Any, send: Any) -> int:
        """What no route takes; the first visit brings the token, and gets a cookie instead."""
        if scope["path"] == "/" and b"token=" in scope["query_string"]:
            self.guard.check(scope, NONE)
            given = parse_qs(scope["query_string"].decode("ascii", "replace")).get("token", [""])[0]
            cookie = self.guard.cookie_of(given)
            if cookie is not None or self.guard.tokens is None:
                headers = [(b"location", b"/")] + ([(b"set-cookie", cookie.encode())] if cookie else [])
                await _send(Answer(b"", status=303, headers=tuple(headers)), send)
                return 303
        try:
            self.guard.check(scope, READ)
        except Refusal as refusal:
            if self.door is None or refusal.status != 401 or scope["path"] != "/" or not _is_browser(scope):
                raise
            content, policy = self.door
            more = (*refusal.headers, (b"content-security-policy", policy.encode()))
            await _send(Answer(content, status=401, type=b"text/html; charset=utf-8", headers=more), send)
            return 401
        if self._starlette is None or scope["path"].startswith("/v1/"):
            raise Refusal(404, "no_route", "there is no such path; /docs lists those that there are")
        status = 0

        async def noting(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._starlette(scope, receive, noting)
        except Exception:
            if not status:
                raise
            _log.exception("a page, %s, failed, which is a bug", scope["path"])  # and the client was told so
        return status

    async def _websocket(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            self.guard.check(scope, READ)
        except Refusal:
            await send({"type": "websocket.close", "code": 1008})
            return
        if self._starlette is None:
            await send({"type": "websocket.close", "code": 1008})
            return
        await self._starlette(scope, receive, send)

    async def _stream(self, answer: Stream, receive: Any, send: Any) -> None:
        headers = [(b"content-type", answer.type)]
        if answer.version is not None:
            headers.append((b"x-penstock-version", b"%d" % answer.version))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        gone = asyncio.create_task(_until_gone(receive))
        stopping = asyncio.create_task(self.stopping.wait())
        parts = aiter(answer.parts)
        try:
            while True:
                part = asyncio.ensure_future(anext(parts, None))
                await asyncio.wait((part, gone, stopping), return_when=asyncio.FIRST_COMPLETED)
                if not part.done() or part.result() is None:
                    part.cancel()
                    await asyncio.wait((part,))
                    break
                await send({"type": "http.response.body", "body": part.result(), "more_body": True})
        finally:
            gone.cancel()
            stopping.cancel()
            close = getattr(parts, "aclose", None)
            if close is not None:
                await close()
        await send({"type": "http.response.body", "body": b""})

    async def _lifespan(self, receive: Any, send: Any) -> None:
        await receive()
        self.loop = asyncio.get_running_loop()
        self.versions.start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self.versions.close()
        self.cuts.sweep(all_of_them=True)
        for step in reversed(self.cleanup):
            step()
        self._threads.shutdown(wait=False, cancel_futures=True)
        await send({"type": "lifespan.shutdown.complete"})


def _is_browser(scope: Any) -> bool:
    return any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])


async def _send(answer: Answer, send: Any) -> None:
    body = answer.body
    headers = [(b"content-type", answer.type), (b"content-length", b"%d" % len(body)), *answer.headers]
    if answer.version is not None:
        headers.append((b"x-penstock-version", b"%d" % answer.version))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    if len(body) <= _PART:
        await send({"type": "http.response.body", "body": body})
        return
    for start in range(0, len(body), _PART):
        part = body[start : start + _PART]
        await send({"type": "http.response.body", "body": part, "more_body": start + _PART < len(body)})


async def _in_json(request: Request, error: Exception) -> Response:
    """What Starlette, or a page, refuses, in the form of all refusals."""
    assert isinstance(error, HTTPException)
    kinds = {404: ("no_route", "there is no such page"), 405: ("method", "this page is for reading")}
    kind, says = kinds.get(error.status_code, ("bad_request", error.detail))
    answer = Refusal(error.status_code, kind, says).answer()
    return Response(answer.body, error.status_code, dict(error.headers or {}), "application/json")


async def _until_gone(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
