"""Disks that count their operations, and kill the process at one of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.commit import Disk

# These operations leave the disk as it is, so that a fault at one is a fault at the next that does not.
READING = ("open", "read", "list", "look at")


class Counting(Disk):
    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def step(self, what: str, path: Path) -> Iterator[None]:
        self.count += what not in READING
        with super().step(what, path):
            yield


class Killing(Counting):
    """Kills the process before the k-th operation."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    @contextmanager
    def step(self, what: str, path: Path) -> Iterator[None]:
        if self.count + 1 == self.at and what not in READING:
            os.kill(os.getpid(), signal.SIGKILL)
        with super().step(what, path):
            yield
