"""One micro-batch: from Spark into the engine, and its outcomes on.

The order is what makes it exactly once: the engine commits (state and outcomes, under Spark's batch id), then the
outcomes are written, then this returns and Spark notes the batch as done. A kill anywhere in between makes
Spark send the batch again, and the engine answers from its log.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.publish.files import OutcomeFiles, plain
from penstock.spark import engines, events
from penstock.spark.engines import Opening

CHECKPOINT = "checkpoint"


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """What foreachBatch calls. It may run in another process, so it holds only what opens the engine there."""

    opening: Opening
    outcomes: OutcomeFiles | Callable[[Any, int | None], Any]
    watermark: int | None

    def __call__(self, frame: Any, batch_id: int) -> None:
        database = engines.engine(self.opening)
        source = query_id(self.opening.path)
        out = database.stored(batch_id, source)
        if out is None:
            batch = events.unpack(database.program, frame.toArrow())
            out = database.run(batch, id=batch_id, source=source, watermark=self.watermark)
        self.publish(out, frame.sparkSession, batch_id)

    def publish(self, out: pa.Table, spark: Any, batch_id: int | None) -> None:
        if isinstance(self.outcomes, OutcomeFiles):
            self.outcomes.write(out)
        else:
            self.outcomes(spark.createDataFrame(plain(out)), batch_id)


def query_id(state: str) -> str:
    """The identity that Spark gave the query when it made the checkpoint."""
    text = (Path(state) / CHECKPOINT / "metadata").read_text()
    return str(json.loads(text)["id"])
