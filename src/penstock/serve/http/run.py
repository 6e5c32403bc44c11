"""The server's process: a replica, a Site over it, uvicorn under it.

    penstock serve STATE     says where it listens, and serves until SIGTERM or Ctrl-C; started by another process
                             (child.py) also until that one has gone, however it went

Whoever adds routes or pages adds a function to PARTS: it gets the Site and the Options.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType

import uvicorn

from penstock.commit.identity import READ_TOKEN, WRITE_TOKEN
from penstock.plan.ir import Plan
from penstock.replica.reader import Reader
from penstock.serve import flight
from penstock.serve.console import console
from penstock.serve.http import batches, changes, documents, events, pages, records, sql, status
from penstock.serve.http.connection import Connection, look_at
from penstock.serve.http.guard import Guard
from penstock.serve.http.options import Options, listening
from penstock.serve.http.site import Site
from penstock.serve.http.tokens import Tokens, tokens_of
from penstock.serve.remote.here import noted

Part = Callable[[Site, Options], None]
PARTS: tuple[Part, ...] = (
    status.add,
    records.add,
    pages.add,
    changes.add,
    batches.add,
    events.add,
    sql.add,
    flight.add,
    documents.add,
    console.add,
)

_SWEEP_S = 5.0
_PARENT_S = 0.5
# Answers are of a moment, and none of them is a page of anybody's.
_HEADERS = [("x-content-type-options", "nosniff"), ("cache-control", "no-store")]


@dataclass(frozen=True, slots=True)
class Listening:
    """What is said once requests are answered."""

    url: str
    pid: int
    tokens: Tokens | None
    flight: str | None = None  # where it listens for Arrow Flight


def serve(
    options: Options, ready: Callable[[Listening], None], parent: int | None = None, plan: Plan | None = None
) -> None:
    """Serves until it is told to end. parent: the pid of who started it, with which it ends. plan: of the app, where it
    is at hand: a log of inputs is read by running it again."""
    options.check()
    with Reader(options.state, plan=plan) as reader:
        tokens = None if options.no_token else tokens_of(reader.path, options.read_token_file, options.write_token_file)
        listener = listening(options)
        try:
            host, _ = options.address
            port = listener.getsockname()[1]
            site = Site(reader, Guard(host, port, tokens, tls=options.tls_cert is not None))
            for part in PARTS:
                part(site, options)
            shown = f"[{host}]" if ":" in host else host
            url = f"http{'s' * (options.tls_cert is not None)}://{shown}:{port}"
            server = _Server(_config(site, options), site)
            told = Listening(url, os.getpid(), tokens, site.flight)
            beside = _noted(reader.path, port, options)
            with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner, beside:
                runner.run(_serve(server, listener, partial(ready, told), parent))
        finally:
            listener.close()


def _noted(state: Path, port: int, options: Options) -> AbstractContextManager[None]:
    """So that clients of this user on this machine find the tokens."""
    if options.no_token:
        return nullcontext()
    return noted(port, options.read_token_file or state / READ_TOKEN, options.write_token_file or state / WRITE_TOKEN)


def _config(site: Site, options: Options) -> uvicorn.Config:
    config = uvicorn.Config(
        site,
        http=Connection,
        loop="uvloop",
        ws="auto",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        headers=_HEADERS,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=5,
        proxy_headers=False,
        ssl_certfile=options.tls_cert,
        ssl_keyfile=options.tls_key,
    )
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # what clients send wrongly is told to them
    return config


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, site: Site) -> None:
        super().__init__(config)
        self.site = site
        site.connections = self.server_state.connections

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A second one ends it at once. uvicorn's own would raise the signal again afterwards: this is its end, not a
        failure."""
        self.force_exit = self.should_exit
        self.stop()

    def stop(self) -> None:
        self.should_exit = True
        self.site.stopping.set()


async def _serve(server: _Server, listener: object, ready: Callable[[], None], parent: int | None) -> None:
    beside = [asyncio.create_task(step) for step in (look_at(server.server_state.connections), _sweep(server.site))]
    beside.append(asyncio.create_task(_tell(server, ready)))
    if parent is not None:
        beside.append(asyncio.create_task(_end_with(server, parent)))
    try:
        await server.serve(sockets=[listener])  # type: ignore[list-item]
    finally:
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)


async def _tell(server: _Server, ready: Callable[[], None]) -> None:
    while not server.started:
        await asyncio.sleep(0.01)
    ready()


async def _sweep(site: Site) -> None:
    while True:
        await asyncio.sleep(_SWEEP_S)
        site.cuts.sweep()


async def _end_with(server: _Server, parent: int) -> None:
    while os.getppid() == parent:
        await asyncio.sleep(_PARENT_S)
    server.stop()
