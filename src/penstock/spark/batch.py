"""One micro-batch: from Spark into the engine, and its outcomes on.

The order is what makes it exactly once: the engine commits (state and outcomes, under Spark's batch id), then the
outcomes are written, then this returns and Spark notes the batch as done. A kill anywhere in between makes
Spark send the batch again, and the engine answers from its log.

What a watermark still holds when the stream has been read to its end is no batch of Spark's: that its outcomes were
handed on is noted here, in the state directory.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.engine import Database
from penstock.publish.files import OutcomeFiles, plain
from penstock.spark import engines, events
from penstock.spark.engines import Opening

CHECKPOINT = "checkpoint"
DRAINED = "drained"  # the file that holds the version of the last drain whose outcomes were handed on


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """What foreachBatch calls. It may run in another process, so it holds only what opens the engine there."""

    opening: Opening
    outcomes: OutcomeFiles | Callable[[Any, int | None], Any]
    watermark: int | None

    def __call__(self, frame: Any, batch_id: int) -> None:
        database = engines.engine(self.opening)
        self.hand_on_drain(database, frame.sparkSession)
        source, offsets = query_id(self.opening.path), planned(self.opening.path, batch_id)
        out = database.stored(batch_id, source, offsets)
        if out is None:
            batch = events.unpack(database.program, frame.toArrow())
            out = database.run(batch, id=batch_id, source=source, offsets=offsets, watermark=self.watermark)
        self.publish(out, frame.sparkSession, batch_id)

    def drain(self, spark: Any) -> None:
        """Run what is held back, now that all there was has been read."""
        database = engines.engine(self.opening)
        if database.held:
            database.run({}, flush=True, source=query_id(self.opening.path))
        self.hand_on_drain(database, spark)

    def hand_on_drain(self, database: Database, spark: Any) -> None:
        """Publish the outcomes of the last drain, unless this was done."""
        note = Path(self.opening.path) / DRAINED
        if database.drained is None or (note.exists() and int(note.read_text()) == database.drained):
            return
        self.publish(database.outcomes(database.drained), spark, None)
        making = note.with_suffix(".tmp")
        making.write_text(str(database.drained))
        os.replace(making, note)

    def publish(self, out: pa.Table, spark: Any, batch_id: int | None) -> None:
        if isinstance(self.outcomes, OutcomeFiles):
            self.outcomes.write(out)
        else:
            self.outcomes(spark.createDataFrame(plain(out)), batch_id)


def query_id(state: str) -> str:
    """The identity that Spark gave the query when it made the checkpoint."""
    text = (Path(state) / CHECKPOINT / "metadata").read_text()
    return str(json.loads(text)["id"])


def planned(state: str, batch_id: int) -> str:
    """A fingerprint of Spark's plan of a batch: its offsets, and when it was planned. As long as the checkpoint keeps
    that file, the batch is sent again as it was; without it the same number may get other events."""
    return hashlib.sha256((Path(state) / CHECKPOINT / "offsets" / str(batch_id)).read_bytes()).hexdigest()[:16]
