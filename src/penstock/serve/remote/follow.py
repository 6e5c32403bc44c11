"""Changes as a server tells them (Server-Sent Events), over as many connections as it takes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPException
from typing import Any

from penstock.serve.remote.web import UnreachableError, Web, error_of

_AT_MOST_S = 1.0


def follow(web: Web, path: str, after: int | None, timeout: float) -> Iterator[dict[str, Any]]:
    """Each event, once. Where the server has gone it asks again, for so long as timeout says; then it raises."""
    last, since, pause = after, time.monotonic(), 0.02
    while True:
        try:
            connection, response = web.stream(path, {}, last)
        except UnreachableError:
            if time.monotonic() - since > timeout:
                raise
            time.sleep(pause)
            pause = min(2 * pause, _AT_MOST_S)
            continue
        try:
            pause = 0.02
            with suppress(OSError, HTTPException):
                for told, version in _events(response):
                    since = time.monotonic()
                    if version is not None:
                        last = version
                    yield told
        finally:
            connection.close()


def _events(response: Any) -> Iterator[tuple[dict[str, Any], int | None]]:
    version: int | None = None
    kind, data = "", list[str]()
    while line := response.readline():
        text = line.decode().rstrip("\r\n")
        if not text:
            if data:
                told = json.loads("\n".join(data))
                if kind == "error":
                    raise error_of(told, 410)
                yield told, version
            version, kind, data = None, "", []
            continue
        name, _, value = text.partition(":")
        value = value.removeprefix(" ")
        if name == "id":
            version = int(value)
        elif name == "event":
            kind = value
        elif name == "data":
            data.append(value)
