"""`penstock`: the commands and their options.

    demo     the main job on local Spark: a stream, a crash, a recovery, and the proof that no money is lost
    run      an app over directories of Parquet files, on local Spark
    query    SQL over a state directory, now or as of a version
    history  every change of one record
    advance  sets back a high mark that a wild ts has set
    check    every byte of a state directory: is it sound?
    migrate  a state directory, to what its app declares by now
    serve    a state directory over HTTP: records, SQL, changes as they come
    bench    one workload, measured

A command imports what it needs when it runs, so that --help is quick. What goes wrong on purpose
(PenstockError) is one red line on stderr and exit code 1; a traceback is a bug.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from penstock.errors import InputError, PenstockError

app = typer.Typer(
    name="penstock",
    help="ACID transactions in event-time order over micro-batches.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    app(prog_name="penstock")


def one_line_errors(command: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except PenstockError as error:
            Console(stderr=True).print(f"penstock: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
            raise typer.Exit(1) from None

    return wrapped


def _version(wanted: bool) -> None:
    if wanted:
        from penstock._version import __version__

        typer.echo(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    pass


@app.command()
@one_line_errors
def bench(
    workload: Annotated[
        str | None, typer.Argument(help="Which job to measure: sl, ob, gs, tp, smallbank or transfers.")
    ] = None,
    policy: Annotated[
        str,
        typer.Option(
            help="How batches are scheduled: adaptive, serial, tstream, lal, lwm, pat, none, or ready/operation/lazy."
        ),
    ] = "adaptive",
    threads: Annotated[int, typer.Option(min=0, help="Threads of the policy; 0 is one a core.")] = 0,
    keys: Annotated[str, typer.Option(help="The type of the keys: int or str, where the workload has both.")] = "int",
    accounts: Annotated[
        int | None, typer.Option(min=2, help="Records in the main table; each workload has its own default.")
    ] = None,
    theta: Annotated[
        float | None,
        typer.Option(min=0.0, help="Zipf skew of the keys; 0 is uniform. Each workload has its own default."),
    ] = None,
    cost: Annotated[
        float | None, typer.Option(min=0.0, help="Knob: microseconds of computation in each operation.")
    ] = None,
    abort_ratio: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="Knob: share of the transactions that abort.")
    ] = None,
    length: Annotated[int | None, typer.Option(min=1, help="Knob: records of a transaction.")] = None,
    accesses: Annotated[int | None, typer.Option(min=1, help="Knob: records that one write reads.")] = None,
    read_ratio: Annotated[float | None, typer.Option(min=0.0, max=1.0, help="Knob: share of reads (gs).")] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Events in one batch; default 100,000, with knobs 10,240.")
    ] = None,
    batches: Annotated[
        int | None,
        typer.Option(min=1, help="Batches to measure, after one that warms up; default 20, with --records 500."),
    ] = None,
    memory_events: Annotated[
        int | None,
        typer.Option(
            min=1, help="Events of the batch whose working memory is measured; default 10^6, with knobs 50,000."
        ),
    ] = None,
    records: Annotated[
        int | None,
        typer.Option(min=1, help="Instead of a workload: a table of so many records, while it is saved and asked."),
    ] = None,
    string_keys: Annotated[
        bool, typer.Option("--string-keys", help="With --records: keys of 16 characters, not ints.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    state: Annotated[
        Path | None,
        typer.Option(help="Directory for the durable runs, on the disk to measure; default a temporary one."),
    ] = None,
) -> None:
    """Measure one workload: the kernel alone, whole batches in memory, and durable batches.

    With a knob, the workload is the tuned one of docs/WORKLOADS.md, whose operations cost --cost microseconds.
    With --records instead of a workload: batches, opening and memory of a large table.
    """
    if records is not None:
        from penstock.cli.job import BATCH
        from penstock.cli.large import LargeJob, run_large

        if workload is not None:
            raise InputError("--records measures a table of its own; give no workload with it")
        large = LargeJob(records, string_keys, batch or BATCH, batches or 500)
        run_large(large, state=state, as_json=json)
        return
    if workload is None:
        raise InputError("there is no workload; name one, such as 'penstock bench sl', or give --records")
    from penstock.cli.bench import run_bench
    from penstock.cli.job import Job

    job = Job.of(
        workload,
        policy=policy,
        threads=threads,
        keys=keys,
        size=accounts,
        theta=theta,
        batch=batch,
        batches=batches or 20,
        memory_events=memory_events,
        knobs={
            "cost": cost,
            "abort_ratio": abort_ratio,
            "length": length,
            "accesses": accesses,
            "read_ratio": read_ratio,
        },
    )
    run_bench(job, state=state, as_json=json)


@app.command()
@one_line_errors
def run(
    app: Annotated[str, typer.Argument(metavar="MODULE:APP", help="Where the app is declared, for example bank:bank.")],
    input: Annotated[
        list[str],
        typer.Option("--input", metavar="EVENT=PATH", help="A directory of Parquet files of this event; repeat it."),
    ],
    state: Annotated[Path, typer.Option(metavar="DIR", help="The durable directory: state, log, checkpoint.")],
    outcomes: Annotated[Path, typer.Option(metavar="DIR", help="Where outcomes are written, as Parquet files.")],
    output: Annotated[
        list[str] | None,
        typer.Option(
            "--output", metavar="EVENT=DIR", help="Where an event goes that no transaction takes, as files; repeat it."
        ),
    ] = None,
    watermark: Annotated[
        str | None,
        typer.Option(help='Hold back for event order across batches: "5 seconds", or a number if ts is an int.'),
    ] = None,
    files_per_batch: Annotated[
        int | None, typer.Option(min=1, help="Files of each input in one batch, at most; default all there are.")
    ] = None,
    on_bad: Annotated[
        str, typer.Option(help="What becomes of a row that cannot be an event: reject (an outcome says why) or fail.")
    ] = "reject",
    ahead: Annotated[
        str | None,
        typer.Option(
            help='How far a ts may lie ahead of the wall clock before it is rejected: "1 day", the default for '
            "datetimes; a number if ts is an int, of the highest before; or none."
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Keep running, and take new files as they appear.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object at the end and nothing else.")] = False,
) -> None:
    """Run an app over Parquet files on local Spark: exactly once, and again from where it stopped."""
    from penstock.cli.pipeline import Pipeline, ahead_of, app_of, inputs_of, outputs_of, watermark_of
    from penstock.cli.run import run_app
    from penstock.execute.request import checked_on_bad
    from penstock.spark.session import need_spark

    found = app_of(app)
    inputs, outputs = inputs_of(found, input), outputs_of(found, output or [])
    need_spark()
    pipeline = Pipeline(
        found,
        inputs,
        state,
        outcomes,
        watermark_of(watermark),
        files_per_batch,
        follow,
        outputs,
        on_bad=checked_on_bad(found.program, on_bad),
        ahead=ahead_of(ahead),
    )
    run_app(pipeline, as_json=json)


@app.command()
@one_line_errors
def query(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A state directory; its app is not needed.")],
    sql: Annotated[
        str, typer.Argument(metavar="SQL", help="One DuckDB query over its tables, by their names; it can only read.")
    ],
    version: Annotated[int | None, typer.Option(min=0, help="As of this version; default the newest.")] = None,
    allow_files: Annotated[
        bool,
        typer.Option(
            "--allow-files",
            help="Let DuckDB do all it can: read and write files (COPY), several statements. Only for SQL of your own.",
        ),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Ask a state directory, also while it is written to."""
    from penstock.cli import inspect

    inspect.query(directory, sql, version=version, allow_files=allow_files, as_json=json)


@app.command()
@one_line_errors
def history(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A state directory; its app is not needed.")],
    table: Annotated[str, typer.Argument(metavar="TABLE", help="One of its tables.")],
    key: Annotated[list[str], typer.Argument(metavar="KEY...", help="The record's key, part by part.")],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Show every retained change of one record, oldest first."""
    from penstock.cli import inspect

    inspect.history(directory, table, key, as_json=json)


@app.command()
@one_line_errors
def trace(
    state: Annotated[Path, typer.Argument(metavar="STATE", help="A state directory; its app is not needed.")],
    event: Annotated[
        str, typer.Argument(metavar="EVENT_ID", help="The id of an event, or VERSION/ROW of one without.")
    ],
    app: Annotated[
        str | None,
        typer.Option(metavar="MODULE:APP", help="Its app: also what the event read and wrote, where events are kept."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Show one event: what became of it, what it caused, and what changed; also while a writer is at work."""
    from penstock.cli.trace import trace as run_trace

    run_trace(state, event, app=app, as_json=json)


@app.command()
@one_line_errors
def top(
    state: Annotated[Path, typer.Argument(metavar="STATE", help="A state directory; its app is not needed.")],
    every: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="How often it looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look once, and end.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object, once, and nothing else.")] = False,
) -> None:
    """Watch a state directory: rates, aborts, the clock, and the last batches with the time of each stage."""
    from penstock.cli.top import top as run_top

    run_top(state, every=every, once=once or json, as_json=json)


@app.command(hidden=True)
@one_line_errors
def again(state: Path, app: str) -> None:
    """Answer questions about batches run again, for a server: lines of JSON in and out."""
    from penstock.cli.pipeline import app_of
    from penstock.inspect.worker import work
    from penstock.serve.http.values import dumps, plain

    work(state.absolute(), lambda: app_of(app).plan, lambda value: dumps(plain(value)))


@app.command()
@one_line_errors
def advance(
    state: Annotated[Path, typer.Argument(metavar="STATE", help="A state directory; its app is not needed.")],
    to: Annotated[
        str, typer.Option(metavar="TS", help="Where to: 2026-03-01T12:00:00 (UTC unless it says otherwise), or an int.")
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Do it, and do not ask.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else; asks nothing.")] = False,
) -> None:
    """Set back the high mark of a stream to which everything is late, since one event had a ts far in the future.

    Shows what it would do, and asks. Refused while a writer has the directory. It is a version of its own.
    """
    from penstock.cli.advance import advance as run_advance

    run_advance(state, to, yes=yes, as_json=json)


@app.command()
@one_line_errors
def check(
    state: Annotated[Path, typer.Argument(metavar="STATE", help="A state directory; its app is not needed.")],
    outcomes: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The directory of its outcomes, to be checked as well.")
    ] = None,
    app: Annotated[
        str | None,
        typer.Option(metavar="MODULE:APP", help="Its app: list the records that break a check, which may be new."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Read every byte of a state directory, also while it is written to: what is sound, what is not, and what to do.

    The exit code is 1 where something is damaged, and 0 otherwise.
    """
    from penstock.cli.check import run_check

    if not run_check(state, outcomes=outcomes, app=app, as_json=json):
        raise typer.Exit(1)


@app.command()
@one_line_errors
def migrate(
    state: Annotated[Path, typer.Argument(metavar="STATE", help="A state directory that nobody writes to.")],
    app: Annotated[str, typer.Argument(metavar="MODULE:APP", help="Where the app is declared, as it is now.")],
    rename: Annotated[
        list[str] | None,
        typer.Option("--rename", metavar="TABLE.OLD=NEW", help="A column that has another name now; repeat it."),
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option("--drop", metavar="TABLE.COLUMN", help="A column that goes with its values; repeat it."),
    ] = None,
    drop_table: Annotated[
        list[str] | None,
        typer.Option("--drop-table", metavar="TABLE", help="A table that goes with its records; repeat it."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it without asking.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
) -> None:
    """Bring a state directory to what its app declares now: all of it, or nothing.

    What loses nothing is done by opening it; renaming and dropping need to be said here.
    """
    from penstock.cli.migrate import run_migrate

    run_migrate(state, app, rename or [], drop or [], drop_table or [], yes=yes, dry_run=dry_run)


@app.command()
@one_line_errors
def serve(
    state: Annotated[Path, typer.Argument(metavar="STATE", help="A state directory; its app is not needed.")],
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where; port 0 takes one that is free.")
    ] = "127.0.0.1:7400",
    app: Annotated[
        str | None,
        typer.Option(metavar="MODULE:APP", help="Be its writer too, and take calls: refused where another one runs."),
    ] = None,
    read_token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The read token; else one is made in the state directory.")
    ] = None,
    write_token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The write token; else one is made in the state directory.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="A certificate, in PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its key, in PEM.")] = None,
    sql: Annotated[bool, typer.Option("--sql", help="Take SQL that reads, in a process of its own.")] = False,
    flight: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Arrow Flight too, for bulk, behind the same tokens.")
    ] = None,
    no_token: Annotated[
        bool, typer.Option("--no-token", help="Let every process of this machine ask; only for 127.0.0.1.")
    ] = False,
    explain: Annotated[
        str | None,
        typer.Option(metavar="MODULE:APP", help="Know its transactions, to show what a batch did; writes nothing."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object once it serves.")] = False,
    with_parent: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Serve a state directory over HTTP, also while it is written to: a replica that follows its log.

    Listens on this machine only, unless it is given a certificate. docs/SERVING.md has the routes.
    """
    from penstock.cli import serve as serving
    from penstock.serve.http.options import Options

    options = Options(
        state, listen, read_token_file, write_token_file, tls_cert, tls_key, sql, no_token, explain, flight
    )
    if app is None:
        serving.serve(options, parent=with_parent, as_json=json)
    else:
        serving.write_and_serve(app, options, as_json=json)


@app.command()
@one_line_errors
def demo(
    batches: Annotated[int, typer.Option(min=4, help="Batches to run; the crash comes in the middle.")] = 20,
    batch: Annotated[int, typer.Option(min=100, help="Events in one batch.")] = 20_000,
    seed: Annotated[int, typer.Option(help="Seed of the random payments.")] = 7,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where the picture goes.")] = Path("demo.png"),
    serve: Annotated[
        bool, typer.Option("--serve/--no-serve", help="In a terminal, end with a console over it, until Ctrl-C.")
    ] = True,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object at the end and nothing else.")] = False,
) -> None:
    """Stream payments through a bank on local Spark, kill it in the middle, and show that no money is lost."""
    from penstock.cli.demo import run_demo

    run_demo(batches=batches, batch=batch, seed=seed, picture=out, as_json=json, serve=serve and sys.stdout.isatty())


if __name__ == "__main__":
    main()
