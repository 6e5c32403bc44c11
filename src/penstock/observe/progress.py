"""A line about a `run` that takes long, where somebody sits before it: on a terminal, or in a notebook.

    penstock: batch of version 3: 2,000,000 events, execute, 7 s

A thread tells it. Where nobody reads there is none. Who shows lines in another way (`penstock run`) gives a function,
which gets "" at the end.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# What takes longer is told of.
AFTER_S = 3.0
_EVERY_S = 1.0


class Progress:
    """What a database is doing. shown: whether to say it, or to whom; None: where somebody may read it."""

    def __init__(self, shown: bool | Callable[[str], None] | None = None) -> None:
        self._shown = shown
        self.events, self.stage, self.version = 0, "", 0

    @contextmanager
    def of(self, version: int) -> Iterator[None]:
        """While a batch runs."""
        if self._shown is False or not (self._shown or somebody_reads()):
            yield
            return
        self.events, self.stage, self.version = 0, "intake", version
        done = threading.Event()
        thread = threading.Thread(
            target=self._tell, args=(done, time.monotonic()), daemon=True, name="penstock-progress"
        )
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _tell(self, done: threading.Event, begun: float) -> None:
        width, wait = 0, AFTER_S
        while not done.wait(wait):
            events = f"{self.events:,} events, " if self.events else ""
            line = f"penstock: batch of version {self.version}: {events}{self.stage}, {time.monotonic() - begun:.0f} s"
            width, wait = max(width, len(line)), _EVERY_S
            if callable(self._shown):
                self._shown(line.removeprefix("penstock: "))
            else:
                _write(f"\r{line:<{width}}")
        if width and callable(self._shown):
            self._shown("")
        elif width:
            _write(f"\r{'':<{width}}\r")


def somebody_reads() -> bool:
    """Whether this process writes to a terminal, or to a notebook."""
    shell = notebook()
    return (shell is not None and hasattr(shell, "kernel")) or (sys.stderr is not None and sys.stderr.isatty())


def notebook() -> Any:
    """IPython's shell, if this process is one."""
    ipython = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()


def _write(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):  # nobody is there any more
        pass
