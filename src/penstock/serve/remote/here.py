"""The servers of this user on this machine: where their tokens are, for clients that are given none.

    /tmp/penstock-1000/http-7400.json     {"read": FILE, "write": FILE, "pid": …}

The folder is this user's alone. And before a token is sent anywhere, who listens at the port must be this user: another
user's process that has taken it is told none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.errors import StateError
from penstock.serve.address import private_folder

_LISTENS = "0A"


@contextmanager
def noted(port: int, read: Path, write: Path) -> Iterator[None]:
    """That a server listens, and where its tokens are, as long as it does."""
    path = private_folder() / f"http-{port}.json"
    made = path.with_name(f"{path.name}.{os.getpid()}")
    told = json.dumps({"read": str(read.absolute()), "write": str(write.absolute()), "pid": os.getpid()})
    with suppress(OSError, StateError):  # Clients can still be given a token.
        private_folder(make=True)
        made.write_text(told)
        made.replace(path)
    try:
        yield
    finally:
        with suppress(OSError):
            if path.read_text() == told:
                path.unlink()


def token_of(port: int) -> str | None:
    """Of the server at this port of a loopback address; that which may write, where it can be read."""
    try:
        told = json.loads((private_folder() / f"http-{port}.json").read_text())
    except (OSError, StateError, ValueError):
        return None
    if not is_own(port):
        return None
    for which in ("write", "read"):
        with suppress(OSError, KeyError, TypeError):
            return Path(told[which]).read_text().strip()
    return None


def is_own(port: int) -> bool:
    """Whether everybody who listens at this port is this user; no, where that cannot be told."""
    owners = set()
    for family in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path(f"/proc/net/{family}").read_text().splitlines()[1:]:
                parts = line.split()
                if parts[3] == _LISTENS and int(parts[1].rpartition(":")[2], 16) == port:
                    owners.add(int(parts[7]))
    return owners == {os.getuid()}
