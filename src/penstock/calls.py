"""Calls: events that run now, from any thread, each answered with its outcome.

    call ──> queue ──> a leader takes the gate and what waits by then
                         reads     what only reads: the last version answers it, nothing is written
                         now       the rest: one version, in order of arrival, one commit
                         placed    an event with a ts of its own, where there is a watermark: an arrival like any other,
                                   answered by the version in which it runs

Who waits while a version commits is in the next one together: under load many calls share an fsync, and a call alone
waits for none but its own. The leader is one of the threads that call, and hands over to one that waits when it is
through, so nobody serves for ever. Calls for which no thread waits (serve/server.py) have one of their own to lead.

An id that was called before is not run again: it gets its first outcome. Each commit says which calls it answers, so
this holds after a crash too, for the versions that are retained.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable
from itertools import accumulate, groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock import observe
from penstock.call import MOST_TOGETHER, Call, Outcome, calls_of
from penstock.call_answers import Answers
from penstock.errors import ConflictError, NotRetainedError, PenstockError, QueueFullError, StateError, committing
from penstock.execute import intake
from penstock.execute.intake import EventBatch
from penstock.execute.statuses import DUPLICATE, STATUSES
from penstock.gate import Gate
from penstock.ledger import Known, Ledger
from penstock.observe.report import BatchReport
from penstock.state.arrow import times
from penstock.store.protocol import Store
from penstock.store.stream import WaitingCall
from penstock.versions import AHEAD_S, Versions

# Events, and bytes of them, that wait at most: some versions' worth. More are refused, since they would wait for long.
MOST_WAITING, BYTES_WAITING = 8 * MOST_TOGETHER, 256 << 20


class _Fresh(NamedTuple):
    """What of a call was not called before."""

    call: Call
    rows: list[int] | None  # None: all

    @property
    def size(self) -> int:
        return self.call.size if self.rows is None else len(self.rows)

    def row(self, place: int) -> int:
        return place if self.rows is None else self.rows[place]

    @property
    def taken(self) -> EventBatch:
        taken = self.call.taken
        if self.rows is None:
            return taken
        return EventBatch(taken.event, taken.table.take(pa.array(self.rows)).combine_chunks(), np.arange(self.size))


class _Twin(NamedTuple):
    """A row that brings the id of one that is called in the same version."""

    call: Call
    row: int
    place: int  # of the first one, among all that are fresh


class Calls:
    def __init__(self, versions: Versions, store: Store, gate: Gate) -> None:
        self._versions, self._store, self._gate = versions, store, gate
        self._mutex = threading.Lock()
        self._queue: deque[Call] = deque()
        self._rows = self._bytes = 0  # that wait in it
        self._led = False
        self._ledger = Ledger(store)
        # Who waits for calls that were taken, and have not run: calls, and which of their rows.
        self._waiting: dict[WaitingCall, list[tuple[Call, int]]] = {}
        self._last = -AHEAD_S
        self._work = threading.Semaphore(0)  # for the thread that leads where none waits
        self._worker: threading.Thread | None = None
        self._ended = False
        versions.answered = self.committed

    @property
    def come(self) -> bool:
        """Whether there was one a moment ago."""
        return time.monotonic() - self._last < AHEAD_S

    def call(self, event: Any) -> Outcome:
        return self.run(event).result()

    def run(self, event: Any, *, strict: bool = False, since: int | None = None) -> Call:
        """One event; it is answered on return. What it raised is the result's to tell."""
        taken = intake.called(self._versions.program, event)
        call = Call(self._versions.program, taken, strict=strict, since=since)
        try:
            self._enqueue([call])
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
        return call

    def submit(
        self,
        event: tuple[str, pa.Table],
        told: Callable[[list[Call]], None],
        *,
        strict: bool = False,
        since: int | None = None,
        waits: bool = True,
    ) -> None:
        """Events, by their name and fields. They are given to told once all are answered, by whoever answers the last
        of them: it must not wait for anything."""
        taken = intake.called(self._versions.program, event)
        mutex, left = threading.Lock(), [0]

        def one_less(call: Call) -> None:
            with mutex:
                left[0] -= 1
                done = not left[0]
            if done:
                told(several)

        options: dict[str, Any] = {"strict": strict, "since": since, "waits": waits}
        several = calls_of(self._versions.program, taken, **options, told=one_less, wake=self._work.release)
        left[0] = len(several)
        self._enqueue(several)

    def committed(self, version: int, outcomes: pa.Table, answers: Answers) -> None:
        """They are durable now."""
        self._ledger.add(version, outcomes, answers.noted)
        for waited, row in answers.waited:
            for call, place in self._waiting.pop(waited, ()):
                call.answer(outcomes.slice(row, 1), [place])

    def find(self, event: str, id: Any) -> pa.Table | WaitingCall | None:
        """What became of a call: its outcome; or what waits; None: nothing is known of it."""
        with self._gate.calling():
            known = self._ledger.of(event).get(id)
            if known is not None:
                return self._ledger.outcome(known[0], known[1])
            return next((one for one in self._store.stream.waiting if (one.event, one.id) == (event, id)), None)

    def close(self) -> None:
        """Nobody answers them any more."""
        waiting, self._waiting = self._waiting, {}
        for several in waiting.values():
            for call, _ in several:
                error = StateError(self._not_yet(call))
                error.committed = None
                call.fail(error)

    def end(self) -> None:
        """The thread of their own goes, once all has been answered; what comes now is refused by the gate."""
        with self._mutex:
            self._ended, worker = True, self._worker
        if worker is not None and worker is not threading.current_thread():
            self._work.release()
            worker.join()

    def stop_if_broken(self) -> None:
        """Behind a failure: no version comes any more that those who wait could be answered by."""
        if self._gate.broken:
            self.close()

    # -- the queue ----------------------------------------------------------------------------

    def _enqueue(self, calls: list[Call]) -> None:
        rows, size = sum(call.size for call in calls), sum(call.nbytes for call in calls)
        with self._mutex:
            self._last = time.monotonic()
            if self._rows and (self._rows + rows > MOST_WAITING or self._bytes + size > BYTES_WAITING):
                raise QueueFullError(
                    f"app '{self._versions.program.name}': {self._rows} calls wait already, of which at most "
                    f"{MOST_WAITING} may; call again a little later"
                )
            if not calls[0].is_of_a_thread:
                self._begin_worker()
            self._queue.extend(calls)
            self._rows, self._bytes = self._rows + rows, self._bytes + size
            if not self._led:
                self._led = True
                if calls[0].is_of_a_thread:
                    calls[0].leads = True
                else:
                    calls[0].lead()

    def _begin_worker(self) -> None:
        if self._worker is None:
            if self._ended:
                raise StateError(f"the database of app '{self._versions.program.name}' is closed; open it again")
            self._worker = threading.Thread(target=self._work_on, name="penstock-calls-leader", daemon=True)
            self._worker.start()

    def _work_on(self) -> None:
        while True:
            self._work.acquire()
            with self._mutex:
                leads = self._led and bool(self._queue) and not self._queue[0].is_of_a_thread
                if self._ended and not leads:
                    return
            if leads:
                self._lead(None)

    def _take(self) -> list[Call]:
        with self._mutex:
            group, rows = list[Call](), 0
            while self._queue and (not group or rows + self._queue[0].size <= MOST_TOGETHER):
                group.append(self._queue.popleft())
                rows += group[-1].size
                self._is_out(group[-1])
        return group

    def _is_out(self, call: Call) -> None:
        self._rows, self._bytes = self._rows - call.size, self._bytes - call.nbytes

    def _hand_over(self, own: Call | None) -> None:
        with self._mutex:
            if own is not None:
                own.leads = False
                if own in self._queue:  # it was refused before anything was taken
                    self._queue.remove(own)
                    self._is_out(own)
            self._led = bool(self._queue)
            if self._led:
                self._queue[0].lead()

    def _leave(self, call: Call) -> None:
        """Who called has been interrupted."""
        with self._mutex:
            leads = call.leads
            if call in self._queue and not leads:
                self._queue.remove(call)
                self._is_out(call)
        if leads:
            self._hand_over(call)

    # -- the leader ---------------------------------------------------------------------------

    def _lead(self, own: Call | None) -> None:
        """own: that of the thread which leads, where it has one."""
        group: list[Call] = []
        reports: list[BatchReport] = []
        try:
            self._versions.wait_for_turn()
            with self._gate.calling():
                group = self._take()
                self._run(group, own, reports)
        except BaseException as error:
            failed = group or ([own] if own is not None else self._take())
            self._fail(failed, own, error, ran=False)
            if not isinstance(error, Exception):
                raise
        finally:
            self.stop_if_broken()
            self._hand_over(own)
        for report in reports:
            observe.publish(report)

    def _fail(self, calls: list[Call], own: Call | None, error: BaseException, *, ran: bool) -> None:
        """Those that have no answer yet are told. ran: it was their version that failed, and they are in it if the
        error says that it is committed; otherwise they had not begun, whatever became of those before them."""
        # What has arrived, durably, and waits for its time is not what failed: it runs all the same.
        arrived = Counter(call for several in self._waiting.values() for call, _ in several)
        for call in calls:
            if call not in arrived or arrived[call] < call.left:
                is_so = ran or not getattr(error, "committed", False)
                call.fail(error if call is own and is_so else _as_told(error, ran=ran))

    def _run(self, group: list[Call], own: Call | None, reports: list[BatchReport]) -> None:
        self._versions.go_back()
        reads = [call for call in group if call.reads]
        # Before there is a clock, that of an event with an order is its own ts: which is nobody else's.
        alone = self._store.stream.buffer.frontier is None
        for together in [[call] for call in reads] if alone else [reads] if reads else []:
            outcomes, at = self._versions.look([call.taken for call in together]), 0
            for call in together:
                call.answer(outcomes.slice(at, call.size))
                at += call.size
        for placed, several in groupby((call for call in group if not call.reads), key=self._is_placed):
            fresh, twins = self._new(several)
            if fresh:
                self._versions.make_room()
                try:
                    reports.append(self._make(fresh, twins, placed=placed))
                except BaseException as error:
                    together = [*(one.call for one in fresh), *(one.call for one in twins)]
                    self._fail(together, own, error, ran=True)
                    if own not in together and not isinstance(error, Exception):  # It goes on, to who has not run.
                        error.committed, error.version = False, None  # type: ignore[attr-defined]
                    raise

    def _make(self, fresh: list[_Fresh], twins: list[_Twin], *, placed: bool) -> BatchReport:
        """A version."""
        version = self._versions.version + 1
        with committing(version, lambda: self._store.version == version):
            return self._place(fresh, twins) if placed else self._now(fresh, twins)

    def _is_placed(self, call: Call) -> bool:
        return call.has_ts and self._store.stream.watermark is not None

    def _new(self, several: Iterable[Call]) -> tuple[list[_Fresh], list[_Twin]]:
        """What was not called before, and what waits for one of these."""
        fresh: list[_Fresh] = []
        twins: list[_Twin] = []
        count, places = 0, dict[str, dict[Any, int]]()  # event -> id -> place among all that are fresh
        waiting = {(one.event, one.id): one for one in self._store.stream.waiting if one.id is not None}
        for call in several:
            if call.ids is None:
                fresh.append(_Fresh(call, None))
                count += call.size
                continue
            known, seen = self._ledger.of(call.event), places.setdefault(call.event, {})
            ids, is_new = call.ids, not waiting and call.since is None
            if is_new and known.keys().isdisjoint(ids) and seen.keys().isdisjoint(ids) and len(set(ids)) == len(ids):
                fresh.append(_Fresh(call, None))
                seen.update(zip(ids, range(count, count + call.size), strict=True))
                count += call.size
                continue
            rows: list[int] = []
            for row, id in enumerate(ids):
                if id in known:
                    self._answer_again(call, row, Known(*known[id]))
                elif (call.event, id) in waiting:
                    self._wait_with(call, row, waiting[call.event, id])
                elif id in seen:
                    twins.append(_Twin(call, row, seen[id]))
                elif call.since is not None and call.since < self._ledger.floor:
                    call.refuse(row, self._too_old(call, row))
                else:
                    seen[id] = count + len(rows)
                    rows.append(row)
            if rows:
                fresh.append(_Fresh(call, rows if len(rows) < call.size else None))
                count += len(rows)
        return fresh, twins

    def _answer_again(self, call: Call, row: int, known: Known) -> None:
        if call.strict and known.differs(call.fields[row]):
            call.refuse(row, _conflict(call, row, known.version))
        else:
            call.answer(self._ledger.outcome(known.version, known.row), [row])

    def _wait_with(self, call: Call, row: int, other: WaitingCall) -> None:
        if call.strict and other.fields not in (None, call.fields[row]):
            call.refuse(row, _conflict(call, row, None))
        elif call.waits:
            self._waiting.setdefault(other, []).append((call, row))
        else:
            call.hold(row)

    def _now(self, fresh: list[_Fresh], twins: list[_Twin]) -> BatchReport:
        outcomes, report = self._versions.call_now([one.taken for one in fresh])
        starts = [0, *accumulate(one.size for one in fresh)]
        for one, start in zip(fresh, starts, strict=False):
            self._tell(one, outcomes.slice(start, one.size))
        for twin in twins:
            first = fresh[bisect_right(starts, twin.place) - 1]
            row = first.row(twin.place - starts[bisect_right(starts, twin.place) - 1])
            if twin.call.strict and twin.call.fields[twin.row] != first.call.fields[row]:
                twin.call.refuse(twin.row, _conflict(twin.call, twin.row, self._versions.version))
            else:
                twin.call.answer(outcomes.slice(twin.place, 1), [twin.row])
        return report

    def _tell(self, one: _Fresh, outcomes: pa.Table) -> None:
        call, refused = one.call, list[int]()
        if call.strict and call.taken.event.unique is not None:
            refused = self._run_long_ago(outcomes)
        if not refused:
            call.answer(outcomes, one.rows)
            return
        versions = outcomes.column("version").to_pylist()
        for place in range(one.size):
            if place in refused:
                call.refuse(one.row(place), self._too_old(call, one.row(place), versions[place]))
            else:
                call.answer(outcomes.slice(place, 1), [one.row(place)])

    def _run_long_ago(self, outcomes: pa.Table) -> list[int]:
        """The rows of duplicates whose first one is not retained any more."""
        floor = self._ledger.floor
        statuses, versions = outcomes.column("status").to_pylist(), outcomes.column("version").to_pylist()
        is_one = [status == STATUSES[DUPLICATE] and at <= floor for status, at in zip(statuses, versions, strict=True)]
        return [row for row, old in enumerate(is_one) if old]

    def _place(self, fresh: list[_Fresh], twins: list[_Twin]) -> BatchReport:
        held = self._store.stream.buffer.held
        entries: list[WaitingCall] = []
        told: list[tuple[Call, int]] = []
        counts: Counter[tuple[str, Any, int]] = Counter()
        for one in fresh:
            for place in range(one.size):
                call, row = one.call, one.row(place)
                event, id, ts = call.event, None if call.ids is None else call.ids[row], call.ts(row)
                same = counts[event, id, ts] + _count(held.get(event), call, row)
                counts[event, id, ts] += 1
                fields = None if id is None else call.fields[row]
                entries.append(WaitingCall(event, id, ts, same, fields))
                told.append((call, row))
                self._waiting.setdefault(entries[-1], []).append((call, row))
        for twin in twins:
            call, row, first = twin.call, twin.row, entries[twin.place]
            if call.strict and first.fields != call.fields[row]:
                call.refuse(row, _conflict(call, row, None))
            else:
                self._waiting[first].append((call, row))
        try:
            report = self._versions.place([one.taken for one in fresh], tuple(entries))
        except BaseException as error:
            firsts = {call for call, _ in told}
            for entry in entries:
                for call, _ in self._waiting.pop(entry, ()):
                    if call not in firsts:
                        call.fail(_as_told(error))
            raise
        for entry in entries:  # It is kept now: who does not wait for its time is told so.
            several = self._waiting.get(entry, [])
            for call, row in several:
                if not call.waits:
                    call.hold(row)
            self._waiting[entry] = [(call, row) for call, row in several if call.waits]
            if not self._waiting[entry]:
                del self._waiting[entry]
        return report

    # -- what is said -------------------------------------------------------------------------

    def _too_old(self, call: Call, row: int, ran: int | None = None) -> NotRetainedError:
        assert call.ids is not None
        whether = "may have run then, and is not run again" if ran is None else f"ran in version {ran}, and not again"
        when = f"since version {call.since}" if ran is None else "before"
        error = NotRetainedError(
            f"id {call.ids[row]!r} of event '{call.event}' was called {when}, and outcomes are retained behind version "
            f"{self._ledger.floor} only: it {whether}; open the state with a larger retain to keep more"
        )
        error.committed, error.version = None if ran is None else True, ran
        return error

    def _not_yet(self, call: Call) -> str:
        how = "failed" if self._gate.broken else "was closed"
        return (
            f"the database of app '{self._versions.program.name}' {how} before the time of event "
            f"'{call.event}' came, which its watermark holds back; where it is kept in a directory it runs "
            "in its time, and the same id then gives its outcome"
        )


def _conflict(call: Call, row: int, version: int | None) -> ConflictError:
    assert call.ids is not None
    when = "waits for its time" if version is None else f"ran in version {version}"
    return ConflictError(
        f"id {call.ids[row]!r} of event '{call.event}' was called before, with other fields, and {when}; give another "
        "event an id of its own"
    )


def _count(held: pa.Table | None, call: Call, row: int) -> int:
    """How many events of this ts and id are held already: they run before it."""
    event = call.taken.event
    if held is None or event.order is None:
        return 0
    found = np.flatnonzero(times(held.column(event.order)) == call.ts(row))
    if call.ids is None or event.id is None:
        return int(found.size)
    ids = held.column(event.id).take(pa.array(found)).to_pylist()
    return ids.count(call.ids[row])


def _as_told(error: BaseException, *, ran: bool = True) -> PenstockError:
    """For those who called together with the one whom it was raised to. ran: in the same version."""
    made = type(error) if isinstance(error, PenstockError) else StateError
    told = made(str(error) if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}")
    if ran:
        told.committed, told.version = getattr(error, "committed", False), getattr(error, "version", None)
    return told
