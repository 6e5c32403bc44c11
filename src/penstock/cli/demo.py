"""`penstock demo`: payments through a bank on local Spark, a kill in the middle, and the proof that no money is lost.

    this process     writes the stream as Parquet files, loads the accounts, starts the other one
    the other one    bank.start over the files, a batch a file; prints a JSON line for each batch; is killed half-way
    a third one      the same command again: it goes on where the log ends
    this process     reads the state and the outcomes, and compares them with banks that never saw Spark or a crash

The proof asks five things: has every event exactly one outcome; is all the money there, by SQL; did the books balance
after each batch; does everything equal a bank in memory that ran the same events in one go; and do the first batches
equal the reference, which is the plain Python functions, one event after another.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from penstock.cli.payments import Payments, payments
from penstock.cli.picture import Balance, Picture
from penstock.cli.pipeline import Pipeline
from penstock.commit import RETAIN
from penstock.errors import InputError, PenstockError
from penstock.observe import BatchReport
from penstock.publish.files import plain
from penstock.serve.http.child import Served
from penstock.serve.http.options import Options, need_extra
from penstock.serve.http.tokens import tokens_of
from penstock.spark.session import local_session, need_spark
from penstock.workloads import bind
from penstock.workloads.bank import ACCOUNTS, OPENING, app, opening

# The reference is plain Python, some 50 µs an event: it follows the first batches up to this many events.
REFERENCE_EVENTS = 60_000


def run_demo(*, batches: int, batch: int, seed: int, picture: Path, as_json: bool, serve: bool) -> None:
    """serve: open a console over its state at the end, until Ctrl-C."""
    need_spark()
    begun = time.perf_counter()
    console = Console(quiet=as_json)
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as directory:
        folder = Path(directory)
        made = payments(seed, batches, batch)
        made.write(folder / "in")
        bank = app()
        with bank.open(folder / "state") as db:
            db.load("Account", opening())
        console.print(
            f"[bold]{made.events:,} payments[/] among {ACCOUNTS} accounts, as {batches} batches of Parquet files; they "
            f"arrive out of order, and a watermark of {made.watermark:,} ms puts them in order."
        )
        reports, killed = _stream(folder, made, batches, Console(stderr=True, quiet=as_json))
        console.print(
            f"After batch {killed} the process and its Spark were [red]killed[/] (SIGKILL); "
            "the same command was started again and went on."
        )
        counts = _outcomes(folder)
        with bank.open(folder / "state") as db:
            books = _books(db, made, folder)
            _prove(console, bank, db, made, folder, books)
            console.print(_richest(db))
        drawn = Picture(reports, counts, books, killed, batch).write(picture)
        summary = _summary(reports, counts, made, killed, time.perf_counter() - begun, picture if drawn else None)
        if as_json:
            print(json.dumps(summary))
            return
        console.print(_table(summary))
        if drawn:
            console.print(f"The picture is in [bold]{picture}[/].", soft_wrap=True)
        else:
            console.print("No picture: matplotlib is not installed; pip install 'penstock\\[plot]'")
        if serve:
            _console(console, folder / "state")


def _console(console: Console, state: Path) -> None:
    """A console over what the demo leaves, in a process of its own, until Ctrl-C."""
    try:
        need_extra()
    except InputError as error:
        console.print(f"No console: {error}", markup=False, soft_wrap=True)
        return
    served = Served(Options(state, listen="127.0.0.1:0", explain="penstock.workloads.bank:app", sql=True))
    try:
        url = f"{served.url}/?token={tokens_of(state).read.decode()}"
        console.print(
            f"Look at all of it in a browser, until Ctrl-C: {url}", soft_wrap=True, markup=False, highlight=False
        )
        while served.alive:
            time.sleep(0.2)
        raise PenstockError(f"the console of the demo has gone: {served.error}")
    except KeyboardInterrupt:
        console.print()
    finally:
        served.stop()


# -- the stream -----------------------------------------------------------------------------


def work(folder: Path, watermark: int) -> None:
    """The other process."""

    def tell(report: BatchReport, seconds: float) -> None:
        print(json.dumps(report.to_dict() | {"wall_s": seconds}), flush=True)

    inputs = {event: str(folder / "in" / event) for event in ("Deposit", "Transfer")}
    pipeline = Pipeline(app(), inputs, folder / "state", folder / "outcomes", watermark, files_per_batch=1)
    with local_session("penstock demo", brief=True):
        pipeline.run(tell)


def _stream(folder: Path, made: Payments, batches: int, console: Console) -> tuple[list[dict[str, Any]], int]:
    """The reports of all batches, and the one after which the first process was killed."""
    reports: list[dict[str, Any]] = []
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        # What the watermark holds back at the end is a batch of its own.
        task = progress.add_task("starting Spark", total=batches + 1)
        for stop_after in (batches // 2, None):
            for report in _child(folder, made.watermark, stop_after):
                reports.append(report)
                progress.update(task, completed=report["version"], description="streaming")
            if stop_after is not None:
                killed = reports[-1]["version"]
                progress.update(task, description="killed; starting Spark again")
    return reports, killed


def _child(folder: Path, watermark: int, stop_after: int | None) -> Any:
    """Run the other process, yielding its reports; with `stop_after`, kill it and its JVM after that batch."""
    command = [sys.executable, "-m", "penstock.cli.demo", str(folder), str(watermark)]
    with tempfile.TemporaryFile("w+") as said:
        other = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True, start_new_session=True)
        assert other.stdout is not None
        try:
            for text in other.stdout:
                report = json.loads(text)
                if report["version"] == stop_after:
                    os.killpg(other.pid, signal.SIGKILL)
                yield report
        except BaseException:  # such as Ctrl-C: nothing is left behind
            os.killpg(other.pid, signal.SIGKILL)
            raise
        finally:
            other.stdout.close()
            other.wait()
        said.seek(0)
        if other.returncode != (0 if stop_after is None else -signal.SIGKILL):
            lines = said.read().strip().splitlines() or ["no message"]
            raise PenstockError(f"the demo's stream ended early: {lines[-1]}")


# -- the proof ------------------------------------------------------------------------------


def _outcomes(folder: Path) -> list[dict[str, Any]]:
    """Outcomes counted by version, status and reason, from the Parquet files."""
    query = f"select version, status, reason, count(*) as events from {_files(folder)} group by all order by all"
    return _sql(query).to_pylist()


def _sql(query: str, **tables: pa.Table) -> pa.Table:
    """A query over files, and over tables by their names."""
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return connection.sql(query).to_arrow_table()


def _files(folder: Path) -> str:
    return "read_parquet('" + str(folder / "outcomes" / "*.parquet").replace("'", "''") + "')"


def _books(db: Any, made: Payments, folder: Path) -> list[Balance]:
    """After each batch that is still readable: what its accounts hold, by SQL, and what they should."""
    deposits = made.table("Deposit").select(["id", "amount"]).rename_columns(["id", "paid"])
    paid = _sql(
        f"select version, sum(paid) as paid from {_files(folder)} join deposits using (id) "
        "where status = 'committed' group by version",
        deposits=deposits,
    )
    by_version = {row["version"]: row["paid"] for row in paid.to_pylist()}
    due, books = ACCOUNTS * OPENING, []
    for version in range(1, db.version + 1):
        due += by_version.get(version, 0)
        if version > db.version - RETAIN:
            (held,) = db.sql("select sum(balance) as money from account", version).to_pylist()
            books.append(Balance(version, held["money"], due))
    return books


def _prove(console: Console, bank: Any, db: Any, made: Payments, folder: Path, books: list[Balance]) -> None:
    rows = _sql(f"select * from {_files(folder)} order by ts, id")
    claims = []
    ids = pc.count_distinct(rows.column("id")).as_py()
    claims.append((rows.num_rows == ids == made.events, f"every one of {made.events:,} events has exactly one outcome"))
    late = rows.filter(pc.equal(rows.column("status"), "late")).column("id")
    only = bool(pc.all(pc.is_in(late, value_set=made.too_late), min_count=0).as_py())
    claims.append((only, f"{len(late):,} events are late, and all of them were sent after the watermark"))
    money, expected = db.sql("select sum(balance) as money from account").to_pylist()[0]["money"], _expected(made, late)
    claims.append((money == expected, f"the money by SQL, {money:,}, is the opening balances and all deposits"))
    balanced = all(book.held == book.due for book in books)
    claims.append((balanced, f"the books balance after each of {len(books)} batches, to the cent"))
    ran = rows.filter(pc.not_equal(rows.column("status"), "late"))
    with bank.open() as memory:
        claims.append((_same(bank, memory, db, made, ran, db.version), "state and outcomes equal a bank without crash"))
    version = _followed(ran)
    first = ran.filter(pc.less_equal(ran.column("version"), version))
    same = _same(bank, bank.reference(), db, made, first, version)
    claims.append((same, f"as of batch {version} they equal the plain Python functions, run one by one"))
    for holds, claim in claims:
        console.print(f"  [green]✔[/] {claim}" if holds else f"  [red]✘ {claim}[/]")
    if not all(holds for holds, _ in claims):
        raise PenstockError("the bank is not what its events make of it: this is a bug in Penstock")


def _expected(made: Payments, late: Any) -> Decimal:
    deposits = made.table("Deposit")
    counts = pc.and_(
        pc.not_equal(deposits.column("account"), "nobody"), pc.invert(pc.is_in(deposits.column("id"), value_set=late))
    )
    return ACCOUNTS * OPENING + (pc.sum(deposits.filter(counts).column("amount")).as_py() or 0)


def _followed(ran: pa.Table) -> int:
    """The last version that the reference follows: at least one that ran something."""
    by_version = ran.group_by("version").aggregate([("id", "count")]).sort_by("version")
    total, version = 0, by_version.column("version")[0].as_py()
    for row in by_version.to_pylist():
        total += row["id_count"]
        if total > REFERENCE_EVENTS:
            break
        version = row["version"]
    return version


def _same(bank: Any, other: Any, db: Any, made: Payments, ran: pa.Table, version: int) -> bool:
    """Whether another bank, given these events in one batch, comes to the same outcomes and the same accounts."""
    ids = ran.column("id")
    batch = {}
    for event in made.files[0]:
        table = made.table(event)
        batch[event] = table.filter(pc.is_in(table.column("id"), value_set=ids))
    (account,) = bind(bank, {"Account": opening()})
    other.load(account, opening())
    out = plain(other.run(bind(bank, batch))).drop_columns("version")
    accounts = [t.sort_by("id") for t in (other.table(account), db.table("Account", version))]
    return accounts[0].equals(accounts[1]) and out.equals(ran.drop_columns("version").cast(out.schema))


# -- the report -----------------------------------------------------------------------------


def _summary(
    reports: list[dict[str, Any]],
    counts: list[dict[str, Any]],
    made: Payments,
    killed: int,
    seconds: float,
    picture: Path | None,
) -> dict[str, Any]:
    def total(status: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for row in counts:
            if row["status"] == status:
                found[str(row["reason"])] = found.get(str(row["reason"]), 0) + row["events"]
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    engine = sum(sum(r["seconds"].values()) for r in reports)
    return {
        "events": made.events,
        "batches": max(r["version"] for r in reports),
        "killed_after": killed,
        "committed": sum(total("committed").values()),
        "aborted": total("aborted"),
        "late": sum(total("late").values()),
        "held_most": max(r["held"] for r in reports),
        "events_per_s": {
            "engine": round(sum(r["events"] for r in reports) / engine),
            "spark": round(sum(r["events"] for r in reports) / sum(r["wall_s"] for r in reports)),
        },
        "seconds": round(seconds, 1),
        "picture": None if picture is None else str(picture.absolute()),
    }


def _table(summary: dict[str, Any]) -> Table:
    table = Table(title="What became of the payments", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("events", f"{summary['events']:,}")
    table.add_row("committed", f"{summary['committed']:,}")
    for reason, count in summary["aborted"].items():
        table.add_row(f"aborted: {reason}", f"{count:,}")
    table.add_row("late", f"{summary['late']:,}")
    table.add_row("held back at once, at most", f"{summary['held_most']:,}")
    table.add_row(
        "events/s, files to files: Spark and its two starts included", f"{summary['events_per_s']['spark']:,}"
    )
    table.add_row("events/s, the engine alone: order, run, log with fsync", f"{summary['events_per_s']['engine']:,}")
    table.add_row("seconds for all: making events, two starts of Spark, the proof", f"{summary['seconds']:,}")
    return table


def _richest(db: Any) -> Table:
    table = Table(title="Top accounts, by SQL", title_justify="left")
    table.add_column("id")
    table.add_column("balance", justify="right")
    for row in db.sql("select id, balance from account order by balance desc, id limit 3").to_pylist():
        table.add_row(row["id"], f"{row['balance']:,}")
    return table


if __name__ == "__main__":
    work(Path(sys.argv[1]), int(sys.argv[2]))
