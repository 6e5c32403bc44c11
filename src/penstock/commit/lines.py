"""A list on disk that only grows: JSON lines, each with a checksum over itself and all lines before it.

    ["0b6f4a51",{"kind":"files of a source","format":1,"event":"Transfer","directory":"9f3c…"}]
    ["c2e0417d",["part-0000.parquet"]]
    ["81a95f0e",["part-0001.parquet","part-0002.parquet"]]

The first line is the header: what is listed, and whose list it is. Each other line is what one `append` added. A line's
checksum goes on from the one before, so that a flipped bit, a line that was dropped, doubled or moved, and a line of
another list are all found at that line.

Invariants:
- What was added is durable, with all before it, when `append` returns.
- A line's newline is written once the line is synced. So a last line without a newline is whole, if its checksum holds,
  or was torn by a crash before anybody was told of it: then it is dropped, and cut off by the next append. Anything
  else that does not hold is damage: a StateError that names file and line.
- One process appends at a time; any may read meanwhile.
- What was verified is not read again as long as the file only grows, so that a look at a long list costs what is new.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from penstock.commit.disk import PRIVATE, Disk
from penstock.errors import StateError

FORMAT = 1
RESTORE = "restore it from a backup"
# A worker whose job was killed may live for a moment; who holds the lock does so for one write and one sync.
LOCK_TRIES, LOCK_PAUSE_S = 100, 0.01


class ChainedLines:
    def __init__(
        self, disk: Disk, path: Path, header: dict[str, Any], *, mode: int = PRIVATE, remedy: str = RESTORE
    ) -> None:
        """header: what a list that is there must say, and a new one will; None stands for what is not known.
        remedy: what to do about damage."""
        self._disk, self.path, self._mode, self._remedy = disk, path, mode, remedy
        self._wanted = {**header, "format": FORMAT}
        self._durable = False  # whether this process has synced the file and its name
        self._forget()

    def _forget(self) -> None:
        self.header: dict[str, Any] = {}
        self._lines: list[Any] = []
        self._mark: tuple[int, int, int] | None = None  # inode, size and time of the file as it was last looked at
        self._end = self._crc = self._count = 0  # of what has been verified: bytes, checksum, lines
        self._ended, self._last = True, b""  # whether the last line that was verified has its newline; it, if not

    def read(self) -> list[Any]:
        """All lines, not to be changed by the caller; none where there is no file. Later looks add to the same list,
        unless the file became another."""
        try:
            fd = self._disk.open(self.path)
        except FileNotFoundError:
            self._forget()
            return self._lines
        try:
            self._look(fd)
        finally:
            self._disk.close(fd)
        return self._lines

    def append(self, lines: Sequence[Any], after: int | None = None) -> bool:
        """Add lines. Durable on return, as are those before: who wrote them may have died before that was so.
        after: how many lines the caller knows of; False, and nothing is added, where there are others by now."""
        if self._durable and not lines:
            return True
        with self._writing():
            if not lines and not self._disk.exists(self.path):
                return True
            fd, new = self._open()
            try:
                with self._locked(fd):
                    self._look(fd)
                    if after is not None and len(self._lines) != after:
                        return False
                    self._extend(fd, lines)
            finally:
                self._disk.close(fd)
            if new or not self._durable:
                self._sync_names()
            self._durable = True
            return True

    def _open(self) -> tuple[int, bool]:
        """The file, to be written, and whether it is new."""
        if not self._disk.exists(self.path):
            self._disk.ensure_dir(self.path.parent)
            with suppress(FileExistsError):  # Another process was first.
                return self._disk.create(self.path), True
        return self._disk.touch(self.path), False

    def create(self, lines: Sequence[Any]) -> None:
        """The whole list at once: it is there with all of them, or not at all."""
        with self._writing():
            header, crc = _encode(self._first(), 0)
            line = _encode(lines, crc)[0] + b"\n" if lines else b""
            self._disk.replace(self.path, header + b"\n" + line)
            self._forget()

    def _extend(self, fd: int, lines: Sequence[Any]) -> None:
        if self._disk.size(fd) > self._end:
            self._disk.truncate(fd, self._end, self.path)
        if not self.header:
            if self._mode != PRIVATE:
                self._disk.chmod(fd, self._mode, self.path)
            header, self._crc = _encode(self._first(), 0)
            self._end, self._ended, self._last = len(header), False, header
        if not self._ended:
            self._write_synced(fd, self._last, self._end - len(self._last))
            self._disk.write_at(fd, b"\n", self._end, self.path)
            self._end, self._ended = self._end + 1, True
        line = _encode(lines, self._crc)[0] if lines else b""
        self._write_synced(fd, line, self._end)
        if lines:
            self._disk.write_at(fd, b"\n", self._end + len(line), self.path)
        self._look(fd)

    def _write_synced(self, fd: int, line: bytes, at: int) -> None:
        """Write a line together with the newline before it: where a sync failed, both can be read and are lost all the
        same."""
        self._disk.write_at(fd, b"\n"[:at] + line, max(at - 1, 0), self.path)
        self._disk.fsync(fd, self.path)

    def _first(self) -> dict[str, Any]:
        return {key: value for key, value in self._wanted.items() if value is not None}

    def _sync_names(self) -> None:
        """The file's name, and the folder's, which may have been made by one who did not live to do it."""
        folder = self.path.parent
        self._disk.fsync_dir(folder)
        try:
            self._disk.fsync_dir(folder.parent)
        except StateError as error:
            # A folder among others' that cannot be listed: then it was made for us, by someone else.
            if not isinstance(error.__cause__, PermissionError):
                raise

    @contextmanager
    def _locked(self, fd: int) -> Iterator[None]:
        locked = self._lock(fd)
        try:
            yield
        finally:
            if locked:
                self._disk.unlock_file(fd)

    def _lock(self, fd: int) -> bool:
        """False on a file system without locks: there only the state directory's own keeps a second writer away."""
        for _ in range(LOCK_TRIES):
            try:
                self._disk.lock_file(fd)
                return True
            except BlockingIOError:
                self._disk.sleep(LOCK_PAUSE_S)
            except OSError:
                return False
        raise StateError(f"{self.path} is being written by another process; stop that one, and start again")

    # -- reading ----------------------------------------------------------------------------

    def _look(self, fd: int) -> None:
        """Verify what has come since the last look; all of it, if the file is not the one it was."""
        stat = self._disk.fstat(fd)
        before, mark = self._mark, (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        if mark == before:
            return
        if before is not None and before[0] == mark[0] and before[1] < mark[1]:
            try:
                self._verify(fd, mark[1])
                self._mark = mark
                return
            except StateError:
                pass  # Changed in what was verified, or damaged: reading all of it tells.
        self._forget()
        self._verify(fd, mark[1])
        self._mark = mark

    def _verify(self, fd: int, size: int) -> None:
        data = bytes(memoryview(self._disk.pread(fd, size - self._end, self._end, self.path)))
        if not self._ended and data[:1] == b"\n":
            data, self._end, self._ended = data[1:], self._end + 1, True
        *whole, last = data.split(b"\n")
        try:
            for line in whole:
                self._take(line)
                self._end += 1
            if last and _value(last, self._crc) is not None:
                self._take(last)
                self._ended, self._last = False, last
            elif last and last[-1] and _value(last[:-1], self._crc) is not None:
                raise ValueError("the byte that ends it is another")
        except ValueError as error:
            number = self._count + 1
            self._forget()
            raise StateError(f"{self.path} is damaged in line {number}: {error}; {self._remedy}") from error

    def _take(self, line: bytes) -> None:
        found = _value(line, self._crc)
        if found is None or not self._ended:
            raise ValueError("its checksum does not hold")
        if self.header:
            self._lines += found[0]
        else:
            self._check(found[0])
            self.header = found[0]
        self._crc, self._end, self._count = found[1], self._end + len(line), self._count + 1

    def _check(self, header: Any) -> None:
        if not isinstance(header, dict) or "format" not in header:
            raise ValueError("it is no header of a list")
        for key, wanted in self._wanted.items():
            if None in (wanted, header.get(key)) or header[key] == wanted:
                continue
            if key == "format":
                raise StateError(
                    f"{self.path} has format {header[key]}, which this Penstock does not know; "
                    "use the Penstock that wrote it"
                )
            raise StateError(
                f"{self.path} is the list of another {key}: {header[key]!r}, not {wanted!r}; "
                "put the list there that belongs to it"
            )

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            said = os.strerror(error.errno or 0).lower()
            raise StateError(f"cannot write {self.path}: {said}; mend that, and start again") from error


def _encode(value: Any, crc: int) -> tuple[bytes, int]:
    """A line that goes on from a checksum, without its newline; and its own checksum."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    crc = zlib.crc32(b"\n", zlib.crc32(text, crc))
    return b'["%08x",%b]' % (crc, text), crc


def _value(line: bytes, crc: int) -> tuple[Any, int] | None:
    """A line's value, and its checksum; None where that does not hold."""
    text = line[12:-1]
    crc = zlib.crc32(b"\n", zlib.crc32(text, crc))
    if line[:12] != b'["%08x",' % crc or line[-1:] != b"]":
        return None
    return json.loads(text), crc
