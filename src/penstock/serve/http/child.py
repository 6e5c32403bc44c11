"""A server as a child of the process that writes: it shares no lock, no memory and no crash with it.

It ends with its parent, however that goes: it looks whether its parent is still the one that started it. Where it ends
by itself, the parent is not disturbed, and can tell: `alive`, `error`.
"""

from __future__ import annotations

import json
import logging
import os
import selectors
import subprocess
import sys
import tempfile
import threading
import time
from typing import IO

from penstock.errors import StateError
from penstock.serve.http.options import Options

_STARTS_S = 60.0
_ENDS_S = 10.0
_SAID_MAX = 2000


class Served:
    """The server that a query, or a writer, has started."""

    def __init__(self, options: Options) -> None:
        options.check()
        self._stopping, self._words = False, ""
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  what it says on stderr
        command = [sys.executable, "-m", "penstock", "serve", *options.command()]
        command += ["--with-parent", str(os.getpid()), "--json"]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._said)
        try:
            told = json.loads(self._first_line())
        except BaseException:
            self.stop()
            raise
        self.url: str = told["url"]
        self.pid: int = told["pid"]
        self.flight: str | None = told.get("flight")
        threading.Thread(target=self._watch, name="penstock-served", daemon=True).start()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def error(self) -> str | None:
        """Why it ended, if it did by itself."""
        code = self._process.poll()
        if not code:
            return None if code is None else "it was told to end"
        said = self._last_words()
        return f"it ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}" + (f": {said}" if said else "")

    def _watch(self) -> None:
        self._process.wait()
        if not self._stopping:
            logging.getLogger("penstock").warning(
                "the server at %s has gone: %s; penstock serve starts another one", self.url, self.error
            )

    def stop(self) -> None:
        self._stopping = True
        process = self._process
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(_ENDS_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.stdout is not None:
            process.stdout.close()
        self._last_words()
        self._said.close()

    def __repr__(self) -> str:
        return f"<Served {self.url}, pid {self.pid}{'' if self.alive else f', ended: {self.error}'}>"

    def _first_line(self) -> bytes:
        """What it says when it answers requests."""
        out = self._process.stdout
        assert out is not None
        file, found, end = out.fileno(), b"", time.monotonic() + _STARTS_S
        with selectors.DefaultSelector() as selector:
            selector.register(file, selectors.EVENT_READ)
            while not found.endswith(b"\n"):
                if not selector.select(max(end - time.monotonic(), 0)):
                    raise StateError(f"the server has not started within {_STARTS_S:g} s; {self._last_words()}")
                part = os.read(file, 1 << 16)
                if not part:
                    self._process.wait()
                    raise StateError(f"the server could not start: {self._last_words() or 'it said nothing'}")
                found += part
        return found

    def _last_words(self) -> str:
        if not self._said.closed:
            size = self._said.seek(0, os.SEEK_END)
            self._said.seek(max(size - _SAID_MAX, 0))
            self._words = self._said.read().decode("utf-8", "replace").strip().removeprefix("penstock: ")
        return self._words
