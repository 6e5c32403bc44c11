"""How far a reader is behind, and whether anyone writes."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

from penstock.commit import Disk
from penstock.commit.lock import LOCK, OWNER
from penstock.commit.scan import newest_at_first_look, segment_path
from penstock.commit.sealed import read_sealed
from penstock.errors import StateError


@dataclass(frozen=True, slots=True)
class Lag:
    version: int  # what the reader answers from
    newest: int | None  # the newest on the disk; None where that cannot be told
    committed_at: float | None  # when the last commit that the reader has was made, in seconds since 1970; None: pruned
    writer: int | None  # the pid of the last writer; None where there was none
    host: str | None  # where that ran
    writer_is_there: bool | None  # None: it is of another machine, or cannot be told
    failure: str | None  # why the reader does not go on


def lag(disk: Disk, path: Path, version: int, seq: int, failure: StateError | None) -> Lag:
    found = newest_at_first_look(disk, path)
    try:
        committed_at = disk.stat(segment_path(path, seq)).st_ctime  # of its name: it is linked last
    except (OSError, StateError):
        committed_at = None
    try:
        owner = read_sealed(disk, path / OWNER)
    except (OSError, StateError):
        owner = {}
    host = owner.get("host")
    there = _is_locked(disk, path / LOCK) if host in (None, socket.gethostname()) else None
    newest = None if found is None else found[1].version
    return Lag(version, newest, committed_at, owner.get("pid"), host, there, None if failure is None else str(failure))


def _is_locked(disk: Disk, file: Path) -> bool | None:
    """Whether a process of this machine holds it, without trying to: who opens the directory just then would be
    refused."""
    try:
        inode = disk.stat(file).st_ino
        locks = Path("/proc/locks").read_text()
    except (OSError, StateError):
        return None
    return any(" FLOCK " in line and f":{inode} " in line for line in locks.splitlines())
