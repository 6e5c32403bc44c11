"""What batches did that were logged as their input: their transactions run again, over tables of their own."""

from __future__ import annotations

from penstock.commit import Recovery, Segment
from penstock.replica.changes import Changes, TableChanges, changes_of, is_input
from penstock.replica.state import State
from penstock.state.tables import Tables
from penstock.store.replay import Replay


class Replayed:
    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self._replay.executed = self._take
        self._changes: dict[str, TableChanges] = {}

    def run(self, recovery: Recovery) -> State:
        """The tables as of then."""
        replay = self._replay
        replay.run(recovery)
        state = State(replay.program.name, replay.schema.definitions(""))
        for name, records in state.records.items():
            records.fill(replay.tables.arrow_of(name))
        return state

    def changes_of(self, segment: Segment) -> Changes:
        """Of each commit after that, in order."""
        self._replay.apply(segment)
        if is_input(segment):
            return Changes(segment.header["version"], self._changes)
        return changes_of(segment)

    def _take(self, tables: Tables) -> None:
        self._changes = {}
        for name, (written, deleted) in tables.changes().items():
            found = (("deleted", deleted), ("written", written))
            self._changes[name] = [(change, rows) for change, rows in found if rows.num_rows]
