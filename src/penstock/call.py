"""A call: one event or several of one type, from whoever called to the leader that answers (calls.py).

    outcomes    rows that are answered, in pieces as the versions come that answer them
    refused     rows that are not to run: an id that was called with other fields, or too long ago
    waiting     rows whose time has not come, where nobody waits for it
    failure     of all that is left

Events that were called together are several calls where some bring a ts and some do not, or where they are many: those
of one call go one way, and one version at most takes them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.declare.model import Program
from penstock.errors import PenstockError
from penstock.execute.called import alike, has_ts
from penstock.execute.field_hashes import field_hashes
from penstock.execute.intake import EventBatch
from penstock.state.arrow import times

# Events in a call, and in a version of calls: so many that its commit is a small part, and soon enough done.
MOST_TOGETHER = 8192

Key = tuple[str, Any]  # an event's name, and the id that it was called with
Outcome = dict[str, Any]


class Call:
    def __init__(
        self,
        program: Program,
        taken: EventBatch,
        *,
        strict: bool = False,
        since: int | None = None,
        waits: bool = True,
        told: Callable[[Call], None] | None = None,
        wake: Callable[[], None] | None = None,
    ) -> None:
        """strict: whether an id that was called with other fields is refused. since: the version that there was before
        this was called for the first time, where it may have been called before. waits: until the time of events
        comes, or until they are kept. told: what to do once it is answered, and wake: for it to lead; without these
        a thread waits for both."""
        event = taken.event
        self.taken, self.event = taken, event.name
        self.size, self.nbytes = taken.table.num_rows, taken.table.nbytes
        self.strict, self.since, self.waits = strict, since, waits
        self.has_ts = has_ts(taken)
        # A ts of its own is a place among events that are kept: such a call makes a version, whatever it does.
        self.reads = event.name in program.reading and not self.has_ts
        self.ids: list[Any] | None = None if event.id is None or self.reads else taken.column(event.id).to_pylist()
        self.leads, self.answered = False, False
        self.refused: dict[int, PenstockError] = {}
        self.waiting: list[int] = []
        self.failure: BaseException | None = None
        self.left = self.size  # rows of which nothing has been said
        self._pieces: list[tuple[list[int] | None, pa.Table]] = []
        self._told, self._wake = told, wake
        self._lock = threading.Lock()
        self._lock.acquire()

    # -- by the leader ----------------------------------------------------------------------

    def answer(self, outcomes: pa.Table, rows: list[int] | None = None) -> None:
        """rows: which these are of; None: all."""
        if not self.answered:
            self._pieces.append((rows, outcomes))
            self._less(outcomes.num_rows)

    def refuse(self, row: int, error: PenstockError) -> None:
        if not self.answered:
            self.refused[row] = error
            self._less(1)

    def hold(self, row: int) -> None:
        """It is kept, and its time has not come."""
        if not self.answered:
            self.waiting.append(row)
            self._less(1)

    def fail(self, error: BaseException) -> None:
        if not self.answered:
            self.failure = error
            self._less(self.left)

    def _less(self, rows: int) -> None:
        self.left -= rows
        if self.left == 0:
            self.answered = True
            if self._told is not None:
                self._told(self)
            else:
                self._lock.release()

    def lead(self) -> None:
        if self._wake is not None:
            self._wake()
        else:
            self.leads = True
            self._lock.release()

    # -- by who called ----------------------------------------------------------------------

    @property
    def is_of_a_thread(self) -> bool:
        return self._told is None

    def wait(self) -> bool:
        """Until it is answered, or is to lead; whether it is answered."""
        self._lock.acquire()
        return self.answered

    def result(self) -> Outcome:
        """Of a call of one event."""
        if self.failure is not None or self.refused:
            raise self.failure or self.refused[0]
        outcome: Outcome = self._pieces[0][1].to_pylist()[0]
        return outcome

    def outcomes(self) -> pa.Table | None:
        """Of the rows that have run, in their order."""
        pieces = self._pieces
        if len(pieces) == 1:
            return pieces[0][1]
        if not pieces:
            return None
        order = pa.array(np.argsort(np.concatenate([rows for rows, _ in pieces])))
        return joined([table for _, table in pieces]).take(order)

    # -- about its events -------------------------------------------------------------------

    def key(self, row: int) -> Key | None:
        return None if self.ids is None else (self.event, self.ids[row])

    def ts(self, row: int) -> int:
        """Of one that brings it."""
        assert self.taken.event.order is not None
        return int(times(self.taken.column(self.taken.event.order))[row])

    @cached_property
    def fields(self) -> list[int]:
        """What stands for the fields of each."""
        found: list[int] = field_hashes(self.taken.table).tolist()
        return found


def calls_of(program: Program, taken: EventBatch, **options: Any) -> list[Call]:
    """Events that were called together, as calls."""
    several = []
    for part in alike(taken):
        for start in range(0, part.table.num_rows, MOST_TOGETHER):
            table = part.table.slice(start, MOST_TOGETHER)
            table = table if table.num_rows == part.table.num_rows else table.combine_chunks()
            several.append(Call(program, EventBatch(part.event, table, np.arange(table.num_rows)), **options))
    return several


def joined(outcomes: list[pa.Table]) -> pa.Table:
    """Outcomes one below another; by their values, where the app has changed between them."""
    if all(table.schema.equals(outcomes[0].schema) for table in outcomes):
        return pa.concat_tables(outcomes).unify_dictionaries().combine_chunks()
    return pa.Table.from_pylist([row for table in outcomes for row in table.to_pylist()])
