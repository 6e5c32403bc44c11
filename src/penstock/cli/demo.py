"""`penstock demo`: a bank at work, a crash, and the proof that no money is lost.

    this process     loads the accounts, starts the other one, waits for half of the batches, kills it
    the other one    runs batch after batch durably and prints each one's number once it is committed
    this process     opens the directory again, goes on where the log ends, and counts the money

A batch is made from (seed, number) alone, so both processes agree on what each one holds, and the
proof needs no engine: the money must be the opening balances plus every deposit up to that batch.
The accounts must also equal, to the cent, those of a bank in memory that never crashed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from penstock.errors import PenstockError
from penstock.workloads import bind
from penstock.workloads.bank import ACCOUNTS, OPENING, app, deposited, opening, payments

SPARE = 30  # batches that the other process has left to do when it is told to die


@dataclass(frozen=True, slots=True)
class Totals:
    """What a run of batches came to."""

    batches: int
    events: int
    committed: int
    aborted: Counter[str]
    seconds: float


def work(directory: str, seed: int, events: int, batches: int) -> None:
    """The other process: batch after batch, until it is killed; made beforehand, so that it is killed at work."""
    bank = app()
    made = [bind(bank, payments(seed, number, events)) for number in range(1, batches + 1)]
    with bank.open(directory) as db:
        for number, batch in enumerate(made, 1):
            db.run(batch, id=number)
            print(number, flush=True)


def run_demo(*, batches: int, batch: int, seed: int) -> None:
    console = Console()
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as directory:
        path = Path(directory) / "bank"
        bank = app()
        account = next(iter(bind(bank, {"Account": opening()})))
        console.print(f"[bold]A bank of {ACCOUNTS} accounts with {OPENING} each[/]: {path}")
        with bank.open(path) as db:
            db.load(account, opening())
        acknowledged = _crash(path, batches // 2, seed, batch)
        console.print(f"Batch {acknowledged} was acknowledged; then the process was [red]killed[/] (SIGKILL) at work.")
        with bank.open(path) as db:
            survived = db.version
            console.print(f"Opened again: {survived} batches are there; going on with batch {survived + 1}.")
            if survived < acknowledged:
                raise PenstockError(f"batch {acknowledged} was acknowledged, but only {survived} batches are there")
            last = max(batches, survived + 1)
            totals = _go_on(bank, db, range(survived + 1, last + 1), seed, batch)
            _prove(console, bank, db, account, last, seed, batch)
            _report(console, bank, db, account, totals)


def _crash(path: Path, after: int, seed: int, events: int) -> int:
    """Run the other process, and kill it once it has acknowledged batch `after` and is in a later one."""
    command = [sys.executable, "-m", "penstock.cli.demo", str(path), str(seed), str(events), str(after + SPARE)]
    acknowledged = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stderr is not None
        for line in other.stdout:
            acknowledged = int(line)
            if acknowledged >= after:
                break
        other.kill()
        said = other.stderr.read().strip()
    if acknowledged < after:
        raise PenstockError(f"the demo's second process ended early: {(said.splitlines() or ['no message'])[-1]}")
    return acknowledged


def _go_on(bank: Any, db: Any, numbers: range, seed: int, events: int) -> Totals:
    committed, aborted, seconds = 0, Counter[str](), 0.0
    for number in numbers:
        made = bind(bank, payments(seed, number, events))
        begun = time.perf_counter()
        db.run(made, id=number)
        seconds += time.perf_counter() - begun
        committed += db.last_batch.committed
        aborted.update(db.last_batch.aborted)
    return Totals(len(numbers), len(numbers) * events, committed, aborted, seconds)


def _prove(console: Console, bank: Any, db: Any, account: Any, last: int, seed: int, events: int) -> None:
    found = db.sql("select sum(balance) as money from account").to_pylist()[0]["money"]
    expected = ACCOUNTS * OPENING + sum(deposited(seed, n, events) for n in range(1, last + 1))
    with bank.open() as never_crashed:
        never_crashed.load(account, opening())
        for number in range(1, last + 1):
            never_crashed.run(bind(bank, payments(seed, number, events)))
        same = never_crashed.table(account).sort_by("id").equals(db.table(account).sort_by("id"))
    console.print(f"Money in the bank, by SQL:            {found:>14,}")
    console.print(f"Opening balances and all deposits:    {expected:>14,}")
    if found != expected or not same:
        raise PenstockError("the bank is not what its events make of it: this is a bug in Penstock")
    console.print(f"[green]All the money is there[/], and all {ACCOUNTS} accounts equal a bank that never crashed.")


def _report(console: Console, bank: Any, db: Any, account: Any, totals: Totals) -> None:
    table = Table(title="After the crash", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("batches", f"{totals.batches:,}")
    table.add_row("events", f"{totals.events:,}")
    table.add_row("committed", f"{totals.committed:,}")
    for reason, count in totals.aborted.most_common():
        table.add_row(f"aborted: {reason}", f"{count:,}")
    table.add_row("events/s, durable", f"{totals.events / totals.seconds:,.0f}")
    console.print(table)
    richest = db.sql("select id, balance from account order by balance desc, id limit 5")
    console.print(as_rich(richest, "Top accounts"))
    first = richest.to_pylist()[0]["id"]
    history = db.history(account, first)
    console.print(as_rich(history.slice(max(0, history.num_rows - 8)), f"Newest changes of {first}"))
    console.print("[bold]The plan of transfer[/]")
    plan = next(part for part in bank.explain().split("\n\n") if part.startswith("transaction transfer"))
    console.print(plan, markup=False, highlight=False, soft_wrap=True)


def as_rich(rows: pa.Table, title: str) -> Table:
    table = Table(title=title, title_justify="left")
    for field in rows.schema:
        table.add_column(field.name, justify="left" if pa.types.is_string(field.type) else "right")
    for row in rows.to_pylist():
        table.add_row(*(str(value) for value in row.values()))
    return table


if __name__ == "__main__":
    work(sys.argv[1], *map(int, sys.argv[2:]))
