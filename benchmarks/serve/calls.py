"""Calls over the wire, each answered after its fsync: pipelined, and from clients that wait for each answer.

    python -m benchmarks.serve.calls [--seconds 5] [--state FOLDER] [--clients 64] [--together 1000]

pipelined    messages of many calls over the writer's socket, many under way
waiting      clients that each wait for each answer: threads, over the writer's socket
http         the same over HTTP: connections to a server, each of which waits for each answer
one          one client

On a machine that does other work besides, the seconds of CPU that a call takes say more than those of the clock. The
writer is a process, and so are the clients: a transfer between two of 100,000 accounts, each with an id of its own.
Commits are those of the folder's disk.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import uvloop

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
    told_of = {"clients": each * processes, "calls": len(waits), "calls/s": round(len(waits) / took)}
    return {**told_of, **percentiles(waits)}


async def _posts(port: int, token: str, clients: int, seconds: float) -> list[float]:
    waits: list[float] = []
    begun = time.perf_counter()

    async def work(number: int) -> None:
        rng = np.random.default_rng(7000 + number)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"POST /v1/events/Transfer HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
        head += "Content-Type: application/json\r\nContent-Length: "
        for k in range(1_000_000):
            src, dst, amount = map(int, (*rng.integers(0, ACCOUNTS, 2), rng.integers(1, 100)))
            body = json.dumps({"id": (7000 + number) * 10_000_000 + k, "src": src, "dst": dst, "amount": amount})
            sent = time.perf_counter()
            if sent - begun > seconds:
                break
            writer.write(f"{head}{len(body)}\r\n\r\n{body}".encode())
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 200"), answer
            length = int(answer.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
            await reader.readexactly(length)
            waits.append(time.perf_counter() - sent)
        writer.close()

    await asyncio.gather(*(work(number) for number in range(clients)))
    return waits


def over_http(state: Path, seconds: float, clients: int, writer: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "penstock", "serve", str(state), "--json", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        told = json.loads(server.stdout.readline())
        port, token = int(told["url"].rpartition(":")[2]), (state / "write.token").read_text().strip()
        uvloop.run(_posts(port, token, clients, 0.5))
        before = cpu_s(writer), cpu_s(told["pid"]), time.process_time()
        begun = time.perf_counter()
        waits = uvloop.run(_posts(port, token, clients, seconds))
        took = time.perf_counter() - begun
        used = cpu_s(writer) - before[0], cpu_s(told["pid"]) - before[1], time.process_time() - before[2]
        server.terminate()
    cpu = dict(zip(("writer", "server", "client"), used, strict=True))
    return {
        "clients": clients,
        "calls": len(waits),
        "calls/s": round(len(waits) / took),
        **percentiles(waits),
        "cpu_us_a_call": {who: round(one / len(waits) * 1e6) for who, one in cpu.items()},
    }


def cpu_s(pid: int) -> float:
    parts = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


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
            assert writer.pid is not None
            ways: dict[str, Callable[[], dict[str, Any]]] = {
                "pipelined": lambda: pipelined(state, given.seconds, given.together),
                "waiting": lambda: waiting(state, given.seconds, given.clients, given.processes),
                "http": lambda: over_http(state, given.seconds, given.clients, writer.pid or 0),
                "one": lambda: waiting(state, given.seconds, 1, 1),
            }
            for name, way in ways.items():
                before = cpu_s(writer.pid)
                said = way()
                said["writer_cpu_us_a_call"] = round((cpu_s(writer.pid) - before) / said["calls"] * 1e6, 1)
                print(name, json.dumps(said), f"load {os.getloadavg()[0]:.0f}")
        finally:
            done.set()
            writer.join()


if __name__ == "__main__":
    main()
