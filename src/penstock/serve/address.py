"""Where the socket of a state directory is: both sides find it by the directory alone.

state/bank/calls.sock                  0600, like the state; there while a writer serves calls
/tmp/penstock-1000/5f0e….sock          where that path is longer than a socket's may be; the folder is 0700
"""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

from penstock.commit.identity import CALLS
from penstock.errors import StateError

# A socket's path has at most 108 bytes on Linux and 104 elsewhere, the last of them a zero.
_LONGEST = 103
_ABSENT = (errno.ENOENT, errno.ECONNREFUSED, errno.ENOTSOCK, errno.ENOTDIR)


def socket_path(state: str | os.PathLike[str]) -> Path:
    whole = Path(os.path.realpath(state)) / CALLS
    if len(os.fsencode(whole)) <= _LONGEST:
        return whole
    return _folder() / f"{hashlib.sha256(os.fsencode(whole)).hexdigest()[:32]}.sock"


def make_folder(path: Path) -> None:
    """For a socket that is not in its state directory."""
    if path.parent == _folder():
        with suppress(FileExistsError):
            path.parent.mkdir(mode=0o700)
        check_folder(path)


def check_folder(path: Path) -> None:
    """Raises unless a socket that is not in its state directory is in a folder that nobody else can have put something
    into: whoever listens there is told all that is called, and answers. Both sides look."""
    if path.parent != _folder():
        return
    try:
        found = path.parent.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise StateError(
            f"{path.parent} is not a folder of this user's alone; remove it, or keep the state directory "
            f"where its path is short"
        )


def private_folder(*, make: bool = False) -> Path:
    """This user's own in /tmp, where nobody else can have put anything."""
    path = _folder() / "any"
    if make:
        make_folder(path)
    check_folder(path)
    return path.parent


def connected(state: Path) -> socket.socket:
    """A connection to the writer of a state directory."""
    path = socket_path(state)
    check_folder(path)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(os.fspath(path))
    except OSError as error:
        connection.close()
        if error.errno in _ABSENT:
            raise StateError(
                f"nobody serves calls of state directory {state}: open it, or start its query, with "
                "calls=True, on this machine"
            ) from error
        raise StateError(f"{path}: {error.strerror}; calls are for the user whose state it is") from error
    return connection


def _folder() -> Path:
    return Path("/tmp") / f"penstock-{os.getuid()}"
