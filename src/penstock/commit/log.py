"""One segment: one commit, in one file that is never changed.

    magic      8 bytes
    length     u32, little endian: of the header
    crc        u32: of the length's bytes and the header
    header     JSON, padded with spaces so that the parts begin on a multiple of 64 bytes:
               {"header": what the caller gave, "parts": {name: [offset, length, crc32]}}
    parts      Arrow IPC streams, one after the other; offsets count from the end of the header

A segment's hash is taken over its header, which holds the checksum of each part: so it stands for the whole file,
and a look at the header is enough to know it. The next segment's header names it (chain.py).

Invariants:
- Every byte of the file is covered by the magic, a crc, or the check of the file's size: a flipped
  bit, a lost tail or a tail too many is a StateError that names the file, never another answer.
- A part's bytes are checked when it is read; `only` reads and checks no more than it needs.
- An open SegmentFile can be read although its name has been pruned since.
- Nothing is copied to make a segment: Arrow hands over the tables' own buffers, and they are written as
  they are. (Into a BufferOutputStream the same 4 MB cost 5 to 19 ms more, on two shared cores.)
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Callable, Collection, Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.commit.disk import Disk
from penstock.errors import StateError

MAGIC = b"PNSTOCK1"
PREFIX = struct.Struct("<8sII")
LENGTH = struct.Struct("<I")
ALIGNMENT = 64
# Most headers fit in the first read, so that one look at a segment is one pread.
FIRST_READ = 4096


@dataclass(frozen=True, slots=True)
class Segment:
    header: dict[str, Any]
    parts: dict[str, pa.Table]


@dataclass(frozen=True, slots=True)
class Contents:
    """What the head of a segment's file says: enough to find and check each part."""

    header: dict[str, Any]
    parts: dict[str, tuple[int, int, int]]
    start: int
    size: int
    hash: str


@dataclass(frozen=True, slots=True)
class Encoded:
    """A segment as it goes to its file: in pieces, most of which are the tables' own memory."""

    pieces: list[memoryview]
    hash: str

    @property
    def size(self) -> int:
        return sum(map(len, self.pieces))


def encode(header: dict[str, Any], parts: dict[str, pa.Table]) -> Encoded:
    body: list[memoryview] = []
    places: dict[str, tuple[int, int, int]] = {}
    offset = 0
    for name, table in parts.items():
        pieces = serialise(table)
        length, crc = measure(pieces)
        places[name] = (offset, length, crc)
        offset += length
        body += pieces
    text = json.dumps({"header": header, "parts": places}, allow_nan=False).encode()
    text += b" " * (-(PREFIX.size + len(text)) % ALIGNMENT)
    prefix = PREFIX.pack(MAGIC, len(text), _header_crc(text))
    return Encoded([memoryview(prefix + text), *body], _hash(text))


class SegmentFile:
    """A segment's file, open: its header has been read and checked."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self.path, self._disk, self._fd = path, disk, -1
        self._fd = _open(disk, path)
        try:
            self.contents = _contents(disk, self._fd, path)
        except BaseException:
            self.close()
            raise

    def read(self, only: Collection[str] | None = None, skip: Container[str] = ()) -> Segment:
        """The segment with all its parts, or with those of `only` that it has, but for those to skip."""
        names = [name for name in self.contents.parts if (only is None or name in only) and name not in skip]
        parts = {name: _part(self._disk, self._fd, self.path, self.contents, name) for name in names}
        return Segment(self.contents.header, parts)

    def verify(self, told: Callable[[int], None]) -> None:
        """Reads every byte again, from the device where that can be; keeps nothing of it."""
        self._disk.drop_cached(self._fd)
        contents = _contents(self._disk, self._fd, self.path)
        told(contents.start)
        for name, (offset, length, crc) in contents.parts.items():
            if self._disk.crc(self._fd, length, contents.start + offset, self.path, told) != crc:
                raise _damaged_part(self.path, name)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._disk.close(fd)

    def __enter__(self) -> SegmentFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()  # A reader may stop half-way through the files that it holds.


def read_segment(disk: Disk, path: Path, only: Collection[str] | None = None, skip: Container[str] = ()) -> Segment:
    with SegmentFile(disk, path) as file:
        return file.read(only, skip)


def read_contents(disk: Disk, path: Path) -> Contents:
    with SegmentFile(disk, path) as file:
        return file.contents


def serialise(table: pa.Table, file: bool = False) -> list[memoryview]:
    """The table as an Arrow IPC stream (or file), in pieces."""
    sink = _Pieces()
    # A file holds one dictionary a column, so the chunks' dictionaries are made one there.
    options = pa.ipc.IpcWriteOptions(unify_dictionaries=file)
    new = pa.ipc.new_file if file else pa.ipc.new_stream
    with pa.PythonFile(sink, mode="w") as stream, new(stream, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.pieces


def measure(pieces: Sequence[memoryview]) -> tuple[int, int]:
    """Length and crc32 of the pieces as one."""
    length = crc = 0
    for piece in pieces:
        length += len(piece)
        crc = zlib.crc32(piece, crc)
    return length, crc


def _open(disk: Disk, path: Path) -> int:
    try:
        return disk.open(path)
    except OSError as error:
        raise StateError(f"{path} is missing or cannot be opened; restore it from a backup") from error


def _contents(disk: Disk, fd: int, path: Path) -> Contents:
    size = disk.size(fd)
    head = bytes(memoryview(disk.pread(fd, min(size, FIRST_READ), 0, path)))
    if len(head) < PREFIX.size:
        raise damaged(path, "it is cut short")
    magic, length, crc = PREFIX.unpack_from(head)
    if magic != MAGIC:
        raise damaged(path, "it does not begin as a segment does")
    start = PREFIX.size + length
    if start > size:
        raise damaged(path, "it is cut short")
    if start > len(head):
        head = bytes(memoryview(disk.pread(fd, start, 0, path)))
    text = head[PREFIX.size : start]
    if crc != _header_crc(text):
        raise damaged(path, "the checksum of its header does not hold")
    content = json.loads(text)
    parts = {name: (offset, length, crc) for name, (offset, length, crc) in content["parts"].items()}
    if size != start + sum(length for _, length, _ in parts.values()):
        raise damaged(path, f"it has {size} bytes, which is not what its header says")
    return Contents(content["header"], parts, start, size, _hash(text))


def _part(disk: Disk, fd: int, path: Path, contents: Contents, name: str) -> pa.Table:
    offset, length, crc = contents.parts[name]
    data = disk.pread(fd, length, contents.start + offset, path)
    if len(data) != length or zlib.crc32(data) != crc:
        raise _damaged_part(path, name)
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()


def _header_crc(text: bytes) -> int:
    return zlib.crc32(text, zlib.crc32(LENGTH.pack(len(text))))


def _hash(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:32]


def damaged(path: Path, how: str) -> StateError:
    return StateError(f"{path} is damaged: {how}; restore it from a backup")


def _damaged_part(path: Path, name: str) -> StateError:
    return damaged(path, f"the checksum of its part {name!r} does not hold")


class _Pieces:
    """A file to Arrow, which keeps what is written: buffers as they are, not copied."""

    closed = False

    def __init__(self) -> None:
        self.pieces: list[memoryview] = []
        self.length = 0

    def write(self, data: Any) -> int:
        piece = memoryview(data).cast("B")
        self.pieces.append(piece)
        self.length += len(piece)
        return len(piece)

    def tell(self) -> int:
        return self.length

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False
