"""Calls over the wire, each answered after its fsync: pipelined, and from clients that wait for each answer.

    python -m benchmarks.serve.calls [--seconds 5] [--state FOLDER] [--clients 64] [--together 1000]

The writer is a process, and so are the clients: a transfer between two of 100,000 accounts, each with an id of its own.
Commits are those of the folder's disk.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock.serve.pipeline import Pipeline

bank = ps.App("bank")
ACCOUNTS = 100_000


@bank.table
class Account:
    id: int = ps.key()
    balance: int = 0


@bank.event
class Transfer:
    id: int = ps.id()
    src: int
    dst: int
    amount: int


@bank.transaction
def transfer(e: Transfer):
    src, dst = Account[e.src], Account[e.dst]
    ps.require(src.balance >= e.amount, "insufficient funds")
    src.balance -= e.amount
    dst.balance += e.amount
    return {"left": src.balance}


def write(state: Path, ready: Any, done: Any) -> None:
    with bank.open(state, calls=True) as db:
        rows = {"id": np.arange(ACCOUNTS), "balance": np.full(ACCOUNTS, 1_000_000)}
        db.load(Account, pa.table(rows))
        ready.set()
        done.wait()


def some(rng: Any, first: int, count: int) -> pa.Table:
    src, dst = rng.integers(0, ACCOUNTS, count), rng.integers(0, ACCOUNTS, count)
    columns = [np.arange(first, first + count), src, dst, rng.integers(1, 100, count)]
    return pa.table(columns, schema=Transfer.definition.arrow())


def pipelined(state: Path, seconds: float, together: int) -> dict[str, Any]:
    rng, waits, calls = np.random.default_rng(1), list[float](), [0]
    with Pipeline("bank", state) as line:
        line.submit("Transfer", some(rng, 1 << 40, 1)).result()
        begun, first = time.perf_counter(), 0
        while (now := time.perf_counter()) - begun < seconds:
            future = line.submit("Transfer", some(rng, first, together))

            def over(future: Any, sent: float = now) -> None:
                calls[0] += future.result().outcomes.num_rows
                waits.append(time.perf_counter() - sent)

            future.add_done_callback(over)
            first += together
        while len(waits) * together < first:
            time.sleep(0.001)
        took = time.perf_counter() - begun
    return {"calls": calls[0], "calls/s": round(calls[0] / took), **percentiles(waits)}


def one_by_one(state: Path, seconds: float, clients: int, first: int, told: Any) -> None:
    """Threads of a process: each waits for each of its answers."""
    waits: list[float] = []
    with bank.connect(state) as there:
        begun = time.perf_counter()

        def work(number: int) -> None:
            rng = np.random.default_rng(first + number)
            for k in range(1_000_000):
                src, dst, amount = map(int, (*rng.integers(0, ACCOUNTS, 2), rng.integers(1, 100)))
                event = Transfer(id=(first + number) * 10_000_000 + k, src=src, dst=dst, amount=amount)
                sent = time.perf_counter()
                if sent - begun > seconds:
                    return
                assert there.call(event)["status"] == "committed"
                waits.append(time.perf_counter() - sent)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    told.put((waits, time.perf_counter() - begun))


def waiting(state: Path, seconds: float, clients: int, processes: int) -> dict[str, Any]:
    context = multiprocessing.get_context("fork")
    told = context.Queue()
    each = clients // processes
    args = [(state, seconds, each, 1000 + number * each, told) for number in range(processes)]
    running = [context.Process(target=one_by_one, args=one) for one in args]
    for one in running:
        one.start()
    found = [told.get() for _ in running]
    for one in running:
        one.join()
    waits = [wait for several, _ in found for wait in several]
    took = max(took for _, took in found)
    return {"clients": each * processes, "calls/s": round(len(waits) / took), **percentiles(waits)}


def percentiles(waits: list[float]) -> dict[str, float]:
    return {f"p{p}_ms": round(float(np.percentile(waits, p)) * 1e3, 2) for p in (50, 99)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--state", type=Path)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--together", type=int, default=1000, help="calls in a message, where they are pipelined")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.state) as folder:
        state, context = Path(folder) / "state", multiprocessing.get_context("fork")
        ready, done = context.Event(), context.Event()
        writer = context.Process(target=write, args=(state, ready, done))
        writer.start()
        ready.wait()
        try:
            said = {
                "pipelined": pipelined(state, given.seconds, given.together),
                "waiting": waiting(state, given.seconds, given.clients, given.processes),
                "one": waiting(state, given.seconds, 1, 1),
            }
            print(json.dumps(said, indent=1))
        finally:
            done.set()
            writer.join()


if __name__ == "__main__":
    main()
