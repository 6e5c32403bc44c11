"""One micro-batch: from Spark into the engine, and its outcomes on.

The order is what makes it exactly once: the engine commits (state and outcomes, under Spark's batch id), then this
returns and Spark notes the batch as done. A kill in between makes Spark send the batch again, and the engine
answers from its log. Outcomes go to their file while Spark goes on, and are there before the next batch commits:
so a kill can only keep those of the newest version from being written, and the next start writes them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.publish.files import OutcomeFiles, plain
from penstock.spark import direct, engines, events
from penstock.spark.engines import Engine, Opening
from penstock.spark.files import Listed

CHECKPOINT = "checkpoint"


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """What foreachBatch calls. It may run in another process, so it holds only what opens the engine there."""

    opening: Opening
    outcomes: OutcomeFiles | Callable[[Any, int | None], Any]
    watermark: int | None
    direct: tuple[Listed, ...] = ()  # the sources, if all of them are direct
    alone: str | None = None  # the event, if its DataFrame is the only source
    awaits: bool = False  # whether outcomes are written before Spark is told, as where nobody waits for them at the end

    def __call__(self, frame: Any, batch_id: int) -> None:
        engine = engines.engine(self.opening)
        self.catch_up(engine)
        database, source = engine.database, query_id(self.opening.path)
        out = database.stored(batch_id, source)
        if out is None:
            batch = self._events(engine, frame, batch_id)
            engine.behind.wait()
            out = database.run(batch, id=batch_id, source=source, watermark=self.watermark)
        self.publish(engine, out, frame.sparkSession, batch_id)

    def _events(self, engine: Engine, frame: Any, batch_id: int) -> dict[str, pa.Table]:
        program = engine.database.program
        if self.direct:
            spans = direct.spans(Path(self.opening.path) / CHECKPOINT, batch_id, self.direct)
            batch = None if spans is None else engine.ahead.take(program, self.direct, spans)
            if batch is not None:
                return batch
        return events.unpack(program, frame.toArrow(), self.alone)

    def publish(self, engine: Engine, out: pa.Table, spark: Any, batch_id: int | None) -> None:
        if isinstance(self.outcomes, OutcomeFiles):
            engine.behind.put(partial(self.outcomes.write, out))
            if self.awaits:
                engine.behind.wait()
        else:
            self.outcomes(spark.createDataFrame(plain(out)), batch_id)

    def catch_up(self, engine: Engine) -> None:
        """Outcomes of the stream's last version, if the process died between committing and writing them."""
        database = engine.database
        if not engine.caught_up and database.source is not None and isinstance(self.outcomes, OutcomeFiles):
            self.outcomes.write(database.outcomes(database.version))
        engine.caught_up = True


def query_id(state: str) -> str:
    """The identity that Spark gave the query when it made the checkpoint."""
    text = (Path(state) / CHECKPOINT / "metadata").read_text()
    return str(json.loads(text)["id"])
