"""A copy of a directory's tables in this process, which goes on as its writer commits.

    open         the newest snapshot, and the log behind it                       source.py
    follow       each commit as it comes, in a thread of its own                  LogFollower -> State.go_on
    pruned       what was not read in time is gone: once more from a snapshot     versions never fall

One lock stands before the tables: whoever reads holds it for microseconds, the thread for a piece of a commit. `moved`
is told of each version.

What stops it (a damaged file, a directory that is gone, batches that were logged as their input where there is no app)
is its failure: from then on every reading says it, as what is there would grow old in silence. It goes on looking, so
it goes on where that is mended, or where a newer snapshot stands behind the damage.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from penstock.commit.follow import LogFollower
from penstock.commit.identity import SNAPSHOTS
from penstock.commit.scan import numbers
from penstock.errors import NotRetainedError, StateError
from penstock.replica.changes import Changes
from penstock.replica.source import NeedsApp, Restored, Source

# Between two looks for the next commit: few enough to cost nothing, and well within what a reader notices.
LOOK_S = 0.002
# The shortest that a thread sleeps: long enough for another one to wake up.
GIVE_WAY_S = 20e-6
# Between two attempts to go on after a failure; each takes twice as long as the one before, up to the second.
RETRY_S, RETRY_S_MAX = 0.2, 10.0


class Replica:
    def __init__(self, source: Source) -> None:
        self.source, self.path = source, source.path
        self.lock = source.disk.mutex()
        self.moved = threading.Condition(self.lock)  # type: ignore[arg-type]
        self.failure: StateError | None = None
        self._busy = False  # a commit is there
        self._torn = False  # a commit was applied in part: all of it has to be read again
        self._stop, self._stopped = threading.Event(), False
        self._begin(source.restored())
        _running.add(self)
        self._thread = source.disk.thread(self._run, "penstock-reader", daemon=True)

    def _begin(self, found: Restored) -> None:
        self.state, self.version, self.seq = found.state, found.version, found.seq
        self._changes_of, self._torn = found.changes_of, False
        self._follower = LogFollower(self.source.disk, self.path, found.seq, found.hash, self.source.skip)

    @property
    def closed(self) -> bool:
        return self._stopped

    @property
    def goes_on(self) -> bool:
        return not self._stopped and self.failure is None

    def close(self) -> None:
        self._stop.set()
        with self.moved:
            self._stopped = True
            self.moved.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def refuse_unusable(self) -> None:
        """With or without the lock. Every reading asks."""
        failure = self.failure
        if self._stopped:
            raise StateError(f"the reader of state directory {self.path} is closed; open it again")
        if failure is not None:
            raise StateError(str(failure)) from failure

    def give_way(self) -> None:
        """Before each reading, without the lock. A thread that reads and reads lets go of the interpreter every 5 ms
        only, and applying a commit asks for it tens of times."""
        if self._busy:
            time.sleep(GIVE_WAY_S)

    def wait(self, there: Callable[[], bool], timeout: float | None) -> bool:
        """Until it has come so far; False where that takes too long."""
        with self.moved:
            self.moved.wait_for(lambda: there() or not self.goes_on, timeout)
            self.refuse_unusable()
            return there()

    def wait_behind(self, seq: int) -> bool:
        """Until it has applied more commits than these; False once it is closed."""
        with self.moved:
            self.moved.wait_for(lambda: self.seq > seq or not self.goes_on)
            if self.seq <= seq and not self._stopped:
                self.refuse_unusable()
            return not self._stopped

    # -- in its thread ----------------------------------------------------------------------

    def _run(self) -> None:
        pause = RETRY_S
        while not self._stop.is_set():
            failure = None
            try:
                self._go_on()
                pause = RETRY_S
            except StateError as error:
                failure = error
            except BaseException as error:  # a thread has nobody to tell
                failure = self._failed(error)
            with self.moved:
                self.failure = failure
                self.moved.notify_all()
            if failure is not None:
                self._stop.wait(pause)
                pause = min(2 * pause, RETRY_S_MAX)

    def _go_on(self) -> None:
        """Follows the log until it is stopped, or has gone past a failure."""
        if self._torn:
            self._begin_anew()
        try:
            while not self._stop.is_set():
                if self._follower.has_next():
                    self._take_next()
                elif self.failure is not None:
                    return
                else:
                    self._stop.wait(LOOK_S)
        except NotRetainedError:
            self._begin_anew()
        except NeedsApp:
            if not self.source.has_app() and not self._is_behind_a_snapshot():
                raise
            self._begin_anew()
        except StateError:
            if not self._is_behind_a_snapshot():
                raise
            self._begin_anew()  # behind what is wrong

    def _take_next(self) -> None:
        self._busy = True
        try:
            segment = self._follower.next()
            if segment is not None:
                self._torn = True
                self._apply(self._changes_of(segment))
                self._torn = False
        finally:
            self._busy = False

    def _is_behind_a_snapshot(self) -> bool:
        with suppress(StateError):
            return max(numbers(self.source.disk, self.path / SNAPSHOTS), default=0) > self.seq
        return False

    def _apply(self, changes: Changes) -> None:
        if changes.schema is None:
            if self.state.is_wasteful or self.state.is_cramped(changes):
                copied = self.state.copied(changes)
                with self.lock:
                    self.state = copied
            self.state.go_on(changes, self.lock, partial(self._reached, changes.version), self._tear)
        else:
            state = self.state.migrated(changes, str(self.path))
            with self.lock:
                self.state = state
                self._reached(changes.version)

    def _reached(self, version: int) -> None:
        self.version, self.seq = version, self._follower.seq
        self.moved.notify_all()

    def _tear(self, error: BaseException) -> None:
        """The tables are of no version; with the lock."""
        self.failure = self._failed(error)

    def _failed(self, error: BaseException) -> StateError:
        failure = StateError(f"the reader of state directory {self.path} failed: {type(error).__name__}: {error}")
        failure.__cause__ = error
        return failure

    def _begin_anew(self) -> None:
        found = self.source.restored()
        if found.seq < self.seq or found.version < self.version:
            raise StateError(
                f"state directory {self.path} has gone back from version {self.version} to {found.version}: it is an "
                "older copy now; open it again"
            )
        with self.moved:
            self._begin(found)
            self.moved.notify_all()


_running: weakref.WeakSet[Replica] = weakref.WeakSet()


def _stop_in_children() -> None:
    """A fork has no such thread, so nothing would go on there."""
    for replica in list(_running):
        replica.lock = replica.source.disk.mutex()  # it may be held by a thread that is not there
        replica.moved = threading.Condition(replica.lock)  # type: ignore[arg-type]
        replica.failure = StateError(
            f"the reader of state directory {replica.path} was opened before this process was forked; open it here"
        )


os.register_at_fork(after_in_child=_stop_in_children)
