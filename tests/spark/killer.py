"""Kills a job before one of its file operations, whichever of its Python processes makes it.

A job has a `sitecustomize` on its PYTHONPATH that calls `watch`, so that its driver and all of Spark's Python workers
begin with it. Operations are those that change something under the job's folder: the steps of a Disk, and
what Python does to files without one, as its audit events tell. They are counted across processes in one file.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT, COUNTER, AT = "PENSTOCK_KILL_ROOT", "PENSTOCK_KILL_COUNTER", "PENSTOCK_KILL_AT"
# Steps that leave the disk as it is.
READING = ("open", "read", "list", "look at")
# Audit events, with the places of their paths.
CHANGES = {
    "os.rename": (0, 1),
    "os.link": (1,),
    "os.symlink": (1,),
    "os.remove": (0,),
    "os.mkdir": (0,),
    "os.rmdir": (0,),
    "os.truncate": (0,),
    "os.chmod": (0,),
}
WATCHED = {*CHANGES, "open", "import"}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def environment(root: Path, counter: Path, at: int) -> dict[str, str]:
    """What makes a job one that is killed before its at-th operation; 0 only counts."""
    site = counter.parent / "site"
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text("import killer\n\nkiller.watch()\n")
    counter.write_bytes(b"")
    paths = [str(site), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(p for p in paths if p),
        ROOT: str(root),
        COUNTER: str(counter),
        AT: str(at),
    }


def watch() -> None:
    if ROOT not in os.environ:
        return
    root, counter, at = os.environ[ROOT], os.environ[COUNTER], int(os.environ[AT])
    inside = threading.local()  # a step is counted once, not again for what it calls

    def count(what: str, path: Any) -> None:
        with open(counter, "ab", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(f"{what} {path}\n".encode())
            if at and sum(1 for _ in open(counter, "rb")) == at:
                kill_session(os.getsid(0))

    def is_ours(path: Any) -> bool:
        if isinstance(path, int):
            path = os.readlink(f"/proc/self/fd/{path}")
        return isinstance(path, str | os.PathLike) and f"{os.path.abspath(os.fspath(path))}/".startswith(f"{root}/")

    def hook(event: str, args: Any) -> None:
        if event not in WATCHED or getattr(inside, "busy", False):
            return
        changes = event in CHANGES or (event == "open" and isinstance(args[2], int) and args[2] & WRITES)
        inside.busy = True
        try:
            patch()
            if changes and any(is_ours(args[place]) for place in CHANGES.get(event, (0,))):
                count(event, args[0])
        finally:
            inside.busy = False

    def patch() -> None:
        """Disk, as soon as it is there."""
        disk = getattr(sys.modules.get("penstock.commit.disk"), "Disk", None)
        if disk is None or hasattr(disk, "is_watched"):
            return
        disk.is_watched, step = True, disk.step

        @contextmanager
        def watched(self: Any, what: str, path: Path) -> Any:
            if what not in READING and is_ours(path):
                count(what, path)
            inside.busy = True
            try:
                with step(self, what, path):
                    yield
            finally:
                inside.busy = False

        disk.step = watched

    sys.addaudithook(hook)


def kill_session(session: int) -> None:
    """Every process of the session, this one last. Spark's Python workers have a process group of their own."""
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid() and _session(entry) == session:
            _kill(int(entry))
    if os.getsid(0) == session:
        _kill(os.getpid())


def _session(pid: str) -> int:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[3])
    except (OSError, ValueError, IndexError):
        return -1


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
