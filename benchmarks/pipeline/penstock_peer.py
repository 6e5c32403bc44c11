"""a1, a2: Penstock, `app.start`, with its defaults."""

from __future__ import annotations

from typing import Any

import pyarrow.dataset as ds

import penstock as ps
from benchmarks.pipeline import session
from benchmarks.pipeline.ledger import Result, app, by_place, result_of
from benchmarks.pipeline.peers import Done, Job, Peer


def from_dataframe(job: Job) -> Done:
    return _run(job, session.read(job.spark, job.events))


def from_files(job: Job) -> Done:
    return _run(job, ps.parquet(job.events, files_per_batch=1))


def _run(job: Job, source: Any) -> Done:
    durations = stream(job, source)
    return Done(durations, _result(job))


def stream(job: Job, source: Any) -> list[dict[str, int]]:
    """The pipeline itself, without the comparison."""
    ledger = app()
    state, outcomes = job.work / "state", job.work / "outcomes"
    ledger.load("Account", job.stream.opening(), state=state)
    query = ledger.start({"Payment": source}, state=state, outcomes=outcomes, trigger={"availableNow": True})
    return session.finish(query)


def _result(job: Job) -> Result:
    with app().open(job.work / "state") as db:
        table = db.table("Account")
    outcomes = ds.dataset(job.work / "outcomes", format="parquet").to_table(columns=["ts", "status", "balance"])
    return result_of(outcomes, by_place(table["id"], table["balance"], job.stream.accounts))


DURABLE = "state and outcomes logged with fsync at each batch, exactly once"
PEERS = [
    Peer("a1", "Penstock, from a DataFrame", DURABLE, from_dataframe),
    Peer("a2", "Penstock, from ps.parquet (direct)", DURABLE, from_files),
]
