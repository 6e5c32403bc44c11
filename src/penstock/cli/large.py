"""`penstock bench --records N`: what a large table costs while it is written, looked into, saved and opened.

    load     N records of an int or str key and two int columns, in a directory of their own; closed again
    opening  seconds of `app.open`, in a new process: from the log of the load, and at the end from snapshot and log
    batch    ms of a batch of deposits to accounts anywhere, each read and written; median and slowest, while snapshots
             are made whenever they are due and a thread asks SQL for sums, a pause after each answer
    bytes    of memory a record, resident, beyond those of the same process with an empty table: once opened, and at the
             end, when snapshots and SQL have left behind what they keep

Every answer of SQL is checked: deposits are all alike, so that sums follow from the version.

    python -m penstock.cli.large STEP JOB DIRECTORY     a step, in a process of its own; one JSON object
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table as Printed

import penstock as ps
from penstock.cli.measure import filesystem, machine
from penstock.cli.probe import give_back_free_memory, resident
from penstock.errors import PenstockError
from penstock.workloads import large

# Of a thread that asks one query after the other, as a page that is watched does.
SQL_PAUSE_S = 1.0
# Records that are loaded at a time, so that making them needs little memory itself.
_LOADED = 1_000_000
_QUERY = "select sum(balance) as balance, sum(visits) as visits, count(*) as records from account"


@dataclass(frozen=True, slots=True)
class LargeJob:
    records: int
    string_keys: bool
    batch: int
    batches: int

    @property
    def command(self) -> str:
        keys = " --string-keys" if self.string_keys else ""
        return f"penstock bench --records {self.records}{keys} --batch {self.batch} --batches {self.batches}"

    def app(self) -> ps.App:
        return large.app(string_keys=self.string_keys)

    def deposits(self, number: int) -> pa.Table:
        return large.deposits(number, self.batch, self.records, string_keys=self.string_keys)


# -- steps, each in a process of its own --------------------------------------------------------


def load(job: LargeJob, path: Path) -> dict[str, Any]:
    begun = time.perf_counter()
    with job.app().open(path) as db:
        for first in range(0, job.records, _LOADED):
            stop = min(first + _LOADED, job.records)
            db.load("Account", large.accounts(first, stop, string_keys=job.string_keys))
    return {"load_s": time.perf_counter() - begun}


def opening(job: LargeJob, path: Path) -> dict[str, Any]:
    app, before = _ready(job)
    begun = time.perf_counter()
    with app.open(path) as db:
        opened = time.perf_counter() - begun
        give_back_free_memory()
        return {"opening_s": opened, "bytes_a_record": (resident() - before) / job.records, "version": db.version}


def batches(job: LargeJob, path: Path) -> dict[str, Any]:
    app, before = _ready(job)
    begun = time.perf_counter()
    with app.open(path) as db:
        opened = time.perf_counter() - begun
        give_back_free_memory()
        held = resident() - before
        seconds, watching = [], _Watcher(job, db)
        for number in range(job.batches + 1):
            events = job.deposits(number)
            begun = time.perf_counter()
            db.run({"Deposit": events})
            seconds.append(time.perf_counter() - begun)
            del events
            if number == 0:
                watching.start()
        queries = watching.stop()
        give_back_free_memory()
        held_then = resident() - before
    ms = 1000 * np.array(seconds[1:])
    return {
        "opening_s": opened,
        "bytes_a_record": held / job.records,
        "bytes_a_record_then": held_then / job.records,
        "batch_ms": {
            "median": float(np.median(ms)),
            "p99": float(np.percentile(ms, 99)),
            "slowest": float(ms.max()),
            "five_slowest": [[int(k), float(ms[k])] for k in np.argsort(-ms)[:5]],
        },
        "sql_s": {"queries": len(queries), "median": float(np.median(queries)), "slowest": max(queries)},
        "snapshots": sorted(found.name for found in (path / "snapshots").iterdir()),
    }


class _Watcher:
    """Asks for sums, one query after the other, and checks what it is told."""

    def __init__(self, job: LargeJob, db: Any) -> None:
        self._job, self._db = job, db
        self._seconds, self._wrong = list[float](), list[str]()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask, name="penstock-bench-sql")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> list[float]:
        self._stop.set()
        self._thread.join()
        if self._wrong:
            raise PenstockError(f"SQL gave what no version holds: {self._wrong[0]}")
        return self._seconds

    def _ask(self) -> None:
        while not self._wrong:
            begun = time.perf_counter()
            try:
                view = self._db.view()
                found = view.sql(_QUERY).to_pylist()[0]
            except PenstockError as error:
                self._wrong.append(str(error))
                return
            self._seconds.append(time.perf_counter() - begun)
            all_of_them = view.version * self._job.batch
            if found != {"balance": all_of_them, "visits": all_of_them, "records": self._job.records}:
                self._wrong.append(f"version {view.version}: {found}")
            if self._stop.wait(SQL_PAUSE_S):
                return


def _ready(job: LargeJob) -> tuple[ps.App, int]:
    """The app, and the memory of a process that has run all of it once, over an empty table."""
    small = LargeJob(2, job.string_keys, job.batch, 1)
    with small.app().open() as db:
        db.load("Account", large.accounts(0, 2, string_keys=job.string_keys))
        db.run({"Deposit": small.deposits(0)})
        db.sql(_QUERY)
    give_back_free_memory()
    return job.app(), resident()


_STEPS: dict[str, Callable[[LargeJob, Path], dict[str, Any]]] = {
    "load": load,
    "batches": batches,
    "opening": opening,
}


# -- the report ---------------------------------------------------------------------------------


def run_large(job: LargeJob, *, state: Path | None, as_json: bool) -> None:
    report = measured(job, state)
    if as_json:
        print(json.dumps(report))
    else:
        Console().print(as_table(job, report))


def measured(job: LargeJob, state: Path | None) -> dict[str, Any]:
    if state is not None:
        state.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=state) as directory:
        steps = {name: _elsewhere(name, job, Path(directory) / "large") for name in _STEPS}
        on = filesystem(Path(directory))
    loaded, ran, opened = steps["load"], steps["batches"], steps["opening"]
    return {
        "records": job.records,
        "keys": "str" if job.string_keys else "int",
        "batch": job.batch,
        "batches": job.batches,
        "load_s": loaded["load_s"],
        "opening_s": {"from_the_load": ran["opening_s"], "then": opened["opening_s"]},
        "bytes_a_record": {"opened": ran["bytes_a_record"], "then": ran["bytes_a_record_then"]},
        "batch_ms": ran["batch_ms"],
        "sql_s": ran["sql_s"],
        "snapshots": ran["snapshots"],
        "durability": f"one log write and one fsync a batch, on {on}",
        "machine": machine(),
        "command": job.command,
    }


def as_table(job: LargeJob, report: dict[str, Any]) -> Printed:
    title = f"{job.records:,} records with {report['keys']} keys, {job.batches} batches of {job.batch:,} events"
    caption = f"{report['machine']}\n{report['command']}"
    table = Printed(title=title, caption=caption, title_justify="left", caption_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    batch, held, opened, sql = (report[name] for name in ("batch_ms", "bytes_a_record", "opening_s", "sql_s"))
    table.add_row("batch, median ms", f"{batch['median']:.1f}")
    table.add_row("batch, slowest ms", f"{batch['slowest']:.1f}")
    table.add_row("slowest / median", f"{batch['slowest'] / batch['median']:.2f}")
    table.add_row("memory once opened, bytes a record", f"{held['opened']:.0f}")
    table.add_row("memory then, with snapshots and SQL, bytes a record", f"{held['then']:.0f}")
    table.add_row("opening what was loaded, s", f"{opened['from_the_load']:.2f}")
    table.add_row("opening it then, s", f"{opened['then']:.2f}")
    table.add_row(f"SQL, {sql['queries']} queries, median s", f"{sql['median']:.3f}")
    table.add_row("load, s", f"{report['load_s']:.1f}")
    table.add_row("durability", report["durability"])
    return table


def _elsewhere(step: str, job: LargeJob, path: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "penstock.cli.large", step, json.dumps(asdict(job)), str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise PenstockError(f"measuring {step} in another process failed: {last}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    print(json.dumps(_STEPS[sys.argv[1]](LargeJob(**json.loads(sys.argv[2])), Path(sys.argv[3]))))
