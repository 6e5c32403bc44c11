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
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import observe
from penstock.call_answers import Answer, Key, Outcome, roots
from penstock.declare.model import Program
from penstock.errors import PenstockError, StateError, committing
from penstock.execute import intake
from penstock.execute.called import one_row, own_ts
from penstock.execute.intake import EventBatch
from penstock.gate import Gate
from penstock.observe.report import BatchReport
from penstock.state.arrow import times
from penstock.store.protocol import Store
from penstock.store.stream import WaitingCall
from penstock.versions import AHEAD_S, Versions


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
        versions.answered = self.committed

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
            if not isinstance(error, Exception) and "committed" not in vars(error):
                error.add_note("whether the call has run is not known; call again with the same id")
            raise
        return call.result()

    def committed(self, version: int, answers: list[Answer]) -> None:
        """They are durable now."""
        self._ledger.add(version, [(one.key, one.outcome) for one in answers])
        for one in answers:
            if one.waited is not None:
                for call in self._waiting.pop(one.waited, ()):
                    call.answer(one.outcome)

    def close(self) -> None:
        """Nobody answers them any more."""
        waiting, self._waiting = self._waiting, {}
        for several in waiting.values():
            for call in several:
                error = StateError(self._not_yet(call))
                error.committed = None
                call.answer(None, error)

    def stop_if_broken(self) -> None:
        """Behind a failure: no version comes any more that those who wait could be answered by."""
        if self._gate.broken:
            self.close()

    # -- the leader ---------------------------------------------------------------------------

    def _lead(self, own: Call) -> None:
        group: list[Call] = []
        reports: list[BatchReport] = []
        try:
            self._versions.wait_for_turn()
            with self._gate.calling():
                group = self._take()
                self._run(group, own, reports)
        except BaseException as error:
            self._fail(group or [own], own, error, ran=False)
            if not isinstance(error, Exception):
                raise
        finally:
            self.stop_if_broken()
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

    def _fail(self, calls: list[Call], own: Call, error: BaseException, *, ran: bool) -> None:
        """Those that have no answer yet are told. ran: it was their version that failed, and they are in it if the
        error says that it is committed; otherwise they had not begun, whatever became of those before them."""
        # What has arrived, durably, and waits for its time is not what failed: it runs all the same.
        arrived = {call for several in self._waiting.values() for call in several}
        for call in calls:
            if call not in arrived:
                is_so = ran or not getattr(error, "committed", False)
                call.answer(None, error if call is own and is_so else _as_told(error, ran=ran))

    def _run(self, group: list[Call], own: Call, reports: list[BatchReport]) -> None:
        self._versions.go_back()
        reads = [call for call in group if call.reads]
        # Before there is a clock, that of an event with an order is its own ts: which is nobody else's.
        alone = self._store.stream.buffer.frontier is None
        for together in [[call] for call in reads] if alone else [reads] if reads else []:
            _, told = roots(self._versions.look([call.taken for call in together]))
            for call, outcome in zip(together, told, strict=True):
                call.answer(outcome)
        for placed, several in groupby((call for call in group if not call.reads), key=self._is_placed):
            fresh, twins = self._new(several)
            if fresh:
                self._versions.make_room()
                try:
                    reports.append(self._make(fresh, twins, placed=placed))
                except BaseException as error:
                    together = [*fresh, *(call for some in twins.values() for call in some)]
                    self._fail(together, own, error, ran=True)
                    if own not in together and not isinstance(error, Exception):  # It goes on, to who has not run.
                        error.committed, error.version = False, None  # type: ignore[attr-defined]
                    raise

    def _make(self, calls: list[Call], twins: dict[Key, list[Call]], *, placed: bool) -> BatchReport:
        """A version."""
        version = self._versions.version + 1
        with committing(version, lambda: self._store.version == version):
            return self._place(calls, twins) if placed else self._now(calls, twins)

    def _is_placed(self, call: Call) -> bool:
        return call.ts is not None and self._store.stream.watermark is not None

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
        how = "failed" if self._gate.broken else "was closed"
        return (
            f"the database of app '{self._versions.program.name}' {how} before the time of event "
            f"'{call.taken.event.name}' came, which its watermark holds back; where it is kept in a directory it runs "
            "in its time, and the same id then gives its outcome"
        )


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


def _as_told(error: BaseException, *, ran: bool = True) -> PenstockError:
    """For those who called together with the one whom it was raised to. ran: in the same version."""
    made = type(error) if isinstance(error, PenstockError) else StateError
    told = made(str(error) if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}")
    if ran:
        told.committed, told.version = getattr(error, "committed", False), getattr(error, "version", None)
    return told
