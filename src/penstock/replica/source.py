"""Where replicas of a directory come from: a snapshot and the log behind it, up to any version that is retained.

Where batches were logged as their input they have to run again, which needs the app, and memory for its tables beside
those of the replica. A directory is read without that as long as no such batch is met.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.commit import Disk, Recovery, Segment
from penstock.commit.recover import recover
from penstock.engine import Engine
from penstock.errors import StateError
from penstock.replica.changes import Changes, PartsBesides, changes_of, is_input
from penstock.replica.replayed import Replayed
from penstock.replica.state import State
from penstock.store.replay import Replay
from penstock.store.schemas import Schemas
from penstock.store.segment import OUTCOMES


@dataclass(frozen=True, slots=True)
class Restored:
    state: State
    version: int
    seq: int  # the newest commit of the directory
    hash: str | None  # of that
    changes_of: Callable[[Segment], Changes]  # of what follows, in order


class NeedsApp(StateError):
    """A batch was logged as its input, and there is no app to run it again."""


class Source:
    def __init__(
        self, disk: Disk, path: Path, identity: dict[str, Any], engine: Callable[[], Engine] | None = None
    ) -> None:
        """engine: makes one of the app's, where that is at hand."""
        self.disk, self.path, self.identity, self._engine = disk, path, identity, engine
        self.replays = False  # a batch that was logged as its input has been met

    @property
    def skip(self) -> Any:
        """Parts of segments that need not be read."""
        return (OUTCOMES,) if self.replays else PartsBesides()

    def restored(self, upto: int | None = None) -> Restored:
        """The tables of a version, the newest unless told."""
        if not self.replays:
            try:
                return self._applied(upto)
            except NeedsApp:
                if self._engine is None:
                    raise
                self.replays = True
        recovery = recover(self.disk, self.path, upto, skip=self.skip)
        with closing(recovery.segments):
            replayed = Replayed(self.replay())
            return _restored(replayed.run(recovery), recovery, upto, replayed.changes_of)

    def replay(self) -> Replay:
        assert self._engine is not None
        return Replay(self._engine(), self.identity, str(self.path))

    def has_app(self) -> bool:
        return self._engine is not None

    def _applied(self, upto: int | None) -> Restored:
        recovery = recover(self.disk, self.path, upto, skip=self.skip)
        schema = Schemas(recovery.scan, self.identity).at(recovery.base_version)
        state = State.of(self.identity["app"], schema, recovery.snapshot, str(self.path))
        with closing(recovery.segments) as segments:
            for segment in segments:
                changes = self.logged(segment)
                if changes.schema is None:
                    state.apply(changes)
                    state = state.copied() if state.is_wasteful else state
                else:
                    state = state.migrated(changes, str(self.path))
        return _restored(state, recovery, upto, self.logged)

    def logged(self, segment: Segment) -> Changes:
        """What a commit did, where it is logged as that."""
        if is_input(segment):
            raise NeedsApp(
                f"state directory {self.path}: version {segment.header['version']} was logged as its input, so its "
                "tables cannot be read without the app; open it with the app: app.open(path, read_only=True)"
            )
        return changes_of(segment)


def _restored(state: State, recovery: Recovery, upto: int | None, of: Callable[[Segment], Changes]) -> Restored:
    seq, entry = recovery.scan.newest
    return Restored(state, entry.version if upto is None else upto, seq, entry.hash, of)
