"""What a peer is: what it is given, and what it hands back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.pipeline.ledger import Result, Stream


class CannotRun(Exception):
    """The peer needs something that is not here; the table says what."""


@dataclass(frozen=True)
class Job:
    """One peer's run: the same events for all, in files of `batch` events; the first file warms up."""

    spark: SparkSession
    stream: Stream
    events: Path
    work: Path  # empty; the peer's own
    batch: int
    batches: int

    @property
    def count(self) -> int:
        return self.batch * self.batches


@dataclass(frozen=True)
class Done:
    durations: list[dict[str, int]]  # Spark's durationMs of each batch
    result: Result | None = None  # of peers that do the whole job
    counts: list[int] | None = None  # events of each batch, where the peer does not do all of them
    note: str = ""


@dataclass(frozen=True)
class Peer:
    name: str
    title: str
    durability: str
    run: Callable[[Job], Done]
    slow: bool = False  # is given fewer events
    whole: bool = True  # does all of the job, so that its result is compared
