"""Where outcomes go, and what an app emits for others: each version once, however often it is handed over.

"out/bank"             a directory of Parquet files, one a batch             publish/files.py
ps.kafka_sink("out")   a topic, one transaction a batch                      kafka/sink.py
f(dataframe, id)       whatever the user does; it may get a batch again      batch.py
"""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa


class OutcomeSink(Protocol):
    def written(self) -> list[int]:
        """Versions with which a write has ended, in order; the last two of them suffice."""

    def write(self, outcomes: pa.Table, versions: pa.Array | None = None) -> None:
        """The outcomes of one version, or of several in order; what was written before is not written again. Durable
        on return. versions: which made each row, where rows do not say it: a duplicate has that of the first one."""


class SinkInput:
    """What a user gives instead of a directory."""

    def of(self, what: str, state: str) -> OutcomeSink:
        """what: "outcomes", or an event that goes out."""
        raise NotImplementedError

    @property
    def place(self) -> tuple[str, str]:
        """Two outputs may not have the same; its last part is its name."""
        raise NotImplementedError
