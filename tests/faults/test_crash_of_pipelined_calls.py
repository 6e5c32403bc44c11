"""Pipelined calls, and a writer that is killed: what was acknowledged is there, and what is called again runs once.

Each id has an account of its own, whose balance counts how often it ran. The client keeps many messages under way, and
after each kill calls again, with their ids, those whose answers it has not seen.
"""

from __future__ import annotations

import os
import random
import signal
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock import NotRetainedError
from penstock.serve.pipeline import Pipeline, Reply

pytestmark = pytest.mark.faults

app = ps.App("pipelined")


@app.table
class Account:
    id: int = ps.key()
    count: int = 0


@app.event
class Give:
    id: int = ps.id()
    amount: int


@app.transaction
def give(e: Give):
    account = Account.get(e.id)
    account.count += e.amount
    return {"count": account.count}


@pytest.fixture(autouse=True, scope="module")
def _compiled() -> None:
    """Before any fork."""
    with app.open() as db:
        db.call(Give(id=1, amount=1))


def writer(path: Path, log: Any) -> int:
    """A process that serves calls; its id, once it does."""
    ready, readies = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with app.open(path, log=log, retain=10_000, snapshot_every=20, calls=True):
                os.write(readies, b".")
                signal.pause()
        finally:
            os._exit(1)
    os.close(readies)
    with os.fdopen(ready, "rb") as pipe:
        assert pipe.read(1) == b"."
    return child


def messages(first: int, count: int, each: int) -> list[pa.Table]:
    return [
        pa.table({"id": range(first + k * each, first + (k + 1) * each), "amount": [1] * each}) for k in range(count)
    ]


def killed(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def kills(path: Path, log: str, times: int, count: int, each: int) -> None:
    rng, told = random.Random(times), dict[int, dict[str, Any]]()
    waiting = messages(0, count, each)
    for turn in range(times + 1):
        child = writer(path, log)
        last = turn == times
        futures = called(path, waiting, None if last else child, rng.randrange(1, max(2, len(waiting) // 2)))
        killed(child)
        waiting = []
        for rows, future in futures:
            error = future.exception()
            if error is None:
                for row in future.result().rows():
                    assert row["count"] == 1
                    assert told.setdefault(row["id"], row) == row
            else:
                assert isinstance(error, ps.StateError) and not isinstance(error, NotRetainedError)
                waiting.append(rows)
        with app.open(path, log=log) as db:
            counts = {row["id"]: row["count"] for row in db.table(Account).to_pylist()}
            assert set(counts.values()) <= {1}, "one ran twice"
            assert counts.keys() >= told.keys(), "one that was acknowledged is lost"
    assert not waiting and counts.keys() == set(range(count * each))


def called(path: Path, several: list[pa.Table], child: int | None, at: int) -> list[tuple[pa.Table, Future[Reply]]]:
    """All of them, with what became of each; child: is killed once so many are answered."""
    futures: list[tuple[pa.Table, Future[Reply]]] = []
    answered = [0]

    def over(_: object) -> None:
        answered[0] += 1
        if answered[0] == at and child is not None:
            os.kill(child, signal.SIGKILL)

    with Pipeline("pipelined", path) as line:
        for rows in several:
            try:
                futures.append((rows, line.submit("Give", rows, since=0)))
                futures[-1][1].add_done_callback(over)
            except ps.StateError as error:
                futures.append((rows, Future()))
                futures[-1][1].set_exception(error)
        for _, future in futures:
            future.exception(60)
    return futures


@pytest.mark.parametrize("log", ["changes", "input"])
def test_a_writer_that_is_killed_loses_no_acknowledged_call_and_runs_none_twice(log: str, tmp_path: Path) -> None:
    kills(tmp_path / "state", log, times=3, count=60, each=20)


@pytest.mark.long
@pytest.mark.parametrize("log", ["changes", "input"])
def test_a_writer_that_is_killed_many_times(log: str, tmp_path: Path) -> None:
    kills(tmp_path / "state", log, times=15, count=1000, each=50)


def test_a_client_that_is_killed_has_called_whole_messages_or_none(tmp_path: Path) -> None:
    """Those that had come run, whoever made them; half a message runs none of its calls."""
    path = tmp_path / "state"
    with app.open(path, calls=True) as db:
        for turn in range(3):
            ready, readies = os.pipe()
            child = os.fork()
            if child == 0:
                try:
                    with Pipeline("pipelined", path) as line:
                        for number, rows in enumerate(messages(turn * 100_000, 2_000, 50)):
                            line.submit("Give", rows)
                            if number == 5 * turn:
                                os.write(readies, b".")
                finally:
                    os._exit(1)
            assert os.read(ready, 1) == b"."
            killed(child)
            os.close(ready)
            os.close(readies)
        quiet = time.monotonic()
        version = db.version
        while time.monotonic() - quiet < 0.5:  # nothing comes any more
            if db.version != version:
                quiet, version = time.monotonic(), db.version
            time.sleep(0.01)
        counts = {row["id"]: row["count"] for row in db.table(Account).to_pylist()}
        assert counts and set(counts.values()) == {1}
        whole = {id // 50 for id in counts}
        assert counts.keys() == {50 * number + k for number in whole for k in range(50)}
