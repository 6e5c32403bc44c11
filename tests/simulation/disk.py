"""penstock's Disk on a simulated machine, as one process has it.

Errors take the same way as on a real disk: an OSError in `step`, which makes a StateError of some of them.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.commit import Disk
from simulation.files import File, Inode
from simulation.machine import Fault, Machine, error
from simulation.scheduler import Process, SimulatedMutex, SimulatedThread

# A tick of the clock is an operation.
TICK_S = 1e-3


class SimulatedDisk(Disk):
    def __init__(self, machine: Machine, process: Process) -> None:
        self.machine, self.process = machine, process
        self._files = machine.files
        self._open: dict[int, Inode] = {}

    @property
    def open_files(self) -> int:
        return len(self._open)

    def step(self, what: str, path: Path) -> Any:
        return _Step(self, what, path)

    def explain(self, what: str, path: Path, failure: OSError) -> None:
        """Raises it as a real disk does."""
        try:
            with super().step(what, path):
                raise failure
        finally:
            del failure  # else its traceback would keep all that its callers hold

    # -- files ------------------------------------------------------------------------------

    def create(self, path: Path) -> int:
        with self.step("create", path):
            file = self._files.create(path)
        return self._opened(file)

    def touch(self, path: Path) -> int:
        with self.step("open", path):
            file = self._touched(path)
        return self._opened(file)

    def open(self, path: Path) -> int:
        with self.step("open", path):
            file = self._files.file(path)
        return self._opened(file)

    def close(self, fd: int) -> None:
        inode = self._open.pop(fd)
        if self._files.locks.get(inode.number) == (self.process, fd):
            del self._files.locks[inode.number]

    def write(self, fd: int, buffers: Sequence[memoryview], path: Path) -> None:
        data, file = b"".join(buffers), self._file(fd)
        try:
            with self.step("write", path):
                self._files.write(file, 0, data)
        except Exception:
            if not file.data:  # it failed, but may have begun
                self._files.write(file, 0, data[: self.machine.choices.below(len(data) + 1)])
            raise

    def overwrite(self, path: Path, data: bytes) -> None:
        with self.step("write", path):
            file = self._touched(path)
            self._files.write(file, 0, data)
            if len(file.data) > len(data):
                self._files.cut(file, len(data))

    def write_at(self, fd: int, data: bytes, offset: int, path: Path) -> None:
        file = self._file(fd)
        try:
            with self.step("write", path):
                self._files.write(file, offset, data)
        except Exception:  # it failed, but may have begun
            self._files.write(file, offset, data[: self.machine.choices.below(len(data) + 1)])
            raise

    def truncate(self, fd: int, length: int, path: Path) -> None:
        with self.step("cut", path):
            self._files.cut(self._file(fd), length)

    def chmod(self, fd: int, mode: int, path: Path) -> None:
        with self.step("set the mode of", path):
            pass

    def drop_cached(self, fd: int) -> None:
        pass

    def fsync(self, fd: int, path: Path) -> None:
        file = self._file(fd)
        try:
            with self.step("sync", path):
                self._files.fsync(file)
        except Exception:
            self._files.fsync_fails(file)
            raise

    def fstat(self, fd: int) -> os.stat_result:
        return _stat(self._open[fd])

    def pread(self, fd: int, length: int, offset: int, path: Path) -> pa.Buffer:
        with self.step("read", path):
            return pa.py_buffer(self._file(fd).data[offset : offset + length])

    # -- names ------------------------------------------------------------------------------

    def link(self, old: Path, new: Path) -> None:
        with self.step("link", new):
            self._files.link(old, new)
            self.machine.linked(new)

    def rename(self, old: Path, new: Path) -> None:
        with self.step("rename", new):
            self._files.rename(old, new)
            self.machine.renamed(new)

    def unlink(self, path: Path) -> None:
        with self.step("remove", path):
            self._files.unlink(path)
            self.machine.removed(path)

    def mkdir(self, path: Path) -> None:
        with self.step("create", path):
            self._files.mkdir(path)

    def rmdir(self, path: Path) -> None:
        with self.step("remove", path):
            self._files.rmdir(path)

    def listdir(self, path: Path) -> list[str]:
        with self.step("list", path):
            return sorted(self._files.folder(path).names)

    def stat(self, path: Path) -> os.stat_result:
        with self.step("look at", path):
            return _stat(self._files.find(path))

    def fsync_dir(self, path: Path) -> None:
        with self.step("sync", path):
            self._files.fsync_dir(self._files.folder(path))

    # -- between processes, and threads -----------------------------------------------------

    def lock_file(self, fd: int) -> None:
        self.machine.scheduler.pause()
        me = self.process, fd
        if self._files.locks.setdefault(self._file(fd).number, me) != me:
            raise BlockingIOError(errno.EWOULDBLOCK, "another process holds it")
        self.machine.locked[self.process] += 1

    def unlock_file(self, fd: int) -> None:
        """No place to switch: it may be called where an object is thrown away."""
        if self._files.locks.get(self._file(fd).number) == (self.process, fd):
            del self._files.locks[self._file(fd).number]

    def mutex(self) -> SimulatedMutex:
        return SimulatedMutex(self.machine.scheduler)

    def thread(self, work: Callable[[], None], name: str, *, daemon: bool = False) -> Any:
        scheduler = self.machine.scheduler
        scheduler.pause()

        def whole() -> None:
            work()
            scheduler.pause()  # it has done all, and is not at its end

        return SimulatedThread(scheduler, scheduler.spawn(self.process, f"{self.process.name} {name}", whole))

    def sleep(self, seconds: float) -> None:
        self.machine.scheduler.sleep(max(int(seconds / TICK_S), 1))

    # -- inside -----------------------------------------------------------------------------

    def _opened(self, inode: Inode) -> int:
        fd = next(self.machine.descriptors)
        self._open[fd] = inode
        return fd

    def _file(self, fd: int) -> File:
        found = self._open[fd]
        assert isinstance(found, File)
        return found

    def _touched(self, path: Path) -> File:
        return (
            self._files.file(path) if path.name in self._files.folder(path.parent).names else self._files.create(path)
        )


class _Step:
    """Disk.step with an operation of the machine in front. Histories spend most of their time here, so that it is no
    generator."""

    __slots__ = ("disk", "fault", "path", "what")

    def __init__(self, disk: SimulatedDisk, what: str, path: Path) -> None:
        self.disk, self.what, self.path = disk, what, path
        self.fault: Fault | None = None

    def __enter__(self) -> None:
        disk = self.disk
        self.fault = fault = disk.machine.operation(disk.process, self.what, self.path)
        if fault is not None and not fault.done:
            disk.explain(self.what, self.path, error(fault.number, self.path))

    def __exit__(self, kind: object, failure: BaseException | None, trace: object) -> None:
        try:
            if failure is None and self.fault is not None:
                failure = error(self.fault.number, self.path)
            if isinstance(failure, OSError):
                self.disk.explain(self.what, self.path, failure)
        finally:
            del failure


def _stat(inode: Inode) -> os.stat_result:
    size = len(inode.data) if isinstance(inode, File) else 0
    return os.stat_result((0o600 if isinstance(inode, File) else 0o40700, inode.number, 1, 1, 0, 0, size, 0, 0, 0))
