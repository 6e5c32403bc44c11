"""A fuzzer over every route of a real server: whatever comes, it answers with what is wrong, and goes on.

Each seed is a run of requests: right ones, broken ones, and what is no HTTP at all. Of each answer: no 5xx but 503, an
error that says what it is, never a traceback; and afterwards the server answers, has said nothing of bugs, and holds
little more memory than before. A failure prints the request.
"""

from __future__ import annotations

import json
import random
import re
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from serving import Server, key, serving

pytestmark = pytest.mark.faults

bank = ps.App("bank")


@bank.table
class Account:
    id: str = ps.key()
    balance: Decimal = ps.decimal(18, 2, default=0)
    rate: float | None = None


@bank.table
class Stock:
    warehouse: int = ps.key()
    item: str = ps.key()
    quantity: int = 0


@bank.event
class Deposit:
    ts: int = ps.order()
    id: str = ps.id()
    account: str
    amount: Decimal = ps.decimal(18, 2)


@bank.transaction
def deposit(e: Deposit) -> None:
    Account.get(e.account).balance += e.amount


ALLOWED = {200, 202, 303, 400, 401, 403, 404, 405, 408, 409, 410, 413, 414, 415, 429, 431, 503}
MEMORY_MORE = 400 << 20
TEXTS = [
    "a",
    "",
    "a1",
    "é",
    "\x00",
    "'",
    '"',
    "a,b",
    "1",
    "-1",
    "9" * 30,
    "../..",
    "..%2f..",
    "%00",
    "%",
    "%zz",
    "%ff",
    "%ed%a0%80",
    "+",
    "{}",
    "null",
    "true",
    "NaN",
    "1e999",
    "🜏" * 5,
    "x" * 3000,
    "x" * 20_000,
    ";",
    "a\r\nb: c",
    "${jndi:x}",
    "<script>",
    "0x10",
]
SQL = [
    "select 1",
    "select * from account",
    "select * from read_csv('/etc/passwd')",
    "copy account to '/tmp/penstock-fuzzed'",
    "attach '/tmp/penstock-fuzzed.db'",
    "drop view account",
    "create table x as select 1",
    "select 1; select 2",
    "",
    "select repeat('x', 30000000)",
    "with recursive t(a) as (select 1 union all select a + 1 from t) select max(a) from t",
    "select list(range) from range(100000000)",
    "install httpfs",
    "set memory_limit='1TB'",
    "explain select 1",
    "\x00",
    "(" * 5000,
    "select " + "1+" * 20_000 + "1",
    "select 'a' like repeat('%a', 1000)",
    "pragma enable_profiling",
    "select 1/0",
    "values (1",
    "select unnest(range(1000000))",
    "select interval '9999999 years'",
    "select 10::hugeint ** 30",
    "select '\\x00'::blob",
]
SLOW_SQL = {SQL[10]}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    state = tmp_path_factory.mktemp("fuzzed") / "bank"
    with bank.open(state, retain=20) as db:
        db.load(Stock, [{"warehouse": w, "item": "x", "quantity": 1} for w in range(10)])
        for ts in range(1, 6):
            db.run([Deposit(ts=ts, id=f"{ts}-{n}", account=f"a{n}", amount=Decimal(1)) for n in range(200)])
    with serving(state, "--sql", token="write") as running:
        assert running.ask("/v1/sql", {"sql": "select 1"})[0] == 200
        yield running


class Fuzzer:
    def __init__(self, server: Server, seed: int) -> None:
        self.server, self.choose = server, random.Random(seed)
        self.host = b"127.0.0.1:%d" % server.port
        self.token = server.token("write")
        self.left: list[socket.socket] = []  # clients that do not go on
        self.routes = server.ask("/openapi.json")[1]["paths"]
        self.posted = {path for path, methods in self.routes.items() if "post" in methods}
        told = [
            one["name"] for methods in self.routes.values() for how in methods.values() for one in how["parameters"]
        ]
        self.names = sorted(set(told))

    # -- what is asked --------------------------------------------------------------------------------------------

    def text(self) -> str:
        c = self.choose
        if c.random() < 0.2:
            return "".join(
                chr(c.choice([c.randrange(1, 128), c.randrange(128, 0xD7FF)])) for _ in range(c.randrange(20))
            )
        return c.choice(TEXTS)

    def value(self, depth: int = 0) -> Any:
        c = self.choose
        kind = c.randrange(9 if depth < 4 else 7)
        simple = [None, True, 0, -(2**63), 2**64, 1.5, 1e300, self.text()]
        if kind < 7:
            return simple[c.randrange(len(simple))]
        several = [self.value(depth + 1) for _ in range(c.randrange(4))]
        return several if kind == 7 else {self.text(): one for one in several}

    def segment(self) -> str:
        text = self.text()
        return key(text) if self.choose.random() < 0.7 else text

    def path(self) -> str:
        c = self.choose
        table = c.choice(["Account", "Stock", "Account", self.segment()])
        record = c.choice(["a1", "a1", "1,x", self.segment(), f"{self.segment()},{self.segment()}"])
        path = c.choice(
            [
                "/v1/tables",
                f"/v1/tables/{table}",
                f"/v1/tables/{table}/records",
                f"/v1/tables/{table}/records/{record}",
                f"/v1/tables/{table}/records/{record}/history",
                f"/v1/tables/{table}/records/{record}/changes",
                f"/v1/tables/{table}/changes",
                "/v1/get",
                "/v1/sql",
                "/v1/status",
                "/metrics",
                "/openapi.json",
                "/docs",
                "/",
                f"/?token={self.segment()}",
                "/v1/events/Deposit",
                f"/v1/events/{self.segment()}",
                f"/v1/outcomes/{self.segment()}",
                "/v1/../v1/status",
                "//v1/status",
                "/v1//tables",
                "/v1/tables/",
                "*",
                "http://evil.example/v1/status",
                f"/{self.segment()}",
                "/docs/../docs.js",
                "/static/../../etc/passwd",
                "",
            ]
        )
        if c.random() < 0.5:
            # Whatever else is served.
            path = c.choice(sorted(self.routes)).replace("{table}", table).replace("{key}", record)
            path = re.sub(r"{\w+}", lambda _: c.choice(["1", "3", "Deposit", self.segment()]), path)
        while c.random() < 0.4:
            name = c.choice([*self.names, "token", self.segment()])
            value = c.choice(
                [str(c.randrange(8)), "1", self.segment(), key("balance > 1 and id in ('a1')"), key(self.where())]
            )
            path += ("&" if "?" in path else "?") + name + c.choice(["=", "=", "=", ""]) + value
            if name == "at_least":
                path += "&timeout_ms=1"
        return path

    def where(self) -> str:
        c = self.choose
        words = [
            "id",
            "balance",
            "rate",
            "and",
            "or",
            "not",
            "in",
            "(",
            ")",
            "is",
            "null",
            "=",
            "<",
            "'a'",
            "1",
            "1.5",
            ",",
            '"',
            "x",
        ]
        return c.choice(
            ["", "(" * 500, "not " * 900, "id = 'a' or " * 300, " ".join(c.choices(words, k=c.randrange(12)))]
        )

    def body(self, path: str) -> bytes:
        c = self.choose
        kind = c.randrange(12)
        if kind == 0:
            return c.randbytes(c.randrange(200))
        if kind == 1:
            return b"[" * c.choice([10, 1000, 100_000]) + b"]" * c.choice([0, 10, 1000])
        if kind == 2:
            return b'{"get":{"Account":[' + b'"a",' * c.choice([100, 20_000, 400_000]) + b'"a"]}}'
        if kind == 3:
            return b'{"a":' * 500 + b"1" + b"}" * 500
        if kind == 4:
            return b" " * c.choice([10, 2_000_000])
        asked: Any = {
            "get": {c.choice(["Account", "Stock", self.text()]): [self.value() for _ in range(c.randrange(5))]}
        }
        if "sql" in path:
            asked = {"sql": c.choice([one for one in SQL if one not in SLOW_SQL or c.random() < 0.05])}
        elif "events" in path:
            one = {
                "ts": c.choice([1, 99, self.value()]),
                "id": c.choice(["n", self.value()]),
                "account": "a",
                "amount": self.value(),
            }
            asked = c.choice([one, [one, one], [], self.value()])
        if c.random() < 0.3 and isinstance(asked, dict):
            asked[self.text()] = self.value()
        return json.dumps(c.choice([asked, asked, asked, self.value()])).encode("utf-8", "surrogatepass")

    def request(self) -> bytes:
        c = self.choose
        path = self.path().encode("utf-8", "surrogatepass")
        if c.random() < 0.9:
            path = path.replace(b" ", b"%20").replace(b"\r", b"%0d").replace(b"\n", b"%0a").replace(b"\x00", b"%00")
        posts = any(one.partition("{")[0].encode() in path for one in self.posted)
        method = c.choice([b"POST"] * 8 + [b"GET"]) if posts else c.choice([b"GET"] * 8 + [b"HEAD", b"POST"])
        if c.random() < 0.05:
            method = c.choice(
                [b"PUT", b"DELETE", b"OPTIONS", b"TRACE", b"CONNECT", b"PATCH", b"get", b"G" * 50, b"", b"PRI"]
            )
        headers = [
            (b"Host", self.host),
            (b"Authorization", b"Bearer " + self.token.encode()),
            (b"Connection", b"close"),
        ]
        body = b""
        if method in (b"POST", b"PUT", b"PATCH") or c.random() < 0.02:
            body = self.body(path.decode("latin-1"))
            headers += [(b"Content-Type", b"application/json"), (b"Content-Length", b"%d" % len(body))]
        while c.random() < 0.15:
            headers = self.spoiled(headers)
        version = c.choice([b"HTTP/1.1"] * 20 + [b"HTTP/1.0", b"HTTP/2.0", b"HTTP/9", b"", b"ICY/1"])
        head = (
            b"%b %b %b\r\n" % (method, path, version) + b"".join(b"%b: %b\r\n" % header for header in headers) + b"\r\n"
        )
        found = head + body
        if c.random() < 0.03:
            place = c.randrange(len(found))
            found = found[:place] + c.randbytes(c.randrange(1, 5)) + found[place + c.randrange(3) :]
        return found

    def spoiled(self, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        c = self.choose
        name = c.choice(
            [
                b"Host",
                b"Authorization",
                b"Content-Type",
                b"Content-Length",
                b"Transfer-Encoding",
                b"Expect",
                b"Cookie",
                b"Origin",
                b"Upgrade",
                b"Range",
                b"Last-Event-ID",
                b"X" * c.choice([1, 40_000]),
                b"X-Forwarded-For",
                b"Connection",
            ]
        )
        value = c.choice(
            [
                b"",
                b"evil.example",
                b"Bearer",
                b"Bearer " + b"x" * 40,
                b"text/plain",
                b"-1",
                b"99999999999",
                b"1",
                b"chunked",
                b"websocket",
                b"100-continue",
                b"a=" * 3000,
                b"x" * 50_000,
                c.randbytes(20).replace(b"\n", b""),
                b"\xff\xfe",
                b"keep-alive, upgrade",
                b"null",
            ]
        )
        if c.random() < 0.1:
            return headers + [(b"X-%d" % n, b"y") for n in range(c.choice([5, 150]))]
        if c.random() < 0.5:
            headers = [header for header in headers if header[0] != name]
        return [*headers, (name, value)]

    # -- and what comes of it -------------------------------------------------------------------------------------

    def once(self) -> None:
        c = self.choose
        request = self.request()
        if c.random() < 0.03:
            request = b"".join(self.request().replace(b"Connection: close", b"X: y") for _ in range(c.randrange(2, 6)))
        client = socket.create_connection(("127.0.0.1", self.server.port), timeout=30)
        try:
            with suppress(BrokenPipeError, ConnectionResetError):
                if c.random() < 0.05:
                    # One that does not send all, and stays: it costs a connection, and holds up nobody.
                    client.sendall(request[: c.randrange(len(request))])
                    self.left.append(client)
                    while len(self.left) > 60:
                        self.left.pop(0).close()
                    return
                client.sendall(request)
            self.check(client, request)
        finally:
            if client not in self.left:
                client.close()

    def check(self, client: socket.socket, request: bytes) -> None:
        # What waits for more of a request is told so after a while; nobody has to wait for that here.
        client.settimeout(30 if request.count(b"\r\n\r\n") == 1 and _is_whole(request) else 0.05)
        shown = request[:600]
        try:
            answer = HTTPResponse(client, method=request.split(b" ")[0].decode("latin-1"))
            answer.begin()
        except (TimeoutError, HTTPException, ConnectionResetError) as error:
            if isinstance(error, TimeoutError) and client.gettimeout() == 30:
                raise AssertionError(f"no answer to {shown!r}") from error
            return  # It said nothing, as it was told no whole request, or hung up on what is no HTTP.
        assert answer.status in ALLOWED, f"{answer.status} to {shown!r}"
        if answer.getheader("Content-Type", "").startswith("text/event-stream") and request[:4] != b"HEAD":
            assert answer.readline().startswith(b"retry: "), shown
            return
        try:
            content = answer.read()
        except (HTTPException, ConnectionResetError, TimeoutError):
            return  # It was sending still, and was hung up on.
        assert b"Traceback" not in content, shown
        if answer.status >= 400 and request[:4] != b"HEAD":
            told = json.loads(content)
            assert told["error"] != "internal", (shown, told)
            assert isinstance(told["says"], str), (shown, told)
            assert told["says"], (shown, told)

    def close(self) -> None:
        for client in self.left:
            client.close()


def _is_whole(request: bytes) -> bool:
    """Whether an answer is due: what its head says of its length holds, and nothing else was spoiled."""
    head, _, body = request.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    lengths = [line.split(b":")[1].strip() for line in lines if line.lower().startswith(b"content-length:")]
    odd = any(line.lower().startswith((b"transfer-encoding:", b"expect:", b"upgrade:")) for line in lines)
    return (
        lines[0].endswith(b" HTTP/1.1")
        and lengths in ([], [b"%d" % len(body)])
        and (bool(lengths) or not body)
        and not odd
    )


def memory(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def fuzz(server: Server, seed: int, count: int) -> None:
    fuzzer = Fuzzer(server, seed)
    before = memory(server.pid)
    try:
        for place in range(count):
            fuzzer.once()
            if place % 100 == 99:
                status, found = server.ask("/v1/tables/Account/records/a1")
                assert (status, found["record"]["balance"]) == (200, "5.00"), (seed, place)
    finally:
        fuzzer.close()
    assert server.ask("/v1/sql", {"sql": "select count(*) as n from account"})[1]["rows"] == [{"n": 200}]
    assert memory(server.pid) < before + MEMORY_MORE
    assert server.process.poll() is None
    said = server.said.read_text()
    assert "Traceback" not in said, said[-3000:]
    assert "is a bug" not in said, said[-3000:]
    assert not list(Path("/tmp").glob("penstock-fuzzed*"))


@pytest.mark.parametrize("seed", range(2))
def test_whatever_comes_is_answered(server: Server, seed: int) -> None:
    fuzz(server, seed, 3000)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 110))
def test_whatever_comes_is_answered_long(server: Server, seed: int) -> None:
    fuzz(server, seed, 30_000)


@pytest.mark.long
def test_clients_that_do_not_go_on_are_ended_and_hold_up_nobody(server: Server) -> None:
    """Half a head, half a body, an answer that is not read: each for as long as its limit says."""
    half_head = b"GET /v1/status HTTP/1.1\r\nHost: 127"
    clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(40)]
    try:
        for client in clients[:20]:
            client.sendall(half_head)
        for client in clients:
            client.settimeout(60)
        assert server.ask("/v1/tables/Account/records/a1")[0] == 200
        for client in clients:  # those that say nothing at all, too
            told = client.recv(65536)
            assert told.startswith(b"HTTP/1.1 408 "), told
            assert client.recv(1) == b""
        assert server.ask("/v1/tables/Account/records/a1")[0] == 200
    finally:
        for client in clients:
            client.close()


def test_an_endless_head_is_ended(server: Server) -> None:
    for begin, part in (
        (b"GET /", b"a" * 65536),
        (b"GET / HTTP/1.1\r\nX: ", b"a" * 65536),
        (b"GET / HTTP/1.1\r\n", b"X: y\r\n" * 10_000),
        (b"GET / HTTP/1.1\r\n", b"X" * 65536),
        (b"POST /v1/get HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"1;" + b"x" * 65536),
        (b"G" * 65536, b"G" * 65536),
    ):
        before = memory(server.pid)
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
            sent = 0
            with suppress(BrokenPipeError, ConnectionResetError):
                client.sendall(begin)
                while sent < 64 << 20:
                    client.sendall(part)
                    sent += len(part)
            assert sent < 64 << 20, begin
        assert memory(server.pid) < before + (32 << 20), begin
    assert server.ask("/v1/tables/Account/records/a1")[0] == 200


def test_more_connections_than_it_takes_are_told_so(server: Server) -> None:
    clients: list[socket.socket] = []
    try:
        refused = None
        for _ in range(1100):
            client = socket.create_connection(("127.0.0.1", server.port), timeout=30)
            clients.append(client)
        for client in reversed(clients):
            client.settimeout(30)
            refused = client.recv(1000)
            break
        assert refused is not None
        assert refused.startswith(b"HTTP/1.1 503 "), refused
    finally:
        for client in clients:
            client.close()
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with suppress(AssertionError, HTTPException, OSError):
            if server.ask("/v1/tables/Account/records/a1")[0] == 200:
                return
    raise AssertionError("it does not answer any more")
