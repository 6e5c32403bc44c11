"""One micro-batch: from Spark into the engine, and its outcomes on.

The order is what makes it exactly once: the engine commits (state and outcomes, under Spark's batch id), then this
returns and Spark notes the batch as done. A kill in between makes Spark send the batch again, and the engine
answers from its log. Outcomes go to their file while Spark goes on, and are there before the next batch commits:
so a kill can only keep those of the newest version from being written, and the next start writes them.

What a watermark still holds when the stream has been read to its end is no batch of Spark's: that its outcomes were
handed on is noted in the state directory (drained.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.commit.disk import Disk
from penstock.errors import StateError
from penstock.publish.files import OutcomeFiles, plain
from penstock.spark import direct, engines, events
from penstock.spark.checkpoint import CHECKPOINT, fingerprint, last_done, planned, query_id
from penstock.spark.direct import Spans
from penstock.spark.drained import DrainNote
from penstock.spark.engines import Engine, Opening
from penstock.spark.files import Listed


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """What foreachBatch calls. It may run in another process, so it holds only what opens the engine there."""

    opening: Opening
    outcomes: OutcomeFiles | Callable[[Any, int | None], Any]
    watermark: int | None
    direct: tuple[Listed, ...] = ()  # the sources, if all of them are direct
    alone: str | None = None  # the event, if its DataFrame is the only source
    all_listed: bool = False  # whether files that come after the start are left to another query: availableNow
    awaits: bool = False  # whether outcomes are written before Spark is told, as where nobody waits for them at the end

    def __call__(self, frame: Any, batch_id: int) -> None:
        engine = engines.engine(self.opening)
        self.catch_up(engine, frame.sparkSession)
        engine.ahead.settle()
        database = engine.database
        source, spans = query_id(self.opening.path), self._spans(batch_id)
        offsets = planned(self.opening.path, batch_id) if spans is None else named(spans)
        out = database.stored(batch_id, source, offsets)
        if out is None:
            batch = self._events(engine, frame, spans)
            engine.behind.wait()
            out = database.run(batch, id=batch_id, source=source, offsets=offsets, watermark=self.watermark)
        self.publish(engine, out, frame.sparkSession, batch_id)
        if spans is not None:
            self._go_on(engine, batch_id + 1, source, spans)

    def _spans(self, batch_id: int) -> Spans | None:
        """The batch's files, where all sources are direct and Spark's notes can be read."""
        return direct.spans(Path(self.opening.path) / CHECKPOINT, batch_id, self.direct) if self.direct else None

    def _events(self, engine: Engine, frame: Any, spans: Spans | None) -> dict[str, pa.Table]:
        program = engine.database.program
        batch = None if spans is None else engine.ahead.take(program, self.direct, spans)
        return events.unpack(program, frame.toArrow(), self.alone) if batch is None else batch

    def _go_on(self, engine: Engine, batch_id: int, source: str, done: Spans) -> None:
        """While Spark plans it: the next batch, if it is certain which it will be."""
        coming = direct.following(self.direct, done, all_listed=self.all_listed)
        if coming is not None:
            database, offsets = engine.database, named(coming)
            run = partial(database.run_ahead, id=batch_id, source=source, offsets=offsets, watermark=self.watermark)
            engine.ahead.go_on(database.program, self.direct, coming, run, engine.behind)

    def drain(self, spark: Any) -> None:
        """Run what is held back, now that all there was has been read."""
        engine = engines.engine(self.opening)
        if engine.database.held:
            engine.behind.wait()
            engine.database.run({}, flush=True, source=query_id(self.opening.path))
        self.hand_on_drain(engine, spark)

    def hand_on_drain(self, engine: Engine, spark: Any) -> None:
        """Publish the outcomes of the last drain, unless this was done."""
        drained = engine.database.drained
        note = DrainNote(Path(self.opening.path), self.opening.options.get("disk") or Disk())
        if drained is None or note.says(drained, can_repeat=isinstance(self.outcomes, OutcomeFiles)):
            return
        self.publish(engine, engine.database.outcomes(drained), spark, None)
        engine.behind.wait()
        note.write(drained)

    def publish(self, engine: Engine, out: pa.Table, spark: Any, batch_id: int | None) -> None:
        if isinstance(self.outcomes, OutcomeFiles):
            engine.behind.put(partial(self.outcomes.write, out))
            if self.awaits:
                engine.behind.wait()
        else:
            self.outcomes(spark.createDataFrame(plain(out)), batch_id)

    def catch_up(self, engine: Engine, spark: Any) -> None:
        """Outcomes of the stream's last version, and of its last drain, if the process died between committing and
        handing them on."""
        if engine.caught_up:
            return
        database = engine.database
        self._refuse_older_state(database.last_id)
        if database.source is not None and isinstance(self.outcomes, OutcomeFiles):
            self.outcomes.write(database.outcomes(database.version))
        self.hand_on_drain(engine, spark)
        engine.caught_up = True

    def _refuse_older_state(self, last: int | None) -> None:
        """Spark does not send a batch again that it has noted as done: a state that lacks it would never get it."""
        done, state = last_done(self.opening.path), self.opening.path
        if done is not None and (last is None or last < done):
            have = "none" if last is None else f"batches up to {last}"
            raise StateError(
                f"the checkpoint in {state} has batch {done} as done, but the state has run {have}: it is an older "
                "copy, or the checkpoint is another's; restore the state and the checkpoint from one backup"
            )


def named(spans: Spans) -> str:
    """The same of a batch of direct sources, whose files say all; it is known before Spark's plan is."""
    return fingerprint(json.dumps(spans, sort_keys=True).encode())
