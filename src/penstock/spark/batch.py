"""One micro-batch: from Spark into the database, and its outcomes on.

The order is what makes it exactly once: the database commits (state and outcomes, under Spark's batch id), then this
returns and Spark notes the batch as done. A kill in between makes Spark send the batch again, and the database
answers from its log. Outcomes go to their file while Spark goes on, and are there before the next batch commits:
so a kill can only keep those of the newest batch from being written, and of the calls around it (backlog.py); the next
start writes them.

What a watermark still holds when the stream has been read to its end is no batch of Spark's: that its outcomes were
handed on is noted in the state directory (drained.py).
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.commit.disk import Disk
from penstock.errors import StateError
from penstock.execute.request import Admission
from penstock.publish.files import plain
from penstock.spark import databases, direct_source, events
from penstock.spark.backlog import Backlog
from penstock.spark.checkpoint import CHECKPOINT, fingerprint, first_not_done, last_done, planned, query_id
from penstock.spark.databases import DatabaseSpec, OpenDatabase
from penstock.spark.direct_source import DirectSource, Spans, following
from penstock.spark.drained import DrainNote
from penstock.spark.outcome_sink import OutcomeSink
from penstock.store.durable import SOURCE


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """What foreachBatch calls. It may run in another process, so it holds only what opens the database there."""

    spec: DatabaseSpec
    outcomes: OutcomeSink | Callable[[Any, int], Any]
    watermark: int | None
    outputs: tuple[tuple[str, OutcomeSink], ...] = ()  # events that go out, and where to
    direct: tuple[DirectSource, ...] = ()  # the sources that are direct
    all_direct: bool = False  # whether there are no others
    alone: str | None = None  # the event, if its DataFrame is the only source
    all_listed: bool = False  # whether what comes after the start is left to another query: availableNow
    calls: bool | list[str] = False  # whether other processes may call; or which events
    admission: Admission = Admission()  # noqa: RUF009 - it is frozen
    awaits: bool = False  # whether outcomes are written before Spark is told, as where nobody waits for them at the end

    def __call__(self, frame: Any, batch_id: int) -> None:
        opened = databases.opened(self.spec)
        opened.sources = self.direct
        with nullcontext() if opened.idle is None else opened.idle.batch():
            self._run(opened, frame, batch_id)

    def _run(self, opened: OpenDatabase, frame: Any, batch_id: int) -> None:
        self.catch_up(opened, frame.sparkSession)
        opened.run_ahead.wait()
        # Calls may make many versions before Spark has noted this batch; until then it may send it again.
        opened.database.keep_from(batch_id)
        source, spans = query_id(self.spec.path), self._spans(batch_id)
        offsets = planned(self.spec.path, batch_id) if spans is None else named(spans)
        take = partial(self._events, opened, frame, spans)
        out = opened.database.run(
            take, id=batch_id, source=source, offsets=offsets, watermark=self.watermark, _admission=self.admission
        )
        self.publish(opened, out, frame.sparkSession, opened.database.version_of(batch_id))
        if spans is not None:
            self._start_next(opened, batch_id + 1, source, spans)

    @property
    def _by_name(self) -> bool:
        """Whether a batch is logged by the files that it is from."""
        return self.spec.options.get("log") == SOURCE

    def _spans(self, batch_id: int) -> Spans | None:
        """The batch's offsets, where all sources are direct and Spark's notes can be read."""
        return (
            direct_source.spans(Path(self.spec.path) / CHECKPOINT, batch_id, self.direct) if self.all_direct else None
        )

    def _events(self, opened: OpenDatabase, frame: Any, spans: Spans | None) -> dict[str, Any]:
        """The batch's events, once the outcomes of the batch before it are on disk."""
        program = opened.database.program
        batch = None
        if spans is not None:
            batch = opened.run_ahead.take(program, self.direct, spans, named=self._by_name)
        if batch is None:
            batch = events.unpack(program, frame.toArrow(), self.alone, self.direct)
        opened.outcomes.wait()
        return batch

    def _start_next(self, opened: OpenDatabase, batch_id: int, source: str, done: Spans) -> None:
        """While Spark plans it: the next batch, if it is certain which it will be."""
        coming = following(self.direct, done, all_listed=self.all_listed)
        if coming is not None:
            database, offsets = opened.database, named(coming)
            run = partial(
                database.run_ahead,
                id=batch_id,
                source=source,
                offsets=offsets,
                watermark=self.watermark,
                _admission=self.admission,
            )
            opened.run_ahead.start(database.program, self.direct, coming, run, opened.outcomes, named=self._by_name)

    def go_on(self, opened: OpenDatabase, t: datetime.datetime) -> None:
        """Move the clock of a stream on which nothing comes, if anything runs by then."""
        self.catch_up(opened, None)  # of outcomes in a directory, as they are here, which needs no Spark
        if opened.database.is_due(t):
            opened.outcomes.wait()
            opened.database.advance(t)
            opened.flush()
            opened.outcomes.wait()
            opened.database.keep_from(first_not_done(self.spec.path))

    def drain(self, spark: Any) -> None:
        """Run what is held back, now that all there was has been read."""
        opened = databases.opened(self.spec)
        if opened.idle is not None:
            opened.idle.close()
        self.catch_up(opened, spark)  # no batch may have come here: after a restart, or under Connect, whose server has
        if opened.database.held:
            opened.outcomes.wait()
            opened.database.run({}, flush=True, source=query_id(self.spec.path))
        self.hand_on_drain(opened, spark)

    def hand_on_drain(self, opened: OpenDatabase, spark: Any) -> None:
        """Publish the outcomes of the last drain, unless this was done."""
        drained = opened.database.drained
        note = DrainNote(Path(self.spec.path), self.spec.options.get("disk") or Disk())
        if drained is None or note.says(drained, can_repeat=not callable(self.outcomes)):
            return
        self.publish(opened, opened.database.outcomes(drained), spark, drained)
        opened.outcomes.wait()
        note.write(drained)

    def publish(self, opened: OpenDatabase, out: pa.Table, spark: Any, version: int) -> None:
        """A function's batch id is the version: Spark's numbers know no drain, and go on behind it without a gap."""
        opened.flush()
        if self.awaits:
            opened.outcomes.wait()
        if callable(self.outcomes):
            self.outcomes(spark.createDataFrame(plain(out)), version)

    def catch_up(self, opened: OpenDatabase, spark: Any) -> None:
        """Outcomes of the stream's last version, of those that came behind it, and of its last drain, if the process
        died between committing and handing them on."""
        if opened.caught_up:
            return
        database = opened.database
        self._refuse_older_state(database.last_id)
        database.keep_from(first_not_done(self.spec.path))
        sink = None if callable(self.outcomes) else self.outcomes
        backlog = Backlog(self.spec, database, sink, self.outputs, opened.outcomes)
        backlog.catch_up()
        opened.backlog = backlog
        database.set_outlet(backlog)
        self.hand_on_drain(opened, spark)
        opened.caught_up = True
        if self.calls:
            database.serve_calls(None if self.calls is True else self.calls)

    def _refuse_older_state(self, last: int | None) -> None:
        """Spark does not send a batch again that it has noted as done: a state that lacks it would never get it."""
        done, state = last_done(self.spec.path), self.spec.path
        if done is not None and (last is None or last < done):
            have = "none" if last is None else f"batches up to {last}"
            raise StateError(
                f"the checkpoint in {state} has batch {done} as done, but the state has run {have}: it is an older "
                "copy, or the checkpoint is another's; restore the state and the checkpoint from one backup"
            )


def named(spans: Spans) -> str:
    """The same of a batch of direct sources, whose offsets say all; it is known before Spark's plan is."""
    return fingerprint(json.dumps(spans, sort_keys=True).encode())
