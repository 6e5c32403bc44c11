"""Disks that count their operations, and kill the process or fail at one of them."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Callable, Iterator
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


# What an operating system says of a disk that fails or is full, and of a process that has too many files open.
CODES = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "EMFILE": errno.EMFILE}
OPENING = ("open", "create", "list")
NEEDS_SPACE = ("create", "write", "sync", "link", "rename")
# Operations that a disk may have done, although it says that it failed.
MAY_BE_DONE = ("write", "sync", "link", "rename", "remove")


class Failing(Disk):
    """The at-th operation fails, reading ones too; where that persists, so does every one behind it until `heal`.

    A disk that is full goes on reading and removing. `done`: it fails, but has been done. Operations are counted from
    the last `fail`; `seen` are their names.
    """

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.met = False
        self.fail(0)

    def fail(self, at: int, code: int = errno.EIO, *, persists: bool = False, done: bool = False) -> None:
        self.at, self.code, self.persists, self.done = at, code, persists, done
        self.seen.clear()
        self.met = False

    def heal(self) -> None:
        self.at = 0

    @contextmanager
    def step(self, what: str, path: Path) -> Iterator[None]:
        fails = self._fails(what)
        with super().step(what, path):
            if fails and not self.done:
                raise OSError(self.code, os.strerror(self.code))
            yield
            if fails:
                raise OSError(self.code, os.strerror(self.code))

    def lock_file(self, fd: int) -> None:
        if self._fails("lock"):
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
        super().lock_file(fd)

    def unlock_file(self, fd: int) -> None:
        if self._fails("unlock"):
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
        super().unlock_file(fd)

    def thread(self, work: Callable[[], None], name: str, *, daemon: bool = False) -> threading.Thread:
        if self._fails("thread"):
            raise RuntimeError("can't start new thread")
        return super().thread(work, name, daemon=daemon)

    def _fails(self, what: str) -> bool:
        self.seen.append(what)
        count, at = len(self.seen), self.at
        if not at or count < at or (count > at and not self.persists):
            return False
        if count > at and self.code == errno.ENOSPC and what not in NEEDS_SPACE:
            return False
        if self.done and what not in MAY_BE_DONE:
            return False
        self.met = True
        return True
