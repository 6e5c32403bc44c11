"""penstock.json: whose state this directory holds.

    {"app": "bank", "tables": {...}, ..., "log": ..., "directory": "9f…", "chain": 1, "format": 2, "crc": ...}

`tables`, and what else the first writer noted of its app, is how the state was at first; it is not written again. What
has become of it since is in the log, as a commit with a "schema" in its header.

It is written after everything else that a new directory needs, so a directory that has it is whole. A directory
without it is taken only if it is empty or holds no more than a creation that was cut short leaves behind: never
somebody's files, never commits whose owner is unknown.

`log` is how the first writer logged. It is no part of the identity: every segment says its own.
`directory` is this directory's own random name, and `chain` the first commit that carries it (chain.py). A directory
that an older Penstock made has neither, until it is opened for writing: then it gets both.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.commit.disk import Disk
from penstock.commit.sealed import read_sealed, seal
from penstock.errors import StateError

IDENTITY = "penstock.json"
LOG = "log"
SNAPSHOTS = "snapshots"
# What a creation that was cut short may leave behind.
UNFINISHED = {"writer.lock", "writer.json", "writer.json.tmp", "penstock.json.tmp", LOG, SNAPSHOTS}
# What a streaming query keeps beside the state; it may be there before the first batch opens the directory.
SINKS = "sinks"
BESIDE = {"checkpoint", "sources", SINKS}
DRAINED = "drained"  # what it notes at its end
# What a server makes that is given no tokens; each is written under another name first (NAME.….tmp).
READ_TOKEN, WRITE_TOKEN = "read.token", "write.token"
REPORTS = "reports"  # of the last batches (store/reports.py); nothing depends on it
CALLS = "calls.sock"  # a socket that is there while calls are served; a writer that was killed leaves it behind


@dataclass(frozen=True, slots=True)
class Origin:
    """Which directory this is, and from which commit on its files say so."""

    directory: str | None  # None: an older Penstock made it, and nobody has written to it since
    chain: int

    @classmethod
    def new(cls, chain: int = 1) -> Origin:
        return cls(secrets.token_hex(16), chain)


def read_origin(disk: Disk, path: Path) -> Origin:
    identity = read_identity(disk, path, "app", "tables")
    return Origin(identity.get("directory"), identity.get("chain", 0))


def read_identity(disk: Disk, path: Path, *names: str) -> dict[str, Any]:
    """The identity of an existing state directory, which has these names; FileNotFoundError where there is none."""
    content = read_sealed(disk, path / IDENTITY, *names)
    content.pop("log", None)
    return content


def directory_of(disk: Disk, state: Path) -> str | None:
    """The name of a state directory; None where it has none, or is not made yet."""
    try:
        found = read_identity(disk, state).get("directory")
    except FileNotFoundError:
        return None
    return None if found is None else str(found)


def refuse_foreign(disk: Disk, path: Path, content: Mapping[str, Any], state: Path, remedy: str) -> None:
    """StateError where a sealed file is of another state directory. An older Penstock gave neither a name."""
    theirs, ours = content.get("directory"), directory_of(disk, state)
    if None not in (theirs, ours) and theirs != ours:
        raise StateError(f"{path} belongs to another state directory, {theirs!r}, not {ours!r}; {remedy}")


def need_identity(disk: Disk, path: Path, *names: str) -> dict[str, Any]:
    """The same for who needs one: a StateError where there is none."""
    try:
        return read_identity(disk, path, *names)
    except FileNotFoundError as error:
        raise StateError(f"{path} is not a state directory: it has no penstock.json; name one that has") from error


def write_identity(disk: Disk, path: Path, identity: dict[str, Any], log: str, origin: Origin) -> None:
    disk.fsync_dir(path.parent)  # Whoever made the directory may not have lived to do it.
    disk.ensure_dir(path / LOG)
    disk.ensure_dir(path / SNAPSHOTS)
    disk.replace(path / IDENTITY, seal({**identity, "log": log, "directory": origin.directory, "chain": origin.chain}))


def write_origin(disk: Disk, path: Path, origin: Origin) -> None:
    """Give a directory that an older Penstock made a name of its own."""
    content = read_sealed(disk, path / IDENTITY)
    disk.replace(path / IDENTITY, seal({**content, "directory": origin.directory, "chain": origin.chain}))


def check_identity(path: Path, stored: dict[str, Any], given: dict[str, Any]) -> None:
    """Whether the tables are still those of the app, the log knows."""
    if stored.get("app") != given["app"]:
        raise StateError(
            f"state directory {path} is not this app's: it is of app {stored.get('app')!r}, and this is app "
            f"{given['app']!r}; open another directory"
        )


def check_new(disk: Disk, path: Path) -> None:
    """Raises if the directory, which has no penstock.json, holds anything that is not ours to take."""
    names = disk.listdir(path)
    foreign = [name for name in names if name not in UNFINISHED | BESIDE]
    kept = [name for name in (LOG, SNAPSHOTS) if name in names and disk.listdir(path / name)]
    if kept:
        raise StateError(f"{path / IDENTITY} is missing, but {path} holds commits; restore it from a backup")
    if foreign:
        raise StateError(
            f"{path} is not a state directory: it has no {IDENTITY}, but holds {foreign[0]!r}; name an empty or new one"
        )
