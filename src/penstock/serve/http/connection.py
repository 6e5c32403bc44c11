"""Connection: uvicorn's, with limits on what a client can make it hold, and how long.

    connections        CONNECTIONS_MAX; who comes then is told 503
    the head           URL_MAX, HEADERS_MAX in number, HEAD_MAX in bytes, HEAD_S until it has come
    the body           its size and its time are the handler's (call.py)
    the answer         SEND_S without the client taking any of it

uvicorn limits none of these for httptools. Times are looked at once a second for all connections, so that a request
pays for no timer of its own.
"""

from __future__ import annotations

import asyncio
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from penstock.serve.http.answers import Refusal

CONNECTIONS_MAX = 1000
URL_MAX = 8 << 10
HEADERS_MAX = 100
HEAD_MAX = 32 << 10
HEAD_S = 10.0
SEND_S = 60.0
# What one read may bring without the parser having told of any of it: more is one endless name, value or chunk head.
_SILENT_MAX = 64 << 10


class Connection(HttpToolsProtocol):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._silent = 0
        self._head = 0
        self._waits_since: float | None = None  # for the rest of a head
        self._stuck_since: float | None = None  # an answer, with a client that does not read
        self._refusal: Refusal | None = None
        self._running: RequestResponseCycle | None = None  # what is being answered

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._waits_since = self.loop.time()
        if len(self.connections) > CONNECTIONS_MAX:
            self._refuse(Refusal(503, "busy", f"{CONNECTIONS_MAX} connections are open; close one, or come again"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._waits_since = self._stuck_since = None
        if self._running is not None and not self._running.response_complete:
            _leave(self._running)  # uvicorn tells only the newest request of a connection
        super().connection_lost(exc)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def data_received(self, data: bytes) -> None:
        if self._refusal is not None:
            return  # It is closed as soon as its answer is out.
        self._silent += len(data)
        super().data_received(data)
        if self._silent > _SILENT_MAX and self._refusal is None:
            self._refuse(Refusal(431, "head_too_large", "a header is too long; send less"))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._silent = self._head = 0
        self._waits_since = self.loop.time()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._silent = 0
        if len(self.url) > URL_MAX:
            self._stop(414, "url_too_long", f"the URL has more than {URL_MAX} bytes; POST /v1/get takes many keys")

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._silent = 0
        self._head += len(name) + len(value)
        if self._head > HEAD_MAX or len(self.headers) > HEADERS_MAX:
            self._stop(431, "head_too_large", f"there are more than {HEADERS_MAX} headers, or {HEAD_MAX} bytes of them")

    def on_headers_complete(self) -> None:
        self._silent = 0
        self._waits_since = None
        if self.url[:1] != b"/" and not self.url.startswith((b"http://", b"https://")):
            self._stop(400, "bad_request", "the request names no path")
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._silent = 0
        super().on_body(body)

    def pause_writing(self) -> None:
        self._stuck_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stuck_since = None
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """httptools refused the request, or one of the limits here did."""
        if self._refusal is None:
            self._refuse(Refusal(400, "bad_request", "this is not HTTP/1.1"))

    def _stop(self, status: int, error: str, says: str) -> None:
        """Ends the parsing: httptools hands on what a callback raises, as an error of its own."""
        self._refuse(Refusal(status, error, says))
        raise httptools.HttpParserError(says)

    def _refuse(self, refusal: Refusal) -> None:
        """Says so, and hangs up; behind the answer to what came before, where that is under way."""
        self._refusal, self._waits_since = refusal, None
        running = self._running
        if running is not None and not running.response_complete:
            self.pipeline.clear()
            if running is not self.cycle or not running.more_body:
                running.keep_alive = False  # so its answer is the last
                return
            _leave(running)  # its own body is what is wrong
        if running is None or running.response_complete or not running.response_started:
            answer = refusal.answer()
            head = STATUS_LINE[answer.status] + b"content-type: application/json\r\nconnection: close\r\n"
            head += b"".join(b"%s: %s\r\n" % header for header in answer.headers)
            self.transport.write(b"%scontent-length: %d\r\n\r\n%s" % (head, len(answer.body), answer.body))
        self.transport.close()

    def look(self, now: float) -> None:
        """Ends what takes too long."""
        if self._waits_since is not None and now - self._waits_since > HEAD_S:
            self._refuse(Refusal(408, "timeout", f"the request did not come within {HEAD_S:g} s"))
        elif self._stuck_since is not None and now - self._stuck_since > SEND_S:
            self.transport.abort()


def _leave(cycle: RequestResponseCycle) -> None:
    """Nobody takes its answer any more."""
    cycle.disconnected = True
    cycle.message_event.set()


async def look_at(connections: set[Any]) -> None:
    """Goes on until it is cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(1.0)
        now = loop.time()
        for one in list(connections):
            if isinstance(one, Connection):
                one.look(now)
