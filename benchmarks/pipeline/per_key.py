"""e: Spark's own keyed state: transformWithState from Python, on RocksDB. It holds state for one key at a time, so it
can do the deposits but no transfer: it is given the deposits alone, and counted by them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from benchmarks.pipeline import session
from benchmarks.pipeline.ledger import DEPOSIT, OPENING, places
from benchmarks.pipeline.peers import CannotRun, Done, Job, Peer


class Deposits(StatefulProcessor):
    """The balance of one account."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._balance = handle.getValueState("balance", "balance long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        balance = self._balance.get()[0] if self._balance.exists() else OPENING
        for row in sorted(rows, key=lambda r: r.ts):
            balance += row.amount
            yield Row(ts=row.ts, id=key[0], balance=balance)
        self._balance.update((balance,))

    def close(self) -> None:
        pass


def run(job: Job) -> Done:
    try:
        import google.protobuf
        import pandas
    except ImportError as error:
        raise CannotRun(f"transformWithState needs {error.name}: pip install protobuf 'pandas<3'") from error
    out = job.work / "outcomes"
    deposits = session.read(job.spark, job.events).where(F.col("kind") == DEPOSIT).select("ts", "dst", "amount")
    changed = deposits.groupBy("dst").transformWithState(
        Deposits(), outputStructType="ts long, id long, balance long", outputMode="Append", timeMode="None"
    )
    writer = changed.writeStream.outputMode("append").format("parquet").option("path", str(out))
    writer = writer.option("checkpointLocation", str(job.work / "checkpoint"))
    durations = session.finish(writer.trigger(availableNow=True).start())
    _check(job, ds.dataset(out, format="parquet", exclude_invalid_files=True).to_table())
    kinds = job.stream.events(0, job.count)["kind"].to_numpy().reshape(job.batches, job.batch)
    counts = (kinds == DEPOSIT).sum(axis=1).tolist()
    return Done(durations, counts=counts, note=f"protobuf {google.protobuf.__version__}, pandas {pandas.__version__}")


def _check(job: Job, outcomes: pa.Table) -> None:
    """Each deposit's balance, against a running sum."""
    events = job.stream.events(0, job.count)
    events = events.filter(pa.compute.equal(events["kind"], DEPOSIT))
    balance = np.full(job.stream.accounts, OPENING, np.int64)
    wanted = []
    for place, amount in zip(places(events["dst"].to_numpy()), events["amount"].to_numpy(), strict=True):
        balance[place] += amount
        wanted.append(balance[place])
    found = outcomes.sort_by("ts")
    if found["ts"].to_pylist() != events["ts"].to_pylist() or found["balance"].to_pylist() != wanted:
        raise AssertionError("transformWithState: its balances are not the sums of the deposits")


PEERS = [
    Peer(
        "e",
        "Spark transformWithState, deposits only",
        "RocksDB state store, checkpointed at each batch",
        run,
        slow=True,
        whole=False,
    )
]
