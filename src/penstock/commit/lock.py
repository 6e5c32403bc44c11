"""One writer a state directory.

    writer.lock   held with flock while a writer is open: a second one, here or in any process of
                  this machine, is refused
    writer.json   who that is: {"epoch": n, "token": random, "pid": ..., "host": ...}

The lock alone is not enough: its file may be removed, or the directory shared by machines whose
locks do not meet. So each writer leaves its own token, and looks for it before it makes a commit
visible: a writer that finds another's is a zombie, and stops. A commit is made visible with
link(2), which never overwrites, so even a zombie between the look and the link cannot replace a
commit: of two writers, one gets the number and the other an error.

The token guards; the epoch only tells people which writer came later. So a writer.json that cannot
be read is no obstacle: whoever holds the lock writes a new one.

A forked child inherits the descriptor, which would keep the lock after its parent died. It closes
it at once, and its copy of the writer refuses to commit.
"""

from __future__ import annotations

import os
import secrets
import socket
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.commit.disk import Disk
from penstock.commit.sealed import read_sealed, seal
from penstock.errors import StateError

LOCK = "writer.lock"
OWNER = "writer.json"
TAG = 8  # letters of a token that are enough to tell its files from others


class WriterLock:
    def __init__(self, disk: Disk, path: Path) -> None:
        self.path = path
        self.epoch = 0
        self._disk = disk
        self._fd = -1
        self._token = secrets.token_hex(16)
        self._pid = os.getpid()

    @classmethod
    def acquire(cls, disk: Disk, path: Path) -> WriterLock:
        lock = cls(disk, path)
        lock._fd = disk.touch(path / LOCK)
        try:
            disk.lock_file(lock._fd)
        except OSError as error:
            lock.release()
            if not isinstance(error, BlockingIOError):
                raise StateError(
                    f"cannot lock {path / LOCK}: {error.strerror}; keep the state directory on a file system with flock"
                ) from error
            raise StateError(
                f"state directory {path} is open for writing by {_owner(disk, path)}; "
                "close it or open another directory"
            ) from error
        try:
            lock.epoch = _read(disk, path).get("epoch", 0) + 1
            owner = {"epoch": lock.epoch, "token": lock._token, "pid": lock._pid, "host": socket.gethostname()}
            disk.replace(path / OWNER, seal(owner))
            _forget_in_children(lock)
        except OSError as error:  # A file was there, or is gone: all else is a StateError.
            lock.release()
            raise StateError(
                f"another writer is opening state directory {path}, and {LOCK} did not keep the two apart: {error}; "
                "close it, and open the directory again"
            ) from error
        except BaseException:
            lock.release()
            raise
        return lock

    @property
    def tag(self) -> str:
        """For the names of what this writer is making, so that no two writers ever make the same file."""
        return self._token[:TAG]

    def check_process(self) -> None:
        """Raises in a forked child, and after the release."""
        if self._pid != os.getpid():
            raise StateError(f"state directory {self.path} was opened by pid {self._pid}, which forked; reopen it here")
        if self._fd < 0:
            raise StateError(f"state directory {self.path} is closed; reopen it")

    def verify(self) -> None:
        """Raises unless this is still the directory's one writer."""
        self.check_process()
        try:
            found = self._disk.stat(self.path / LOCK)
        except FileNotFoundError:
            raise self._fenced(f"{LOCK} was removed") from None
        held = self._disk.fstat(self._fd)
        if (found.st_dev, found.st_ino) != (held.st_dev, held.st_ino):
            raise self._fenced(f"{LOCK} is not the file that was locked")
        try:
            owner = read_sealed(self._disk, self.path / OWNER)
        except FileNotFoundError:
            raise self._fenced(f"{OWNER} was removed") from None
        except StateError as error:  # Damaged, or not to be read now: that is no other writer.
            raise StateError(
                f"cannot tell whether this is still the one writer of state directory {self.path}, so nothing more is "
                f"written; reopen it: {error}"
            ) from error
        if owner.get("token") != self._token:
            raise self._fenced(f"it was opened for writing by {_owner(self._disk, self.path)}")

    def release(self) -> None:
        if self._fd >= 0 and self._pid == os.getpid():
            fd, self._fd = self._fd, -1
            try:
                with suppress(OSError):  # Closing the descriptor unlocks it too.
                    self._disk.unlock_file(fd)
            finally:
                self._disk.close(fd)

    def __del__(self) -> None:
        self.release()  # Whoever was to keep it may have been interrupted before it did.

    def _fenced(self, why: str) -> StateError:
        return StateError(
            f"fenced: state directory {self.path} has another writer now ({why}); nothing more is written"
        )


def writer_tag(disk: Disk, path: Path) -> str:
    """The tag of the last writer, which may still be at work; "" where there was none."""
    try:
        return str(read_sealed(disk, path / OWNER, "token")["token"])[:TAG]
    except FileNotFoundError:
        return ""


def _read(disk: Disk, path: Path) -> dict[str, Any]:
    try:
        return read_sealed(disk, path / OWNER)
    except (StateError, FileNotFoundError):
        return {}


def _owner(disk: Disk, path: Path) -> str:
    owner = _read(disk, path)
    return f"pid {owner['pid']} on {owner['host']}" if "pid" in owner else "another process"


_held: weakref.WeakSet[WriterLock] | None = None


def _forget_in_children(lock: WriterLock) -> None:
    global _held
    if _held is None:
        _held = weakref.WeakSet()
        os.register_at_fork(after_in_child=_forget)
    _held.add(lock)


def _forget() -> None:
    for lock in list(_held or ()):
        if lock._fd >= 0:
            # Closing a copy of the descriptor leaves the parent's lock in place; unlocking would not.
            lock._disk.close(lock._fd)
            lock._fd = -1
