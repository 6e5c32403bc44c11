"""What goes over the socket: one message each way for calls.

    "PSC1"  bytes of the body  crc32 of the body     12 bytes, big-endian
    body    bytes of the JSON, 4                     the JSON, then Arrow's stream format, or nothing

    calls     {"app": "bank", "event": "Transfer", …}                 their fields, a row each
    outcomes  {}                                                      the outcomes, a row each
    refusal   {"error": "InputError", "says": …, "committed": …, "version": …}

A message that has a "number" does not wait for the answer to the one before: its own has that number, and comes when it
is ready. Then some may be answered with less than an outcome, and have no row: "refused": {"7": {"error": …, …}} and
"waiting": [8], by their place among those that were called. Calls may say more: "strict": an id that was called before
with other fields is refused; "since": the version that there was before they were first called; "waits": false, if an
answer is wanted before their time has come.

    question  {"app": "bank", "asks": "events"}                       what may be called, and its fields
              {"app": "bank", "asks": "outcome", "id": …}             what became of a call

Nothing of a message is believed before its checksum holds; nothing in it is code.
"""

from __future__ import annotations

import json
import socket
import struct
import zlib
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.errors import (
    ConflictError,
    InputError,
    NotRetainedError,
    PenstockError,
    QueueFullError,
    StateError,
)

_HEAD, _SIZE = struct.Struct(">4sII"), struct.Struct(">I")
_MAGIC = b"PSC1"
# No calls need nearly as much; whoever says so speaks another language.
BYTES_MAX = 64 << 20


_TOLD: dict[str, type[PenstockError]] = {
    kind.__name__: kind for kind in (InputError, ConflictError, StateError, NotRetainedError, QueueFullError)
}


class BrokenMessage(Exception):
    """Half a message, or none of ours."""


class Message(NamedTuple):
    header: dict[str, Any]
    rows: pa.Table | None


def send(to: socket.socket, header: dict[str, Any], rows: pa.Table | None = None) -> None:
    to.sendall(encode(header, rows))


def encode(header: dict[str, Any], rows: pa.Table | None = None) -> bytes:
    said = json.dumps(header).encode()
    body = _SIZE.pack(len(said)) + said + (b"" if rows is None else _as_bytes(rows))
    if len(body) > BYTES_MAX:
        raise InputError(f"calls have at most {BYTES_MAX} bytes, and these have {len(body)}; load the data as a batch")
    return _HEAD.pack(_MAGIC, len(body), zlib.crc32(body)) + body


def refusal(error: BaseException) -> dict[str, Any]:
    kind = next((one for one in type(error).__mro__ if one.__name__ in _TOLD), StateError).__name__
    says = str(error) if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"
    told = {name: getattr(error, name, None) for name in ("committed", "version")}
    return {"error": kind, "says": says, **told}


def refused(header: dict[str, Any]) -> PenstockError:
    """What was refused, on the other side."""
    error = _TOLD.get(str(header.get("error")), StateError)
    told = error(str(header.get("says", "the writer's answer says nothing")))
    told.committed, told.version = header.get("committed"), header.get("version")
    return told


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
        rows = pa.ipc.open_stream(rest).read_all() if rest else None
        if rows is not None:
            rows.validate(full=True)
    except (struct.error, ValueError, RecursionError, OSError, pa.ArrowException) as error:
        raise BrokenMessage(f"it cannot be read: {error}") from error
    if not isinstance(header, dict):
        raise BrokenMessage("it has no header")
    return Message(header, rows)


def _as_bytes(rows: pa.Table) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(out.getvalue())
