"""A directory to work in, and servers there."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.pipeline import servers
from benchmarks.pipeline.peers import CannotRun


@contextmanager
def workplace() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="penstock-flow-") as directory:
        work = Path(directory)
        work.chmod(0o711)  # the servers' users pass through it to their own directories
        yield work


@contextmanager
def postgres(work: Path) -> Iterator[Any]:
    """A connection to a server of its own. It answers before its log is on disk, for those it is held against are in
    memory."""
    try:
        import psycopg
    except ImportError as error:
        raise CannotRun(f"{error.name} is not installed") from error
    with servers.postgres(work) as where, psycopg.connect(**where, autocommit=True) as connection:
        connection.execute("set synchronous_commit = off")
        yield connection
