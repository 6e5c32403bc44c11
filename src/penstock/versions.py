"""What makes versions, one after another: batches, calls, and the clock set by hand.

    take      intake, what waits, order, encode           IncomingBatch   nothing has changed yet
    execute   the kernel, outcomes, the segment on disk   PendingBatch    run, but it has not happened
    commit    the link that makes it a commit             the next version

A batch may run ahead of its turn, up to where only its commit is left: memory is then ahead of what has happened by
this one batch. Whatever comes instead first puts memory back. Everything here is called by who holds the gate, but
`wait_for_turn`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from penstock.call_answers import Answers, answers_of, roots
from penstock.declare.model import TableDef
from penstock.declare.objects import Batch, Rows
from penstock.engine import BatchRun, EncodedBatch, Engine
from penstock.errors import committing
from penstock.execute import intake, loading
from penstock.execute.admission import admit, given_up
from penstock.execute.called import merged
from penstock.execute.intake import EventBatch
from penstock.execute.loading import OnConflict
from penstock.execute.outcomes import BatchOutcomes
from penstock.execute.request import Admission, BatchRequest
from penstock.execute.source_files import SourceNote
from penstock.execute.watermark import is_split, release, without_late
from penstock.gate import Gate
from penstock.observe.progress import Progress
from penstock.observe.report import BatchReport, Stopwatch
from penstock.schedule.policy import Policy
from penstock.state.ages import NEVER
from penstock.state.tables import TablesCut
from penstock.store.protocol import Store
from penstock.store.segment import ADVANCE, ARRIVAL, CALL
from penstock.store.stream import StreamState, WaitingCall

# A batch that ran ahead is committed as soon as the stream asks for it, which takes milliseconds. A stream that does so
# not within this time waits for something else, and calls go first. As long after a call, too, nothing runs ahead.
AHEAD_S = 1.0


@dataclass(frozen=True, slots=True)
class IncomingBatch:
    """A batch that was taken in: nothing has changed yet."""

    request: BatchRequest
    events: list[EventBatch]
    late: list[Any] | None
    stream: StreamState
    encoded: EncodedBatch
    watch: Stopwatch
    called: list[EventBatch] | None = None  # of a version of calls: these, in order
    cause: str | None = None  # of a version that no batch made: store/segment.py
    files: dict[str, SourceNote] | None = None  # that all it brings has come from
    rejected: pa.Table | None = None  # rows that are no events


@dataclass(frozen=True, slots=True)
class PendingBatch:
    """A batch that has run, but has not happened until it is committed."""

    request: BatchRequest
    outcomes: pa.Table
    stored: Any  # the store's
    report: BatchReport
    answers: Answers  # of calls
    emitted: dict[str, pa.Table]


_CALLED = "calls run one after another, as they came"


class Outlet(Protocol):
    """Where versions go on to, each once and in order. Both are called while nobody else may write."""

    def make_room(self) -> None:
        """Before calls make a version; what it raises is raised to who called."""

    def add(self, version: int, outcomes: pa.Table, emitted: dict[str, pa.Table]) -> None:
        """A version that has happened."""


class Versions:
    def __init__(self, engine: Engine, store: Store, gate: Gate, progress: Progress, state: str | None = None) -> None:
        """state: the directory, for reports."""
        self._state = state
        self.program, self._engine, self._store, self._gate = engine.program, engine, store, gate
        self.policy = Policy.adaptive()  # of batches that say nothing of it
        self.last_batch: BatchReport | None = None
        self.pending: PendingBatch | None = None  # it ran ahead
        self._before: TablesCut | None = None  # what users see until it is committed
        self._progress = progress
        self._turn = threading.Event()  # set where there is none
        self._turn.set()
        self._outlet: Outlet | None = None
        self._version = 0
        # Told of every version that has happened, and whom it answers.
        self.answered: Callable[[int, pa.Table, Answers], None] = lambda version, outcomes, answers: None

    def begin(self, version: int) -> None:
        """What the store has recovered."""
        self._engine.tables.loaded()
        self._version = version

    @property
    def version(self) -> int:
        """The number of the last one that has happened."""
        return self._version

    @property
    def clock(self) -> int | None:
        """The highest ts that has run."""
        return self._store.stream.buffer.frontier

    def set_outlet(self, outlet: Outlet) -> None:
        self._outlet = outlet

    def run(
        self,
        batch: Batch | Callable[[], Batch],
        request: BatchRequest,
        policy: Policy | None,
        admission: Admission | None = None,
    ) -> PendingBatch:
        """The batch that is asked for; a function gives its events. Durable on return."""
        if callable(batch):
            batch = batch()
        if self.pending is not None and self.pending.request != request:
            self.go_back()
        return self._happen(self.pending or self._take(batch, request, admission), policy or self.policy)

    def run_ahead(self, batch: Batch, request: BatchRequest, admission: Admission | None = None) -> None:
        """Do all of the batch that is expected next, but for making it happen."""
        incoming = self._take(batch, request, admission)
        self._before = self._engine.tables.cut_if_asked()
        with self._gate.whole():
            self.pending = self._execute(incoming, self.policy)
            self._turn.clear()

    def cut(self) -> TablesCut | None:
        """What users see as of the last version; None as long as large tables are not copied, and where a batch has run
        ahead that they had not been copied before."""
        if self.pending is None:
            return self._engine.tables.cut()
        if self._before is not None:
            self._before.want()
        return self._before

    def load(self, table: TableDef, rows: Rows, on_conflict: OnConflict, *, check: bool) -> None:
        """Fill a table."""
        self.go_back()
        found = intake.rows(table, rows)
        state, strings = self._engine.tables[table.name], self._engine.tables.strings
        there = state.rows_of(state.keys_of(found, strings)) >= 0
        if there.any() and on_conflict == "fail":
            first = found.slice(int(np.flatnonzero(there)[0]), 1)
            loading.refuse_there(table, tuple(first.column(c.name)[0].as_py() for c in table.keys))
        if there.any() and on_conflict == "keep":
            found = found.filter(pa.array(~there))
            if not found.num_rows:
                return
        if check and table.checks:
            reads = {op.name for one in self._engine.plan.checks_of(table.name) for op in one.block.walk()}
            loading.refuse_broken(table, loading.records(table, loading.told_apart(table, found, reads)))
        with self._gate.whole():
            at = NEVER if self.clock is None else self.clock
            self._store.load(table, found, at)
            state.put(found, strings, self.version, at)
            self._engine.tables.loaded()

    def close(self) -> None:
        """What ran ahead never happened."""
        if self.pending is not None:
            self._store.forget(self.pending.stored)

    # -- for calls (calls.py) ---------------------------------------------------------------

    def wait_for_turn(self) -> None:
        """Until no batch is ahead of its turn; called without the gate. At most AHEAD_S."""
        self._turn.wait(AHEAD_S)

    def make_room(self) -> None:
        """Before calls make a version: so that it can go on to where versions go."""
        if self._outlet is not None:
            self._outlet.make_room()

    def look(self, calls: list[EventBatch]) -> pa.Table:
        """The outcomes of calls that only read."""
        engine, clock = self._engine, self.clock
        ordered = engine.in_turn(merged(calls, clock), clock, kept=False)
        out = engine.outcomes(engine.run(engine.encode(ordered), self.version, Policy.serial()))
        with self._gate.whole():
            engine.end_batch()
        return roots(out)[1]

    def call_now(self, calls: list[EventBatch]) -> tuple[pa.Table, BatchReport]:
        """A version of these calls; their outcomes."""
        watch, stream = Stopwatch(), self._store.stream
        events = merged(calls, self.clock)
        watch.ends("intake")
        ordered = self._engine.in_turn(events, self.clock)
        if ordered.timeless < ordered.count:
            stream = stream.ran(ordered.ts.max(keepdims=True))
        watch.ends("order")
        encoded = self._engine.encode(ordered)
        watch.ends("encode")
        ready = IncomingBatch(BatchRequest(), events, None, stream, encoded, watch, calls, CALL)
        pending = self._happen(ready, Policy.serial())
        return pending.answers.rows, pending.report

    def place(self, calls: list[EventBatch], waiting: tuple[WaitingCall, ...]) -> BatchReport:
        """A version into which these calls have arrived."""
        stream = self._store.stream
        request = BatchRequest(watermark=stream.watermark)
        ready = self._arrange(merged(calls, self.clock), request, Stopwatch())
        kept = ready.stream._replace(watermark=stream.watermark, waiting=(*stream.waiting, *waiting))
        return self._happen(replace(ready, stream=kept, cause=ARRIVAL), self.policy).report

    # -- inside -----------------------------------------------------------------------------

    def _take(self, batch: Any, request: BatchRequest, admission: Admission | None) -> IncomingBatch:
        """admission: of who streams rows that need not be events; without it one that is none is an error."""
        watch, rejected = Stopwatch(), None
        if admission is None:
            events = intake.events(self.program, batch)
        else:
            events, rejected = admit(self.program, batch, admission, self._store.stream.buffer.highest)
        watch.ends("intake")
        ready = self._arrange(events, request, watch)
        if rejected is None:
            return ready
        return replace(
            ready, rejected=rejected if ready.rejected is None else pa.concat_tables([ready.rejected, rejected])
        )

    def _arrange(self, events: list[EventBatch], request: BatchRequest, watch: Stopwatch) -> IncomingBatch:
        files = {one.event.name: SourceNote(one.files, one.refused) for one in events}
        events, late, stream, beyond = self._release(events, request)
        rejected = given_up(self.program, beyond) if beyond else None
        ordered = self._engine.order(events, late, self.clock, request.until)
        stream = stream.ran(ordered.ts) if request.until is None else stream.advanced(request.until)
        watch.ends("order")
        encoded = self._engine.encode(ordered)
        watch.ends("encode")
        named = files if all(note.files for note in files.values()) and request.until is None else None
        return IncomingBatch(request, events, late, stream, encoded, watch, files=named, rejected=rejected)

    def _happen(self, ready: IncomingBatch | PendingBatch, policy: Policy) -> PendingBatch:
        """The next version; durable on return."""
        version = self.version + 1
        with committing(version, lambda: self._store.version == version):
            with self._gate.whole():
                pending = ready if isinstance(ready, PendingBatch) else self._execute(ready, policy)
                self._commit(pending)
            self._store.snapshot_if_due(self._engine.tables)
        return pending

    def _execute(self, incoming: IncomingBatch, policy: Policy) -> PendingBatch:
        """A batch run, and on disk; but it has not happened yet."""
        engine, watch = self._engine, incoming.watch
        self._progress.events, self._progress.stage = incoming.encoded.ordered.count, "execute"
        run = engine.run(incoming.encoded, self.version + 1, policy)
        watch.ends("execute")
        self._progress.stage = "commit"
        outcomes = engine.outcomes(run, incoming.rejected)
        watch.ends("publish")
        events = without_late(incoming.events, incoming.late)
        stream = incoming.stream._replace(timers=engine.tables.timers.numbers)
        called, before = incoming.called, self._store.stream
        answers, stream = answers_of(self.program, called, incoming.events, stream, outcomes, before)
        notes = {} if incoming.cause is None else {"cause": incoming.cause}
        stored = self._store.prepare(
            engine.tables, events, outcomes, stream, incoming.request, notes, incoming.files, answers.noted
        )
        watch.ends("commit")
        report = self._report(incoming, run, outcomes, stream)
        if incoming.called is not None:
            report = replace(report, why=_CALLED)
        engine.end_batch()
        return PendingBatch(incoming.request, outcomes.table, stored, report, answers, outcomes.emitted)

    def _commit(self, pending: PendingBatch) -> None:
        begun = time.perf_counter()
        self.pending = None
        self._turn.set()
        self._store.commit(pending.stored)
        self.last_batch, self._version = pending.report, pending.report.version
        self.answered(self._version, pending.outcomes, pending.answers)
        if self._outlet is not None:
            self._outlet.add(self._version, pending.outcomes, pending.emitted)
        pending.report.seconds["commit"] += time.perf_counter() - begun
        self._store.report(pending.report)

    def go_back(self) -> None:
        """Memory as of the last batch that has happened: what ran ahead of it is forgotten."""
        if self.pending is not None:
            with self._gate.whole():
                pending, self.pending = self.pending, None
                self._turn.set()
                self._store.forget(pending.stored)
                self._engine.tables, _ = self._store.recover()
                self._engine.tables.loaded()

    def _release(
        self, events: list[EventBatch], request: BatchRequest
    ) -> tuple[list[EventBatch], list[Any] | None, StreamState, list[EventBatch]]:
        """What of the batch, and of what was held back, runs now; which of it is late; what the stream keeps; and what
        of it is given up."""
        late, stream, beyond = None, self._store.stream, list[EventBatch]()
        if is_split(self.program, stream.buffer, request.watermark, flush=request.flush):
            released = release(
                self.program,
                events,
                stream.buffer,
                request.watermark,
                flush=request.flush,
                until=request.until,
                marked=self._engine.marked,
            )
            events, late, stream = released.events, released.late, stream._replace(buffer=released.buffer)
            beyond = released.given_up
        if request.source is not None and request.flush:
            stream = stream._replace(source=request.source, drained=self.version + 1)
        elif request.source is not None:
            stream = stream._replace(source=request.source, offsets=request.offsets)
        if not request.flush and request.until is None and request.watermark != stream.watermark:
            stream = stream._replace(watermark=request.watermark)
        return events, late, stream, beyond

    def _report(
        self, incoming: IncomingBatch, run: BatchRun, outcomes: BatchOutcomes, stream: StreamState
    ) -> BatchReport:
        summary, request, watch = run.summary, incoming.request, incoming.watch
        return BatchReport(
            version=run.version,
            policy=summary.name,
            why=summary.why,
            events=outcomes.events,
            committed=outcomes.committed,
            late=outcomes.late,
            rejected=outcomes.rejected,
            held=stream.buffer.events,
            aborted={reason: n for reason, n in zip(self._engine.reasons, outcomes.counts[1:], strict=True) if n},
            changes=self._engine.tables.dirty_count(),
            seconds=watch.seconds,
            threads=summary.policy.threads,
            spent=summary.spent,
            duplicate=outcomes.duplicate,
            app=self.program.name,
            state=self._state,
            id=request.id,
            query=request.source,
            cause=incoming.cause or ("batch" if request.until is None else ADVANCE),
        )
