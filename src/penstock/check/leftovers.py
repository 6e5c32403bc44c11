"""The files of a state directory that hold no commits: hints, what dead writers left, and what is not Penstock's.

Nothing is lost with any of them; but who looks at a directory wants to know what they are.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from penstock.check.findings import Finding, problem_of
from penstock.check.verify import snapshot_files
from penstock.commit.disk import Disk
from penstock.commit.identity import (
    BESIDE,
    CALLS,
    DRAINED,
    IDENTITY,
    LOG,
    READ_TOKEN,
    REPORTS,
    SNAPSHOTS,
    UNFINISHED,
    WRITE_TOKEN,
)
from penstock.commit.lock import LOCK, OWNER, writer_tag
from penstock.commit.scan import HEAD, Head, head_bytes, read_head
from penstock.commit.snapshot import REMOVED
from penstock.errors import StateError

TOKENS = frozenset({READ_TOKEN, WRITE_TOKEN})
OURS = UNFINISHED | BESIDE | TOKENS | {IDENTITY, HEAD, LOCK, OWNER, DRAINED, CALLS, REPORTS}
# What is written before the first commit, and what an older Penstock wrote: it says as little as a head that is lost.
_EMPTY = (head_bytes(0, ""), b"%012d %08x\n" % (0, zlib.crc32(b"%012d" % 0)))
_DEAD = "was left by a writer that died"


def leftovers(disk: Disk, path: Path) -> Iterator[Finding]:
    yield from _head(disk, path)
    try:
        tag = writer_tag(disk, path)
    except StateError as error:
        tag = ""
        yield Finding(OWNER, True, problem_of(error, path / OWNER), "the next writer writes a new one")
    for name in names(disk, path):
        if name in UNFINISHED and name.endswith(".tmp"):
            yield Finding(name, True, _DEAD, "it does not matter, and is replaced in time")
        elif _is_half_a_token(name):
            yield Finding(name, True, "was left by a server that died", "it does not matter; remove it")
        elif name not in OURS:
            yield _unknown(name)
    for folder, whole in ((LOG, r"\d{12}\.seg"), (SNAPSHOTS, r"\d{12}")):
        for name in names(disk, path / folder):
            if re.fullmatch(r"\d{12}\.[0-9a-f]{8}\.open", name):
                if not tag or f".{tag}." not in name:
                    yield Finding(f"{folder}/{name}", True, _DEAD, "it never happened: the next writer removes it")
            elif folder == SNAPSHOTS and re.fullmatch(whole + re.escape(REMOVED), name):
                yield Finding(
                    f"{folder}/{name}", True, "was being removed", "the writer, or the next one, goes on with it"
                )
            elif not re.fullmatch(whole, name):
                yield _unknown(f"{folder}/{name}")
            elif folder == SNAPSHOTS:
                yield from _in_snapshot(disk, path, f"{folder}/{name}")


def all_files(disk: Disk, path: Path) -> Iterator[tuple[str, int]]:
    """Every file but those that a query keeps beside the state, and its size."""
    top = [name for name in names(disk, path) if name not in BESIDE | {LOG, SNAPSHOTS, CALLS}]
    log = [f"{LOG}/{name}" for name in names(disk, path / LOG)]
    folders = [f"{SNAPSHOTS}/{name}" for name in names(disk, path / SNAPSHOTS)]
    tables = [f"{folder}/{name}" for folder in folders for name in names(disk, path / folder)]
    for name in (*top, *log, *tables):
        try:
            yield name, disk.stat(path / name).st_size
        except (FileNotFoundError, StateError):
            continue  # Pruned since it was listed, or not to be looked at, which is told elsewhere.


def _is_half_a_token(name: str) -> bool:
    return name.endswith(".tmp") and any(name.startswith(f"{token}.") for token in TOKENS)


def names(disk: Disk, folder: Path) -> list[str]:
    try:
        return disk.listdir(folder)
    except (FileNotFoundError, StateError):
        return []


def _in_snapshot(disk: Disk, path: Path, folder: str) -> Iterator[Finding]:
    known = {file.name for file in snapshot_files(disk, path / folder)}
    for name in names(disk, path / folder):
        # Without a manifest it is not known what belongs to it.
        if name not in known and len(known) > 1:
            yield _unknown(f"{folder}/{name}")


def _head(disk: Disk, path: Path) -> Iterator[Finding]:
    remedy = "it is only a hint, and the next commit writes a new one"
    try:
        data = disk.read(path / HEAD)
        if read_head(disk, path) == Head() and data not in _EMPTY:
            yield Finding(HEAD, True, "is torn or damaged", remedy)
    except FileNotFoundError:
        yield Finding(HEAD, True, "is missing", remedy)
    except StateError as error:
        yield Finding(HEAD, False, problem_of(error, path / HEAD), "move it away: until then nothing can be read")


def _unknown(name: str) -> Finding:
    return Finding(name, True, "is not Penstock's", "nothing reads it; move it away if nobody needs it")
