"""A copy of a directory's tables in this process, which goes on as its writer commits.

    open         the newest snapshot, and the log behind it                       restored()
    follow       each commit as it comes, in a thread of its own                  LogFollower -> State.apply
    pruned       what was not read in time is gone: once more from a snapshot     versions never fall

One lock stands before the tables: whoever reads holds it for microseconds, the thread for as long as a commit takes to
be applied. `moved` is told of each version.

What stops it (a damaged file, a directory that is gone, batches that were logged as their input where there is no app)
is its failure: from then on every reading says it, as what is there would grow old in silence. It goes on looking, so
it goes on where that is mended, or where a newer snapshot stands behind the damage.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.commit import Disk
from penstock.commit.follow import LogFollower
from penstock.commit.identity import SNAPSHOTS
from penstock.commit.recover import recover
from penstock.commit.scan import numbers
from penstock.errors import NotRetainedError, StateError
from penstock.replica.changes import Changes, PartsBesides, changes_of, is_input
from penstock.replica.state import State
from penstock.store.schemas import Schemas

# Between two looks for the next commit: few enough to cost nothing, and well within what a reader notices.
LOOK_S = 0.002
# Between two attempts to go on after a failure.
RETRY_S = 0.5


@dataclass(frozen=True, slots=True)
class Restored:
    state: State
    version: int
    seq: int  # the commit
    hash: str | None


def restored(disk: Disk, path: Path, identity: dict[str, Any], upto: int | None = None) -> Restored:
    """The tables of a version, the newest unless told."""
    recovery = recover(disk, path, upto, skip=PartsBesides())
    schemas = Schemas(recovery.scan, identity)
    state = State.of(identity["app"], schemas.at(recovery.base_version), recovery.snapshot, str(path))
    seq, entry = recovery.scan.newest
    with closing(recovery.segments) as segments:
        for segment in segments:
            if is_input(segment):
                raise _needs_app(path, segment.header["version"])
            changes = changes_of(segment)
            if changes.schema is None:
                state.apply(changes)
            else:
                state = state.migrated(changes, str(path))
    return Restored(state, entry.version if upto is None else upto, seq, entry.hash)


class Replica:
    def __init__(self, path: Path, disk: Disk, identity: dict[str, Any]) -> None:
        self.path, self.identity = path, identity
        self._disk, self._skip = disk, PartsBesides()
        self.lock = disk.mutex()
        self.moved = threading.Condition(self.lock)  # type: ignore[arg-type]
        self.failure: StateError | None = None
        self._stop = threading.Event()
        self._begin(restored(disk, path, identity))
        _running.add(self)
        self._thread = disk.thread(self._run, "penstock-reader", daemon=True)

    def _begin(self, found: Restored) -> None:
        self.state, self.version, self.seq = found.state, found.version, found.seq
        self._follower = LogFollower(self._disk, self.path, found.seq, found.hash, self._skip)

    @property
    def closed(self) -> bool:
        return self._stop.is_set()

    @property
    def goes_on(self) -> bool:
        return not self.closed and self.failure is None

    def close(self) -> None:
        self._stop.set()
        with self.moved:
            self.moved.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def refuse_unusable(self) -> None:
        """With or without the lock."""
        if self._stop.is_set():
            raise StateError(f"the reader of state directory {self.path} is closed; open it again")
        failure = self.failure
        if failure is not None:
            raise type(failure)(str(failure)) from failure

    def wait(self, there: Callable[[], bool], timeout: float | None) -> bool:
        """Until it has come so far; False where that takes too long."""
        with self.moved:
            self.moved.wait_for(lambda: there() or not self.goes_on, timeout)
            self.refuse_unusable()
            return there()

    # -- in its thread ----------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._go_on()
                failure = None
            except StateError as error:
                failure = error
            except BaseException as error:  # a thread has nobody to tell
                failure = StateError(
                    f"the reader of state directory {self.path} failed: {type(error).__name__}: {error}"
                )
                failure.__cause__ = error
            with self.moved:
                self.failure = failure
                self.moved.notify_all()
            self._stop.wait(RETRY_S if failure is not None else 0)

    def _go_on(self) -> None:
        """Follows the log until it is stopped, or has gone past a failure."""
        try:
            while not self._stop.is_set():
                segment = self._follower.next()
                if segment is None:
                    if self.failure is not None:
                        return
                    self._stop.wait(LOOK_S)
                elif is_input(segment):
                    raise _needs_app(self.path, segment.header["version"])
                else:
                    self._apply(changes_of(segment))
        except NotRetainedError:
            self._begin_anew()
        except StateError:
            if max(numbers(self._disk, self.path / SNAPSHOTS), default=0) <= self.seq:
                raise
            self._begin_anew()  # behind what is wrong

    def _apply(self, changes: Changes) -> None:
        if changes.schema is None:
            with self.moved:
                self.state.apply(changes)
                self._reached(changes.version)
        else:
            state = self.state.migrated(changes, str(self.path))
            with self.moved:
                self.state = state
                self._reached(changes.version)

    def _reached(self, version: int) -> None:
        self.version, self.seq = version, self._follower.seq
        self.moved.notify_all()

    def _begin_anew(self) -> None:
        found = restored(self._disk, self.path, self.identity)
        if found.seq < self.seq or found.version < self.version:
            raise StateError(
                f"state directory {self.path} has gone back from version {self.version} to {found.version}: it is an "
                "older copy now; open it again"
            )
        with self.moved:
            self._begin(found)
            self.moved.notify_all()


def _needs_app(path: Path, version: int) -> StateError:
    return StateError(
        f"state directory {path}: version {version} was logged as its input, so its tables cannot be read without the "
        "app; open it with the app: app.open(path, read_only=True)"
    )


_running: weakref.WeakSet[Replica] = weakref.WeakSet()


def _stop_in_children() -> None:
    """A fork has no such thread, so nothing would go on there."""
    for replica in list(_running):
        replica.lock = replica._disk.mutex()  # it may be held by a thread that is not there
        replica.moved = threading.Condition(replica.lock)  # type: ignore[arg-type]
        replica.failure = StateError(
            f"the reader of state directory {replica.path} was opened before this process was forked; open it here"
        )


os.register_at_fork(after_in_child=_stop_in_children)
