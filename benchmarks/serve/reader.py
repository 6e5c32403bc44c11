"""`ps.reader` in the caller's process: gets, bulk reads, and how far it is behind its writer.

    python -m benchmarks.serve.reader                            1 M records, keys of both kinds
    python -m benchmarks.serve.reader --records 10000000 --keys int --seconds 20 --json reader.json

Rates are per second of wall and of the reading thread's own CPU time: on a shared machine the second says what a core
of its own would do. `beside` is measured while another process runs batches of `--batch` events, as fast as it can
(`--pause` seconds between two).
"""

from __future__ import annotations

import argparse
import json
import random
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

import penstock as ps


def bank(keys: str) -> Any:
    app = ps.App("bank")
    kind: Any = {"int": int, "str": str}[keys]

    class Account:
        id: kind = ps.key()
        balance: ps.decimal(18, 2) = 0
        moves: int = 0

    class Transfer:
        ts: int = ps.order()
        src: kind
        dst: kind
        amount: ps.decimal(18, 2)

    Account = app.table(Account)
    Transfer = app.event(Transfer)

    def transfer(e: Transfer):
        src, dst = Account[e.src], Account[e.dst]
        src.balance -= e.amount
        src.moves += 1
        dst.balance += e.amount
        dst.moves += 1

    transfer.__annotations__ = {"e": Transfer}
    app.transaction(transfer)
    return app, Account, Transfer


def ids(keys: str, numbers: Any) -> pa.Array:
    if keys == "int":
        return pa.array(numbers, pa.int64())
    return pa.array([f"account-{n:08d}" for n in numbers.tolist()], pa.string())


def fill(path: Path, keys: str, records: int) -> None:
    app, account, _ = bank(keys)
    with app.open(path, scrub=None) as db:
        db.load(account, pa.table({"id": ids(keys, np.arange(records))}))
        db.run([])


def write(path: Path, keys: str, records: int, batch: int, pause: float, seconds: float) -> None:
    """In a process of its own: a line for each batch, when it was durable, and how long it took."""
    app, _, transfer = bank(keys)
    rng = np.random.default_rng(1)
    every = ids(keys, np.arange(records))
    with app.open(path, scrub=None, snapshot_every=50) as db:
        until = time.time() + seconds
        ts = 0
        while time.time() < until:
            src, dst = (every.take(pa.array(rng.integers(0, records, batch))) for _ in range(2))
            amount = pa.array(np.ones(batch, np.int64))
            events = pa.table({"ts": np.arange(ts, ts + batch), "src": src, "dst": dst, "amount": amount})
            ts += batch
            begun = time.time()
            db.run({transfer: events})
            sys.stdout.write(f"{db.version} {begun} {time.time()}\n")
            sys.stdout.flush()
            time.sleep(pause)


def rate(work: Callable[[], int], seconds: float) -> dict[str, float]:
    done, begun, cpu = 0, time.perf_counter(), time.thread_time()
    while time.perf_counter() - begun < seconds:
        done += work()
    wall, cpu = time.perf_counter() - begun, time.thread_time() - cpu
    return {"per_s": round(done / wall), "per_cpu_s": round(done / cpu)}


def gets(reader: ps.Reader, keys: str, records: int, seconds: float) -> dict[str, Any]:
    rng = random.Random(2)
    every = ids(keys, np.array([rng.randrange(records) for _ in range(100_000)])).to_pylist()
    arrow = pa.array(every[:10_000])

    def one() -> int:
        get = reader.get
        for key in every[:20_000]:
            get("Account", key)
        return 20_000

    def many() -> int:
        return len(reader.get_many("Account", every[:1000]))

    def bulk() -> int:
        return len(reader.get_arrow("Account", arrow)[1])

    def pinned() -> int:
        for key in every[:5_000]:
            with reader.cut() as cut:
                cut.get("Account", key)
        return 5_000

    for warm in (one, many, bulk, pinned):
        warm()
    works = {"get": one, "get_many_1000": many, "get_arrow_10000": bulk, "cut_and_get": pinned}
    return {name: rate(work, seconds) for name, work in works.items()}


def times_of_gets(reader: ps.Reader, keys: str, records: int, seconds: float) -> dict[str, float]:
    """Of single gets, a few thousand a second, so that the reader is not what keeps the machine busy."""
    rng, found = random.Random(3), []
    every = ids(keys, np.array([rng.randrange(records) for _ in range(10_000)])).to_pylist()
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        key = rng.choice(every)
        begun = time.perf_counter()
        reader.get("Account", key)
        found.append((time.perf_counter() - begun) * 1e3)
        time.sleep(0.0002)
    return percentiles(found)


def percentiles(found: list[float]) -> dict[str, float]:
    if not found:
        return {}
    at = {"p50": 50, "p99": 99, "p99_9": 99.9, "max": 100}
    return {name: round(float(np.percentile(found, p)), 3) for name, p in at.items()} | {"count": len(found)}


class Lags(threading.Thread):
    """When the reader has come to each version."""

    def __init__(self, reader: ps.Reader) -> None:
        super().__init__(daemon=True)
        self.reader, self.reached, self.ends = reader, {}, False

    def run(self) -> None:
        version = self.reader.version
        while not self.ends:
            try:
                now = self.reader.wait(version + 1, timeout=0.5)
            except ps.NotYetError:
                continue
            at = time.time()
            for passed in range(version + 1, now + 1):
                self.reached[passed] = at
            version = now


def measure(keys: str, options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state"
        fill(path, keys, options.records)
        app, *_ = bank(keys)
        app.open(path, scrub=None).close()  # compiled
        begun = time.perf_counter()
        app.open(path, scrub=None).close()
        opened = {"database_s": round(time.perf_counter() - begun, 3)}
        ps.reader(path).close()  # likewise
        begun = time.perf_counter()
        reader = ps.reader(path)
        opened["reader_s"] = round(time.perf_counter() - begun, 3)
        found: dict[str, Any] = {"keys": keys, "records": options.records, "open": opened}
        found["alone"] = gets(reader, keys, options.records, options.seconds / 4)
        stream = [path, keys, options.records, options.batch, options.pause, 3 * options.seconds]
        command = [sys.executable, "-m", "benchmarks.serve.reader", "--write", *map(str, stream)]
        writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        writer.stdout.readline()  # it runs
        found["beside"] = gets(reader, keys, options.records, options.seconds / 4)
        lags = Lags(reader)
        lags.start()
        found["get_ms_beside"] = times_of_gets(reader, keys, options.records, options.seconds)
        lags.ends = True
        lags.join()
        out, _ = writer.communicate()
        lines = [line.split() for line in out.splitlines()]
        durable = {int(version): float(end) for version, _, end in lines}
        behind = [(at - durable[v]) * 1e3 for v, at in lags.reached.items() if v in durable]
        found["behind_ms"] = percentiles(behind)
        found["batch_ms"] = percentiles([(float(end) - float(start)) * 1e3 for _, start, end in lines])
        reader.close()
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--keys", choices=["int", "str"], action="append")
    parser.add_argument("--batch", type=int, default=20_000)
    parser.add_argument("--pause", type=float, default=0.1)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write", nargs=6, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        path, keys, records, batch, pause, seconds = options.write
        write(Path(path), keys, int(records), int(batch), float(pause), float(seconds))
        return
    found = [measure(keys, options) for keys in options.keys or ["int", "str"]]
    text = json.dumps(found, indent=1)
    sys.stdout.write(text + "\n")
    if options.json:
        options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
