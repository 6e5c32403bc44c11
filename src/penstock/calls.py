"""Calls: events that run now, from any thread, each answered with its outcome.

    call ──> queue ──> a leader, one of the callers, takes the gate and all that waits by then
                         reads     what only reads: the last version answers it, nothing is written
                         now       the rest: one version, in order of arrival, one commit
                         placed    an event with a ts of its own, where there is a watermark: an arrival like any other,
                                   answered by the version in which it runs

Who waits while a version commits is in the next one together: under load many calls share an fsync, and a call alone
waits for none but its own. The leader hands over to one that waits when it is through, so nobody serves for ever.

An id that was called before is not run again: it gets its first outcome. Each commit says which calls it answers, so
this holds after a crash too, for the versions that are retained.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from penstock import observe
from penstock.declare.model import Program
from penstock.errors import PenstockError, StateError
from penstock.execute import intake
from penstock.execute.called import one_row, own_ts
from penstock.execute.intake import EventBatch
from penstock.execute.outcomes import BatchOutcomes
from penstock.gate import Gate
from penstock.observe.report import BatchReport
from penstock.state.arrow import times
from penstock.store.protocol import Store
from penstock.store.segment import CALL
from penstock.store.stream import StreamState, WaitingCall

# A batch that ran ahead is committed as soon as the stream asks for it, which takes milliseconds. A stream that does so
# not within this time waits for something else, and calls go first. As long after a call, too, nothing runs ahead.
AHEAD_S = 1.0

Key = tuple[str, Any]  # an event's name, and the id that it was called with
Outcome = dict[str, Any]


class Answer(NamedTuple):
    """What a version says of a call."""

    key: Key | None
    row: int  # of the version's outcomes
    outcome: Outcome
    waited: WaitingCall | None  # a call that an earlier version took


class Versions(Protocol):
    """What makes versions; each is called by who holds the gate."""

    program: Program

    @property
    def version(self) -> int: ...

    def wait_for_turn(self) -> None:
        """Until no batch is ahead of its turn; called without the gate. At most AHEAD_S."""

    def go_back(self) -> None:
        """Memory as of the last version."""

    def make_room(self) -> None:
        """Before a version is made: so that it can go on to where versions go."""

    def look(self, calls: list[EventBatch]) -> BatchOutcomes:
        """The outcomes of calls that only read."""

    def call_now(self, calls: list[EventBatch]) -> tuple[list[Outcome], BatchReport]:
        """A version of these calls; their outcomes."""

    def place(self, calls: list[EventBatch], waiting: tuple[WaitingCall, ...]) -> BatchReport:
        """A version into which these calls have arrived."""


class Call:
    """One call, from the thread that made it to the one that answers it."""

    __slots__ = ("_answered", "_failure", "_lock", "key", "leads", "outcome", "reads", "taken", "ts")

    def __init__(self, program: Program, taken: EventBatch) -> None:
        event = taken.event
        self.taken, self.ts = taken, own_ts(taken)
        # A ts of its own is a place among events that are kept: such a call makes a version, whatever it does.
        self.reads = event.name in program.reading and self.ts is None
        self.key: Key | None = None if event.id is None or self.reads else (event.name, one_row(taken, event.id))
        self.leads = False
        self.outcome: Outcome | None = None
        self._failure: BaseException | None = None
        self._answered = False
        self._lock = threading.Lock()
        self._lock.acquire()

    def answer(self, outcome: Outcome | None, failure: BaseException | None = None) -> None:
        if not self._answered:
            self._answered, self.outcome, self._failure = True, outcome, failure
            self._lock.release()

    def lead(self) -> None:
        self.leads = True
        self._lock.release()

    def wait(self) -> bool:
        """Until it is answered, or is to lead; whether it is answered."""
        self._lock.acquire()
        return self._answered

    def result(self) -> Outcome:
        if self._failure is not None:
            raise self._failure
        assert self.outcome is not None
        return dict(self.outcome)

    @property
    def way(self) -> str:
        return "reads" if self.reads else "now"


@dataclass(slots=True)
class Ledger:
    """The outcomes of calls by their ids, as long as their versions are retained."""

    store: Store
    known: dict[Key, tuple[int, Outcome]] | None = None  # oldest version first; None until it is first asked for

    def get(self, key: Key, version: int) -> Outcome | None:
        if self.known is None:
            self.known = {
                (event, id): (made, outcomes.slice(row, 1).to_pylist()[0])
                for made, outcomes, calls in self.store.answered()
                for event, id, row in calls
            }
        found = self.known.get(key)
        return None if found is None or found[0] <= version - self.store.retain else found[1]

    def add(self, version: int, answers: Iterable[tuple[Key | None, Outcome]]) -> None:
        if self.known is None:  # Who asks reads it from the store.
            return
        for key, outcome in answers:
            if key is not None:
                self.known.pop(key, None)
                self.known[key] = version, outcome
        while self.known and next(iter(self.known.values()))[0] <= version - self.store.retain:
            del self.known[next(iter(self.known))]


class Calls:
    def __init__(self, versions: Versions, store: Store, gate: Gate) -> None:
        self._versions, self._store, self._gate = versions, store, gate
        self._mutex = threading.Lock()
        self._queue: deque[Call] = deque()
        self._led = False
        self._ledger = Ledger(store)
        self._waiting: dict[WaitingCall, list[Call]] = {}  # who waits for calls that were taken, and have not run
        self._last = -AHEAD_S

    @property
    def come(self) -> bool:
        """Whether there was one a moment ago."""
        return time.monotonic() - self._last < AHEAD_S

    def call(self, event: Any) -> Outcome:
        call = Call(self._versions.program, intake.called(self._versions.program, event))
        try:
            with self._mutex:
                self._last = time.monotonic()
                self._queue.append(call)
                call.leads, self._led = not self._led, True
            while True:
                if call.leads:
                    self._lead(call)
                if call.wait():
                    break
        except BaseException as error:  # Ctrl-C
            self._leave(call)
            if not isinstance(error, Exception):
                error.add_note("whether the call has run is not known; call again with the same id")
            raise
        return call.result()

    # -- what versions say of calls -----------------------------------------------------------

    def answers(
        self, called: list[EventBatch] | None, stream: StreamState, outcomes: BatchOutcomes
    ) -> tuple[list[Answer], StreamState]:
        """What a batch that has run says of calls, and the stream without those that waited for it. called: where it
        is a version of calls, these."""
        if called is not None:
            rows, told = _roots(outcomes)
            keys = [_key(one) for one in called]
            return [Answer(key, row, one, None) for key, row, one in zip(keys, rows, told, strict=True)], stream
        found = [(one, _row_of(self._versions.program, one, outcomes.table)) for one in stream.waiting]
        answers = [
            Answer(
                None if one.id is None else (one.event, one.id), row, outcomes.table.slice(row, 1).to_pylist()[0], one
            )
            for one, row in found
            if row is not None
        ]
        return answers, stream._replace(waiting=tuple(one for one, row in found if row is None))

    def committed(self, version: int, answers: list[Answer]) -> None:
        """They are durable now."""
        self._ledger.add(version, [(one.key, one.outcome) for one in answers])
        for one in answers:
            if one.waited is not None:
                for call in self._waiting.pop(one.waited, ()):
                    call.answer(one.outcome)

    def close(self) -> None:
        """Nobody answers them any more."""
        for several in self._waiting.values():
            for call in several:
                error = StateError(self._not_yet(call))
                error.committed = None
                call.answer(None, error)
        self._waiting.clear()

    # -- the leader ---------------------------------------------------------------------------

    def _lead(self, own: Call) -> None:
        group: list[Call] = []
        reports: list[BatchReport] = []
        try:
            self._versions.wait_for_turn()
            with self._gate.calling():
                group = self._take()
                self._run(group, reports)
        except BaseException as error:
            self._fail(group or [own], own, error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._hand_over(own)
        for report in reports:
            observe.publish(report)

    def _take(self) -> list[Call]:
        with self._mutex:
            group = list(self._queue)
            self._queue.clear()
        return group

    def _hand_over(self, own: Call) -> None:
        with self._mutex:
            own.leads = False
            if own in self._queue:  # it was refused before anything was taken
                self._queue.remove(own)
            self._led = bool(self._queue)
            if self._led:
                self._queue[0].lead()

    def _leave(self, call: Call) -> None:
        """Who called has been interrupted."""
        with self._mutex:
            leads = call.leads
            if call in self._queue and not leads:
                self._queue.remove(call)
        if leads:
            self._hand_over(call)

    def _fail(self, group: list[Call], own: Call, error: BaseException) -> None:
        for call in group:
            call.answer(None, error if call is own else _as_told(error))

    def _run(self, group: list[Call], reports: list[BatchReport]) -> None:
        self._versions.go_back()
        reads = [call for call in group if call.reads]
        if reads:
            _, told = _roots(self._versions.look([call.taken for call in reads]))
            for call, outcome in zip(reads, told, strict=True):
                call.answer(outcome)
        for placed, several in groupby((call for call in group if not call.reads), key=self._is_placed):
            fresh, twins = self._new(several)
            if fresh:
                self._versions.make_room()
                reports.append(self._place(fresh, twins) if placed else self._now(fresh, twins))

    def _is_placed(self, call: Call) -> bool:
        return call.ts is not None and self._store.stream.holds

    def _new(self, several: Iterable[Call]) -> tuple[list[Call], dict[Key, list[Call]]]:
        """Those that were not called before, and by id those that wait for one of them."""
        fresh: list[Call] = []
        twins: dict[Key, list[Call]] = {}
        waiting = {(one.event, one.id): one for one in self._store.stream.waiting if one.id is not None}
        for call in several:
            known = None if call.key is None else self._ledger.get(call.key, self._versions.version)
            if known is not None:
                call.answer(known)
            elif call.key in waiting:
                self._waiting.setdefault(waiting[call.key], []).append(call)
            elif call.key in twins:
                twins[call.key].append(call)
            else:
                fresh.append(call)
                if call.key is not None:
                    twins[call.key] = []
        return fresh, twins

    def _now(self, calls: list[Call], twins: dict[Key, list[Call]]) -> BatchReport:
        outcomes, report = self._versions.call_now([call.taken for call in calls])
        for call, outcome in zip(calls, outcomes, strict=True):
            for one in (call, *(twins[call.key] if call.key is not None else ())):
                one.answer(outcome)
        return report

    def _place(self, calls: list[Call], twins: dict[Key, list[Call]]) -> BatchReport:
        held = self._store.stream.buffer.held
        entries: list[WaitingCall] = []
        for call in calls:
            assert call.ts is not None
            event, id = call.taken.event, None if call.key is None else call.key[1]
            same = sum((one.event, one.id, one.ts) == (event.name, id, call.ts) for one in entries)
            same += _count(held.get(event.name), call)
            entries.append(WaitingCall(event.name, id, call.ts, same))
            several = [call, *(twins[call.key] if call.key is not None else ())]
            self._waiting.setdefault(entries[-1], []).extend(several)
        try:
            return self._versions.place([call.taken for call in calls], tuple(entries))
        except BaseException as error:
            for entry in entries:
                for call in self._waiting.pop(entry, ()):
                    if call not in calls:
                        call.answer(None, _as_told(error))
            raise

    def _not_yet(self, call: Call) -> str:
        return (
            f"the database of app '{self._versions.program.name}' was closed before the time of event "
            f"'{call.taken.event.name}' came, which its watermark holds back; where it is kept in a directory it runs "
            "in its time, and the same id then gives its outcome"
        )


def notes_of(called: bool, answers: list[Answer]) -> dict[str, Any]:
    """What the commit of a version says of calls: see store/segment.py."""
    notes: dict[str, Any] = {"cause": CALL} if called else {}
    kept = [[*one.key, one.row] for one in answers if one.key is not None]
    return notes | {"calls": kept} if kept else notes


def _roots(outcomes: BatchOutcomes) -> tuple[list[int], list[Outcome]]:
    """The rows of the events that were called, in order; and these rows."""
    table, rows = outcomes.table, outcomes.arrived
    if rows is None:
        return list(range(table.num_rows)), table.to_pylist()
    return rows.tolist(), table.take(pa.array(rows)).to_pylist()


def _key(call: EventBatch) -> Key | None:
    return None if call.event.id is None else (call.event.name, one_row(call, call.event.id))


def _count(held: pa.Table | None, call: Call) -> int:
    """How many events of this ts and id are held already: they run before it."""
    event = call.taken.event
    if held is None or event.order is None:
        return 0
    found = np.flatnonzero(times(held.column(event.order)) == call.ts)
    if call.key is None or event.id is None:
        return int(found.size)
    ids = held.column(event.id).take(pa.array(found)).to_pylist()
    return ids.count(call.key[1])


def _row_of(program: Program, call: WaitingCall, outcomes: pa.Table) -> int | None:
    """The row of the outcomes that is this call's; None where it has not run."""
    event = program.event(call.event)
    transaction = None if event is None else program.transaction_of(event)
    assert transaction is not None
    found = np.flatnonzero(times(outcomes.column("ts")) == call.ts)
    seen = 0
    for row, one in zip(found.tolist(), outcomes.take(pa.array(found)).to_pylist(), strict=True):
        if one["transaction"] == transaction.name and one.get("id") == call.id and not one.get("step"):
            if seen == call.place:
                return int(row)
            seen += 1
    return None


def _as_told(error: BaseException) -> PenstockError:
    """For those who called together with the one whom it was raised to."""
    made = type(error) if isinstance(error, PenstockError) else StateError
    told = made(str(error) if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}")
    told.committed, told.version = getattr(error, "committed", False), getattr(error, "version", None)
    return told
