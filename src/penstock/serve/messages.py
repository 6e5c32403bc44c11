"""What goes over the socket: one message each way for a call.

    "PSC1"  bytes of the body  crc32 of the body     12 bytes, big-endian
    body    bytes of the JSON, 4                     the JSON, then Arrow's stream format, or nothing

    call      {"app": "bank", "event": "Transfer"}                    its fields, one row
    outcome   {}                                                      the outcome, one row
    refusal   {"error": "InputError", "says": …, "committed": …, "version": …}

Nothing of a message is believed before its checksum holds; nothing in it is code.
"""

from __future__ import annotations

import json
import socket
import struct
import zlib
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.errors import InputError

_HEAD, _SIZE = struct.Struct(">4sII"), struct.Struct(">I")
_MAGIC = b"PSC1"
# No event of one row needs nearly as much; whoever says so speaks another language.
BYTES_MAX = 64 << 20


class BrokenMessage(Exception):
    """Half a message, or none of ours."""


class Message(NamedTuple):
    header: dict[str, Any]
    row: pa.Table | None


def send(to: socket.socket, header: dict[str, Any], row: pa.Table | None = None) -> None:
    said = json.dumps(header).encode()
    body = _SIZE.pack(len(said)) + said + (b"" if row is None else _as_bytes(row))
    if len(body) > BYTES_MAX:
        raise InputError(
            f"a call has at most {BYTES_MAX} bytes, and this one has {len(body)}; load its data as a batch"
        )
    to.sendall(_HEAD.pack(_MAGIC, len(body), zlib.crc32(body)) + body)


def receive(source: socket.socket) -> Message | None:
    """The next message; None where the other side has closed the connection after the last one."""
    head = _exactly(source, _HEAD.size, begun=False)
    if head is None:
        return None
    magic, size, crc = _HEAD.unpack(head)
    if magic != _MAGIC:
        raise BrokenMessage("it does not begin as a message of Penstock does")
    if size > BYTES_MAX:
        raise BrokenMessage(f"it says that it has {size} bytes; a call has at most {BYTES_MAX}")
    body = _exactly(source, size, begun=True)
    assert body is not None
    if zlib.crc32(body) != crc:
        raise BrokenMessage("its checksum does not hold")
    return _parsed(body)


def _exactly(source: socket.socket, size: int, *, begun: bool) -> bytes | None:
    parts, left = list[bytes](), size
    while left:
        part = source.recv(min(left, 1 << 20))
        if not part:
            if begun or parts:
                raise BrokenMessage("it ends in the middle")
            return None
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _parsed(body: bytes) -> Message:
    try:
        (size,) = _SIZE.unpack_from(body)
        header = json.loads(body[_SIZE.size : _SIZE.size + size])
        rest = body[_SIZE.size + size :]
        row = pa.ipc.open_stream(rest).read_all() if rest else None
        if row is not None:
            row.validate(full=True)
    except (struct.error, ValueError, RecursionError, OSError, pa.ArrowException) as error:
        raise BrokenMessage(f"it cannot be read: {error}") from error
    if not isinstance(header, dict):
        raise BrokenMessage("it has no header")
    return Message(header, row)


def _as_bytes(row: pa.Table) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, row.schema) as writer:
        writer.write_table(row)
    return bytes(out.getvalue())
