"""A file system in memory, and what a loss of power leaves of it: no more than POSIX promises.

    File      data: what processes see      durable: what fsync has made safe      pending: writes since then
    Folder    names: likewise               durable                                pending: changes of names since then

    fsync of a file        its bytes are durable; its name is not
    fsync of a folder      the names in it are durable
    loss of power          each pending write is lost, kept, torn at some byte, or kept in some sectors only; of the
                           pending changes of names an arbitrary part is kept: as they come ("loose"), up to some
                           moment in each folder ("folders"), or up to some moment in all of them ("journal")
    an fsync that fails    what was pending may be gone for good, although it can still be read: the next fsync says
                           that all is well (a file's bytes only)

A rename is one change: kept or lost as a whole. A file lives on without a name as long as somebody has it open.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from simulation.choices import Choices

ORDERS = ("journal", "folders", "loose")
SECTOR = 64  # small, since the files are


class File:
    def __init__(self, number: int) -> None:
        self.number = number
        self.data = b""
        self.durable = b""
        self.pending: list[tuple[int, bytes | None]] = []  # offset and bytes; None: cut off there


class Folder:
    def __init__(self, number: int) -> None:
        self.number = number
        self.names: dict[str, File | Folder] = {}
        self.durable: dict[str, File | Folder] = {}


Inode = File | Folder
Change = tuple[Folder, list[tuple[str, Inode | None]]]


class FileSystem:
    def __init__(self, choices: Choices, order: str) -> None:
        self._choices, self._order = choices, order
        self._count = 1
        self.root = Folder(1)
        self._written: dict[int, File] = {}  # files that are not durable as they are
        self._changes: list[Change] = []  # of names, pending, in their order
        self.locks: dict[int, tuple[object, int]] = {}  # file's number -> the process and the descriptor that hold it

    # -- names ------------------------------------------------------------------------------

    def find(self, path: Path) -> Inode:
        found: Inode = self.root
        for part in path.parts[1:]:
            if not isinstance(found, Folder):
                raise _error(errno.ENOTDIR, path)
            following = found.names.get(part)
            if following is None:
                raise _error(errno.ENOENT, path)
            found = following
        return found

    def folder(self, path: Path) -> Folder:
        found = self.find(path)
        if not isinstance(found, Folder):
            raise _error(errno.ENOTDIR, path)
        return found

    def file(self, path: Path) -> File:
        found = self.find(path)
        if not isinstance(found, File):
            raise _error(errno.EISDIR, path)
        return found

    def create(self, path: Path) -> File:
        made = File(self._number())
        self._add(path, made)
        return made

    def mkdir(self, path: Path) -> None:
        self._add(path, Folder(self._number()))

    def link(self, old: Path, new: Path) -> None:
        self._add(new, self.file(old))

    def unlink(self, path: Path) -> None:
        self.file(path)
        self._change(self.folder(path.parent), [(path.name, None)])

    def rmdir(self, path: Path) -> None:
        if self.folder(path).names:
            raise _error(errno.ENOTEMPTY, path)
        self._change(self.folder(path.parent), [(path.name, None)])

    def rename(self, old: Path, new: Path) -> None:
        assert old.parent == new.parent
        moved, there = self.find(old), self.folder(new.parent).names.get(new.name)
        if isinstance(there, Folder) and there.names:
            raise _error(errno.ENOTEMPTY, new)
        self._change(self.folder(new.parent), [(old.name, None), (new.name, moved)])

    def _add(self, path: Path, inode: Inode) -> None:
        folder = self.folder(path.parent)
        if path.name in folder.names:
            raise _error(errno.EEXIST, path)
        self._change(folder, [(path.name, inode)])

    def _change(self, folder: Folder, change: list[tuple[str, Inode | None]]) -> None:
        _apply(folder.names, change)
        self._changes.append((folder, change))

    def _number(self) -> int:
        self._count += 1
        return self._count

    # -- bytes ------------------------------------------------------------------------------

    def write(self, file: File, offset: int, data: bytes) -> None:
        file.data = _written(file.data, offset, data)
        file.pending.append((offset, data))
        self._written[file.number] = file

    def cut(self, file: File, length: int) -> None:
        file.data = file.data[:length]
        file.pending.append((length, None))
        self._written[file.number] = file

    # -- what is durable --------------------------------------------------------------------

    def fsync(self, file: File) -> None:
        for offset, data in file.pending:
            file.durable = _written(file.durable, offset, data)
        file.pending.clear()
        if file.durable == file.data:  # not so where an fsync failed before
            self._written.pop(file.number, None)
        if self._order == "journal":
            self._sync_names(None)

    def fsync_fails(self, file: File) -> None:
        self._settle(file)

    def fsync_dir(self, folder: Folder) -> None:
        self._sync_names(None if self._order == "journal" else folder)

    def _sync_names(self, folder: Folder | None) -> None:
        left = []
        for change in self._changes:
            if folder is None or change[0] is folder:
                _apply(change[0].durable, change[1])
            else:
                left.append(change)
        self._changes = left

    def lose_power(self) -> None:
        """What was not durable is lost, or not; all locks are gone."""
        folders = {id(folder): folder for folder, _ in self._changes}
        if self._order == "journal":
            kept = self._changes[: self._choices.below(len(self._changes) + 1)]
        elif self._order == "folders":
            kept = []
            for folder in folders.values():
                own = [change for change in self._changes if change[0] is folder]
                kept += own[: self._choices.below(len(own) + 1)]
        else:
            kept = [change for change in self._changes if self._choices.below(2)]
        for folder, change in kept:
            _apply(folder.durable, change)
        for folder in folders.values():
            folder.names = dict(folder.durable)
        self._changes = []
        for file in self._written.values():
            self._settle(file)
            file.data = file.durable
        self._written = {}
        self.locks = {}

    def _settle(self, file: File) -> None:
        """Some of what is pending becomes durable, the rest never does."""
        choices = self._choices
        for offset, data in file.pending:
            how = choices.below(4)
            if data is None:
                file.durable = file.durable[:offset] if how else file.durable
            elif how == 1:
                file.durable = _written(file.durable, offset, data)
            elif how == 2:
                file.durable = _written(file.durable, offset, data[: choices.below(len(data) + 1)])
            elif how == 3:  # the length was kept; of the bytes, some sectors
                size = max(len(file.durable), offset + len(data))
                file.durable = file.durable.ljust(size, b"\0")
                for start in range(0, len(data), SECTOR):
                    if choices.below(2):
                        file.durable = _written(file.durable, offset + start, data[start : start + SECTOR])
        file.pending.clear()


def _written(old: bytes, offset: int, data: bytes | None) -> bytes:
    if data is None:
        return old[:offset]
    return old[:offset].ljust(offset, b"\0") + data + old[offset + len(data) :]


def _apply(names: dict[str, Inode], change: list[tuple[str, Inode | None]]) -> None:
    for name, inode in change:
        if inode is None:
            names.pop(name, None)
        else:
            names[name] = inode


def _error(number: int, path: Path) -> OSError:
    return OSError(number, os.strerror(number), str(path))
