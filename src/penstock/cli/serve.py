"""`penstock serve`: a server over a state directory; with --app the writer too, whose child the server then is."""

from __future__ import annotations

import json
import signal
import threading
from dataclasses import replace
from typing import Any

from rich.console import Console

from penstock.commit.identity import READ_TOKEN, WRITE_TOKEN
from penstock.errors import InputError
from penstock.serve.http.options import Options, need_extra


def serve(options: Options, *, parent: int | None, as_json: bool) -> None:
    need_extra()
    from penstock.serve.http.run import Listening
    from penstock.serve.http.run import serve as run

    def ready(told: Listening) -> None:
        if as_json:
            print(json.dumps(_as_json(told.url, told.pid, told.flight)), flush=True)
            return
        _say(options, told.url, None if told.tokens is None else told.tokens.read.decode(), told.flight)

    plan = None
    if options.explain is not None:
        from penstock.cli.pipeline import app_of

        plan = app_of(options.explain).plan
    run(options, ready, parent, plan)


def write_and_serve(app: str, options: Options, *, as_json: bool) -> None:
    """The writer in this process, and its server beside it; until Ctrl-C or SIGTERM."""
    need_extra()
    from penstock.cli.pipeline import app_of
    from penstock.serve.http.child import Served
    from penstock.serve.http.tokens import tokens_of

    found, options = app_of(app), replace(options, explain=app)
    options.check()
    ended = threading.Event()
    before = {one: signal.signal(one, lambda *_: ended.set()) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        with found.open(options.state, calls=True):
            served = Served(options)
            try:
                if as_json:
                    print(json.dumps(_as_json(served.url, served.pid, served.flight)), flush=True)
                else:
                    files = options.read_token_file, options.write_token_file
                    read = None if options.no_token else tokens_of(options.state, *files).read.decode()
                    _say(options, served.url, read, served.flight)
                while served.alive and not ended.wait(0.5):
                    pass
                if not ended.is_set():
                    raise InputError(f"the server of {options.state} has gone: {served.error}")
            finally:
                served.stop()
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _as_json(url: str, pid: int, flight: str | None) -> dict[str, Any]:
    return {"url": url, "pid": pid, **({} if flight is None else {"flight": flight})}


def _say(options: Options, url: str, read: str | None, flight: str | None) -> None:
    console = Console(stderr=True, highlight=False)

    def line(text: str) -> None:
        console.print(text, markup=False, soft_wrap=True)

    line(f"serving {options.state} at {url}/ (Ctrl-C ends it)")
    if read is None:
        line("  every process of this machine may ask: --no-token")
    else:
        line(f"  in a browser: {url}/?token={read}")
        for what, given, name in (
            ("read", options.read_token_file, READ_TOKEN),
            ("write", options.write_token_file, WRITE_TOKEN),
        ):
            line(f"  {what} token:  {given or options.state / name}")
    line(f"  routes:       {url}/docs")
    if flight is not None:
        line(f"  Arrow Flight: {flight}")
