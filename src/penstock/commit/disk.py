"""Every file operation of this stage, and every lock and thread beside them: all that a simulator has to replace.

A `Disk` is thin: each method is one step that the operating system does as a whole or fails.
All file operations pass through `step`, which a test may override to count the operations, to kill the
process before or after the k-th, or to raise ENOSPC there.

    create, write, fsync, close        a new file, never an existing one, through its descriptor
    open, size, pread                  reading
    overwrite                          a few bytes in place, not synced: hints only
    write_at, truncate, chmod          a list that only grows: its end, and what a torn write left there
    link, rename, unlink, mkdir, rmdir names
    listdir, stat, fsync_dir           directories
    lock_file, unlock_file             between processes
    mutex, thread                      between threads of this process
    sleep                              while another process has what is wanted

Invariants:
- Files are made 0600 and directories 0700; only `chmod` opens a file to others.
- What a full, failing, read-only or forbidden disk says becomes a StateError with the path, what
  happened and what to do. A file that is absent, or in the way, stays an OSError: the caller knows
  what that means.
- Nothing here is durable before `fsync` (a file's bytes) and `fsync_dir` (its name) return.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from penstock.commit.o_direct import write_direct
from penstock.errors import StateError

# What a user can do about an error of the disk.
REMEDY = {
    errno.ENOSPC: "free some space, then reopen the state directory",
    errno.EDQUOT: "raise the quota or free some space, then reopen the state directory",
    errno.EROFS: "remount the file system for writing, or use another directory",
    errno.EIO: "the device is failing: check it, restore the directory from a backup if need be, then reopen it",
    errno.EACCES: "give this user permission to read and write the state directory",
    errno.EPERM: "give this user permission to read and write the state directory",
    errno.ENOTDIR: "a state directory must be a directory: name another one",
    errno.EISDIR: "a directory is where a file should be: move it away, and restore the file from a backup",
    errno.ELOOP: "a symbolic link is where a file should be: replace it by the file",
    errno.ENAMETOOLONG: "name a directory by a shorter path",
    errno.EMFILE: "raise the limit on open files (ulimit -n), then reopen the state directory",
}

# What a file is made with: its owner's alone.
PRIVATE = 0o600

# Small enough to stop within, large enough to read at full speed.
PIECE = 1 << 20
# A name that is absent, or in the way: the caller knows what that means.
LEFT_TO_THE_CALLER = (errno.ENOENT, errno.EEXIST, errno.ENOTEMPTY)

# Linux takes at most 1024 buffers in one writev (IOV_MAX).
BUFFERS_PER_WRITE = 1024


class Mutex(Protocol):
    """What is used of threading.Lock."""

    def acquire(self) -> bool: ...

    def release(self) -> None: ...

    def __enter__(self) -> bool: ...

    def __exit__(self, kind: Any, error: Any, trace: Any, /) -> None: ...


class Disk:
    @contextmanager
    def step(self, what: str, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in LEFT_TO_THE_CALLER:
                raise
            remedy = REMEDY.get(error.errno or 0, "mend that, then reopen the state directory")
            raise StateError(f"cannot {what} {path}: {os.strerror(error.errno or 0).lower()}; {remedy}") from error

    def create(self, path: Path) -> int:
        with self.step("create", path):
            return os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW, PRIVATE)

    def touch(self, path: Path) -> int:
        """Opens the file for writing, and makes it where there is none."""
        with self.step("open", path):
            return os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, PRIVATE)

    def write(self, fd: int, buffers: Sequence[memoryview], path: Path) -> None:
        with self.step("write", path):
            done = write_direct(fd, buffers)
            os.lseek(fd, done, os.SEEK_SET)
            left = _after([buffer for buffer in buffers if len(buffer)], done)
            while left:
                left = _after(left, os.writev(fd, left[:BUFFERS_PER_WRITE]))

    def fsync(self, fd: int, path: Path) -> None:
        with self.step("sync", path):
            os.fsync(fd)

    def close(self, fd: int) -> None:
        os.close(fd)

    def open(self, path: Path) -> int:
        with self.step("open", path):
            return os.open(path, os.O_RDONLY)

    def fstat(self, fd: int) -> os.stat_result:
        return os.fstat(fd)

    def size(self, fd: int) -> int:
        return self.fstat(fd).st_size

    def pread(self, fd: int, length: int, offset: int, path: Path) -> pa.Buffer:
        """Up to `length` bytes from `offset`: fewer where the file ends before."""
        with self.step("read", path):
            buffer = pa.allocate_buffer(length)
            view, got = memoryview(buffer), 0
            while got < length and (n := os.preadv(fd, [view[got:]], offset + got)):
                got += n
            return buffer.slice(0, got)

    def drop_cached(self, fd: int) -> None:
        """What is read of the file from now on comes from the device, where the system lets us ask for that."""
        if hasattr(os, "posix_fadvise"):
            with suppress(OSError):
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def crc(self, fd: int, length: int, offset: int, path: Path, told: Callable[[int], None]) -> int | None:
        """The crc32 of so many bytes, read in pieces; told of the length of each. None where the file ends before."""
        crc, end = 0, offset + length
        while offset < end:
            data = self.pread(fd, min(PIECE, end - offset), offset, path)
            if len(data) == 0:
                return None
            crc, offset = zlib.crc32(data, crc), offset + len(data)
            told(len(data))
        return crc

    def overwrite(self, path: Path, data: bytes) -> None:
        """The file holds just these bytes, unless a crash tears them."""
        with self.step("write", path):
            fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, PRIVATE)
            try:
                os.pwrite(fd, data, 0)
                os.ftruncate(fd, len(data))
            finally:
                os.close(fd)

    def write_at(self, fd: int, data: bytes, offset: int, path: Path) -> None:
        with self.step("write", path):
            left = memoryview(data)
            while left:
                n = os.pwrite(fd, left, offset)
                left, offset = left[n:], offset + n

    def truncate(self, fd: int, length: int, path: Path) -> None:
        with self.step("cut", path):
            os.ftruncate(fd, length)

    def chmod(self, fd: int, mode: int, path: Path) -> None:
        with self.step("set the mode of", path):
            os.fchmod(fd, mode)

    def link(self, old: Path, new: Path) -> None:
        with self.step("link", new):
            os.link(old, new)

    def rename(self, old: Path, new: Path) -> None:
        with self.step("rename", new):
            os.rename(old, new)

    def unlink(self, path: Path) -> None:
        with self.step("remove", path):
            os.unlink(path)

    def mkdir(self, path: Path) -> None:
        with self.step("create", path):
            os.mkdir(path, 0o700)

    def rmdir(self, path: Path) -> None:
        with self.step("remove", path):
            os.rmdir(path)

    def listdir(self, path: Path) -> list[str]:
        with self.step("list", path):
            return sorted(os.listdir(path))

    def stat(self, path: Path) -> os.stat_result:
        with self.step("look at", path):
            return os.stat(path)

    def fsync_dir(self, path: Path) -> None:
        with self.step("sync", path):
            sync_names(path)

    def lock_file(self, fd: int) -> None:
        """BlockingIOError where another process holds it."""
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def unlock_file(self, fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_UN)

    def mutex(self) -> Mutex:
        return threading.Lock()

    def thread(self, work: Callable[[], None], name: str, *, daemon: bool = False) -> threading.Thread:
        """Begins to work, beside the caller; a daemon may be cut off by the end of the process."""
        thread = threading.Thread(target=work, name=name, daemon=daemon)
        thread.start()
        return thread

    def sleep(self, seconds: float) -> None:
        """Until another process may have gone on."""
        time.sleep(seconds)

    # What the stage makes of these steps.

    def exists(self, path: Path) -> bool:
        try:
            self.stat(path)
        except FileNotFoundError:
            return False
        return True

    def read(self, path: Path) -> bytes:
        fd = self.open(path)
        try:
            return bytes(memoryview(self.pread(fd, self.size(fd), 0, path)))
        finally:
            self.close(fd)

    def write_new(self, path: Path, buffers: Sequence[memoryview], mode: int = PRIVATE) -> None:
        """A new file whose bytes are durable on return; its name is not, until `fsync_dir`."""
        fd = self.create(path)
        try:
            if mode != PRIVATE:
                self.chmod(fd, mode, path)
            self.write(fd, buffers, path)
            self.fsync(fd, path)
        finally:
            self.close(fd)

    def replace(self, path: Path, data: bytes) -> None:
        """The file holds all of `data` or is as it was before; durable on return."""
        temporary = path.with_name(path.name + ".tmp")
        self.unlink_if_there(temporary)
        self.write_new(temporary, [memoryview(data)])
        self.rename(temporary, path)
        self.fsync_dir(path.parent)

    def unlink_if_there(self, path: Path) -> None:
        with suppress(FileNotFoundError):
            self.unlink(path)

    def ensure_dir(self, path: Path) -> None:
        """Makes the directory and its parents where there are none; their names are durable on return."""
        try:
            self.mkdir(path)
        except FileExistsError:
            self.listdir(path)  # A file of that name is refused here, as what it is.
            return
        except FileNotFoundError:
            self.ensure_dir(path.parent)
            return self.ensure_dir(path)
        self.fsync_dir(path.parent)


def sync_names(folder: Path) -> None:
    """What was made, renamed or removed in the directory is durable on return."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _after(buffers: list[memoryview], written: int) -> list[memoryview]:
    """What is left of `buffers` after a write that took their first `written` bytes."""
    for index, buffer in enumerate(buffers):
        if written < len(buffer):
            return [buffer[written:], *buffers[index + 1 :]]
        written -= len(buffer)
    return []
