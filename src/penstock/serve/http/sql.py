"""`POST /v1/sql`: a query that only reads, in a process of its own, which is ended where it does not end by itself.

    server ──(a pipe: length, JSON)──> sql_process.py: a replica, and DuckDB under limits ──> length, JSON; the answer

SQL is code that others write. What it may do, state/sql.py says; what it may use, the limits of that process; and if
all else fails the process is killed, and the next query starts another one. One query runs at a time.
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from penstock.serve.http.answers import Answer, Refusal
from penstock.serve.http.call import ANY_VERSION, Call
from penstock.serve.http.metrics import Sample
from penstock.serve.http.options import Options
from penstock.serve.http.routes import Route
from penstock.serve.http.site import Site

SECONDS = 5.0
ROWS, ROWS_MAX = 1_000, 10_000
ANSWER_MAX = 16 << 20
_WAITING_MAX = 16
# Behind the time at which a query is interrupted: then it did not listen.
_GRACE_S = 3.0
_STARTS_S = 120.0
SIZE = struct.Struct(">II")


class SqlProcess:
    """Started with the first query; another one after each that was killed."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self.waiting = self.killed = self.queries = 0

    async def ask(self, question: dict[str, Any], timeout: float) -> tuple[dict[str, Any], bytes]:
        """timeout: how long the query may wait for its version."""
        if self.waiting >= _WAITING_MAX:
            raise Refusal(503, "busy", f"{_WAITING_MAX} queries wait already; come again")
        self.waiting += 1
        try:
            async with self._turn:
                self.queries += 1
                return await self._ask(question, timeout)
        finally:
            self.waiting -= 1

    async def _ask(self, question: dict[str, Any], timeout: float) -> tuple[dict[str, Any], bytes]:
        done = False
        try:
            process = await self._running()
            assert process.stdin is not None and process.stdout is not None
            content = orjson.dumps(question)
            process.stdin.write(SIZE.pack(len(content), 0) + content)
            async with asyncio.timeout(timeout + SECONDS + _GRACE_S):
                await process.stdin.drain()
                head, body = SIZE.unpack(await process.stdout.readexactly(SIZE.size))
                told = orjson.loads(await process.stdout.readexactly(head))
                answer = await process.stdout.readexactly(body)
            done = True
            return told, answer
        except TimeoutError:
            raise Refusal(
                400, "too_slow", f"the query took more than {SECONDS:g} s, and did not stop when it was told to"
            ) from None
        except (asyncio.IncompleteReadError, ConnectionError):
            raise Refusal(400, "too_large", "the query used more memory or time than it may; ask for less") from None
        finally:
            # Also where whoever asked has gone: its answer would be taken for the next one's.
            if not done:
                await self.kill()

    async def _running(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            pipe = asyncio.subprocess.PIPE
            arguments = ("-m", "penstock.serve.http.sql_process", os.fspath(self._state), str(os.getpid()))
            self._process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdin=pipe, stdout=pipe)
            assert self._process.stdout is not None
            try:
                async with asyncio.timeout(_STARTS_S):
                    await self._process.stdout.readexactly(1)
            except (TimeoutError, asyncio.IncompleteReadError):
                raise Refusal(503, "state", "the process for SQL has not started; the server's log says why") from None
        return self._process

    async def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            self.killed += 1
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def end(self) -> None:
        """When the server ends: the loop has no time for more."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()

    def samples(self) -> list[Sample]:
        return [
            Sample("penstock_sql_queries_total", "Queries that were begun.", self.queries, "counter"),
            Sample("penstock_sql_killed_total", "Queries whose process was killed.", self.killed, "counter"),
            Sample("penstock_sql_waiting", "Queries that wait or run.", self.waiting),
        ]


async def sql(call: Call, process: SqlProcess) -> Answer:
    asked = await call.json()
    if not isinstance(asked, dict) or not isinstance(asked.get("sql"), str) or not asked.keys() <= {"sql", "limit"}:
        raise Refusal(400, "bad_request", 'the body is to be {"sql": "select …"}, and "limit": ROWS if you like')
    limit = asked.get("limit", ROWS)
    if type(limit) is not int or not 1 <= limit <= ROWS_MAX:
        raise Refusal(400, "bad_request", f"limit is not a number of rows, 1 to {ROWS_MAX}")
    version = await call.moment()
    site, timeout = call.site, call.timeout
    # Its replica is another one, which is not to be behind what this server has answered from.
    now = site.reader.version
    least = now if version is None else min(version, now)
    question = {"sql": asked["sql"], "limit": limit, "version": version, "at_least": least, "timeout": timeout}
    told, body = await process.ask(question, timeout)
    if "error" in told:
        raise Refusal(told["status"], told["error"], told["says"], version=told.get("version"))
    if version is None:
        await site.versions.wait(told["version"], timeout)
    return Answer(body, told["version"])


async def off(call: Call) -> Answer:
    raise Refusal(403, "forbidden", "this server takes no SQL; it was started without --sql")


_BODY = {
    "type": "object",
    "properties": {"sql": {"type": "string"}, "limit": {"type": "integer"}},
    "required": ["sql"],
    "example": {"sql": "select 1 as one", "limit": ROWS},
}
_ANSWER = {
    "columns": {"type": "array", "items": {"type": "object", "properties": {"name": {}, "type": {}}}},
    "rows": {"type": "array", "items": {"type": "object"}},
    "more": {"type": "boolean", "description": "Whether there were more rows than limit."},
}


def add(site: Site, options: Options) -> None:
    says = f"One SELECT over the tables; it may take {SECONDS:g} s."
    given: Any = off
    if options.sql:
        process = site.sql = SqlProcess(site.reader.path)
        site.metrics.add(process.samples)
        site.cleanup.append(process.end)

        async def given(call: Call) -> Answer:
            return await sql(call, process)

    site.add([Route("POST", "/v1/sql", given, says=says, params=ANY_VERSION, body=_BODY, answer=_ANSWER)])
