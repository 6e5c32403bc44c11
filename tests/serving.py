"""A server for tests: a process of its own, on a port that is free, and a client that asks it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit


@dataclass
class Server:
    url: str
    pid: int
    process: subprocess.Popen[bytes]
    state: Path
    said: Path
    headers: dict[str, str] = field(default_factory=dict)
    flight: str | None = None

    @property
    def port(self) -> int:
        port = urlsplit(self.url).port
        assert port is not None
        return port

    def token(self, name: str = "read") -> str:
        return (self.state / f"{name}.token").read_text().strip()

    def connect(self, timeout: float = 60) -> HTTPConnection:
        return HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def ask(
        self, path: str, body: Any = None, *, headers: dict[str, str] | None = None, method: str | None = None
    ) -> tuple[int, Any]:
        """The status and what the JSON says."""
        status, _, content = self.raw(path, body, headers=headers, method=method)
        return status, json.loads(content)

    def raw(
        self, path: str, body: Any = None, *, headers: dict[str, str] | None = None, method: str | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        connection = self.connect()
        try:
            answer = send(connection, path, body, headers={**self.headers, **(headers or {})}, method=method)
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()


def send(
    connection: HTTPConnection,
    path: str,
    body: Any = None,
    *,
    headers: dict[str, str] | None = None,
    method: str | None = None,
) -> HTTPResponse:
    given = dict(headers or {})
    content = body
    if body is not None and not isinstance(body, bytes):
        content = json.dumps(body).encode()
    if body is not None:
        given.setdefault("Content-Type", "application/json")
    connection.request(method or ("GET" if body is None else "POST"), path, content, given)
    return connection.getresponse()


def key(*parts: object) -> str:
    """A key in a path."""
    return ",".join(quote(str(part), safe="") for part in parts)


@contextmanager
def serving(state: Path, *options: str, token: str | None = "read") -> Iterator[Server]:
    """A server over a state directory. token: which one is sent with each question."""
    server = start(state, *options)
    try:
        if "--no-token" not in options and token is not None:
            server.headers["Authorization"] = f"Bearer {server.token(token)}"
        yield server
    finally:
        stop(server)


def start(state: Path, *options: str) -> Server:
    said = state.parent / f"{state.name}.server.{os.urandom(4).hex()}"
    command = [sys.executable, "-m", "penstock", "serve", str(state), "--json"]
    if "--listen" not in options:
        command += ["--listen", "127.0.0.1:0"]
    with open(said, "wb") as file:
        process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=file, stdin=subprocess.DEVNULL)
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        process.wait()
        process.stdout.close()
        raise AssertionError(f"the server did not start: {said.read_text()}")
    told = json.loads(line)
    return Server(told["url"], told["pid"], process, state, said, flight=told.get("flight"))


def stop(server: Server) -> None:
    """It ends when it is told to, and says nothing of bugs."""
    server.process.terminate()
    try:
        code = server.process.wait(30)
    except subprocess.TimeoutExpired:
        server.process.kill()
        server.process.wait()
        raise
    finally:
        if server.process.stdout is not None:
            server.process.stdout.close()
    said = server.said.read_text()
    assert "Traceback" not in said, said
    assert code == 0, f"exit code {code}: {said}"
