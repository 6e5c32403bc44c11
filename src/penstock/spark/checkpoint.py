"""What Spark notes in its checkpoint, as far as we read it: the query's identity, and each batch's offsets.

    checkpoint/metadata              {"id": "5f0e…"}
    checkpoint/offsets/7             the plan of batch 7
    checkpoint/offsets/.7.crc        "crc\\0", bytes per sum, then a CRC32 for each so many bytes, all big-endian

The checksums are Hadoop's. Spark looks at them when it reads its own files, and so do we; a file without them is
believed, as Spark believes it.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from pathlib import Path
from typing import Any

from penstock.commit.disk import Disk
from penstock.errors import StateError

CHECKPOINT = "checkpoint"
_MAGIC = b"crc\0"
_BYTES_PER_SUM = 512  # Hadoop's own choice
_REMEDY = "restore the checkpoint that belongs to the state directory"


def query_id(state: str) -> str:
    """The identity that Spark gave the query when it made the checkpoint."""
    path = Path(state) / CHECKPOINT / "metadata"
    try:
        return str(json.loads(_need(path))["id"])
    except (ValueError, TypeError, KeyError) as error:
        raise StateError(f"{path} is damaged: it does not say which query's it is; {_REMEDY}") from error


def planned(state: str, batch_id: int) -> str:
    """A fingerprint of Spark's plan of a batch: its offsets, and when it was planned. As long as the checkpoint keeps
    that file, the batch is sent again as it was; without it the same number may get other events."""
    return fingerprint(_need(Path(state) / CHECKPOINT / "offsets" / str(batch_id)))


def last_done(state: str) -> int | None:
    """The last batch that Spark has noted as done; None where there is none."""
    try:
        names = Disk().listdir(Path(state) / CHECKPOINT / "commits")
    except FileNotFoundError:
        return None
    return max((int(name) for name in names if name.isdigit()), default=None)


def first_not_done(state: str) -> int:
    """The batch that Spark may still send, or send again: what came after it has to stay in the log."""
    done = last_done(state)
    return 0 if done is None else done + 1


def noted_offset(state: str, event: str) -> dict[str, Any] | None:
    """Up to where the newest plan has read a direct source; None where it has not begun."""
    return next((one for one in noted_offsets(state) or () if one is not None and one["event"] == event), None)


def noted_offsets(state: str) -> list[dict[str, Any] | None] | None:
    """The sources of the newest plan, in their places: the offset of a direct one, which names its event, None for any
    other; None where there is no plan, or one of another make."""
    try:
        path = Path(state) / CHECKPOINT / "offsets" / str(max(_planned(state)))
        version, _, *sources = read_note(path).decode().splitlines()
    except (FileNotFoundError, ValueError):
        return None
    return [_direct(source) for source in sources] if version == "v1" else None


def newest_planned(state: str) -> int | None:
    """The last batch that Spark has planned; None where there is none."""
    return max(_planned(state), default=None)


def extend_plans(state: str, events: list[str | None]) -> None:
    """Lines for direct sources behind those that there are, as if they had been there, without a file, from the
    beginning. events: of all places. Spark lays the newest two plans side by side, so both get them; the newest first,
    which is the one that says to the next start that they are there."""
    for number in sorted(_planned(state))[:-3:-1]:
        path = Path(state) / CHECKPOINT / "offsets" / str(number)
        data = read_note(path)
        new = events[len(data.decode().splitlines()) - 2 :]
        if new:
            _write_note(path, b"\n".join([data, *(json.dumps({"event": n, "files": 0}).encode() for n in new)]))


def _planned(state: str) -> list[int]:
    try:
        return [int(n) for n in Disk().listdir(Path(state) / CHECKPOINT / "offsets") if n.isdigit()]
    except FileNotFoundError:
        return []


def _direct(offset: str) -> dict[str, Any] | None:
    try:
        found = json.loads(offset)
    except ValueError:  # one that has not begun
        return None
    return found if isinstance(found, dict) and "event" in found else None  # None: a DataFrame's


def fingerprint(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _need(path: Path) -> bytes:
    try:
        return read_note(path)
    except FileNotFoundError as error:
        raise StateError(f"{path} is missing; {_REMEDY}") from error


def read_note(path: Path) -> bytes:
    """A file of the checkpoint, checked; FileNotFoundError where there is none."""
    disk = Disk()
    data = disk.read(path)
    sums = path.with_name(f".{path.name}.crc")
    try:
        given = disk.read(sums)
    except FileNotFoundError:
        return data
    if not _holds(data, given):
        raise StateError(f"{path} is damaged: the checksums in {sums.name} do not hold; {_REMEDY}")
    return data


def _write_note(path: Path, data: bytes) -> None:
    """A crash leaves the old file or the new one, and no checksums or the right ones."""
    disk, sums = Disk(), path.with_name(f".{path.name}.crc")
    if disk.exists(sums):
        disk.unlink(sums)
        disk.fsync_dir(path.parent)
    disk.replace(path, data)
    disk.replace(sums, _MAGIC + struct.pack(">I", _BYTES_PER_SUM) + _sums(data, _BYTES_PER_SUM))


def _holds(data: bytes, sums: bytes) -> bool:
    if len(sums) < 8 or sums[:4] != _MAGIC:
        return False
    (size,) = struct.unpack(">I", sums[4:8])
    if not size:
        return False
    return sums[8:] == _sums(data, size)


def _sums(data: bytes, size: int) -> bytes:
    found = [zlib.crc32(data[at : at + size]) for at in range(0, len(data), size)]
    return struct.pack(f">{len(found)}I", *found)
