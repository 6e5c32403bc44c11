"""The process that runs batches again (inspect/worker.py): started when it is first asked, one question at a time.

A question that takes too long ends it, and the next one starts another: the app's code is somebody else's.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from penstock.serve.http.answers import Refusal

# The app is imported, and its kernel compiled, within the first answer.
ANSWERS_S = 60.0
_LINE_MAX = 64 << 20
_NO_APP = (
    "this server knows no transactions, so it cannot tell what an event read and wrote; start it with --explain "
    "MODULE:APP (serve --app does so)"
)
# Compared with requests for records nobody waits for this: they go first.
_NICE = 10


class Rerun:
    def __init__(self, state: Path, app: str | None) -> None:
        self._state, self.app = state, app
        self._process: Process | None = None
        self._turn = asyncio.Lock()

    async def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """What there is to tell; or only what it `says`, where the app, or the batch's events, are not at hand."""
        if self.app is None:
            return {"says": _NO_APP}
        async with self._turn:
            try:
                async with asyncio.timeout(ANSWERS_S):
                    told = await self._asked(question)
            except TimeoutError:
                self.end()
                raise Refusal(
                    503, "too_long", f"to run it again takes longer than {ANSWERS_S:g} s, and was ended"
                ) from None
            except asyncio.CancelledError:  # whoever asked has gone: its answer must not be the next one's
                self.end()
                raise
        if told.get("error") == "not_kept":
            return {"says": told["says"]}
        if "error" in told:
            raise Refusal(503, told["error"], told["says"])
        return told

    async def _asked(self, question: dict[str, Any]) -> dict[str, Any]:
        if self._process is None or self._process.returncode is not None:
            assert self.app is not None
            command = [sys.executable, "-m", "penstock", "again", os.fspath(self._state), self.app]
            self._process = await asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, limit=_LINE_MAX
            )
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, self._process.pid, _NICE)
            first = await self._line()
            if "error" in first:
                self.end()
                return first
        assert self._process.stdin is not None
        self._process.stdin.write(orjson.dumps(question) + b"\n")
        return await self._line()

    async def _line(self) -> dict[str, Any]:
        assert self._process is not None and self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line.endswith(b"\n"):
            self.end()
            return {
                "error": "app",
                "says": f"the process that runs {self.app} again has ended; can it be imported there?",
            }
        told: dict[str, Any] = orjson.loads(line)
        return told

    def end(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
