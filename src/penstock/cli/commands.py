"""`penstock`: the commands and their options.

    demo     a bank at work: batches, a crash, a recovery, and the proof that no money is lost
    bench    one workload, measured

A command imports what it needs when it runs, so that --help is quick. What goes wrong on purpose
(PenstockError) is one red line on stderr and exit code 1; a traceback is a bug.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from penstock.errors import PenstockError

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
    workload: Annotated[str, typer.Argument(help="Which job to measure: sl, ob, gs, tp or smallbank.")],
    policy: Annotated[str, typer.Option(help="How batches are scheduled: serial or adaptive.")] = "adaptive",
    keys: Annotated[str, typer.Option(help="The type of the keys: int or str, where the workload has both.")] = "int",
    accounts: Annotated[
        int | None, typer.Option(min=2, help="Records in the main table; each workload has its own default.")
    ] = None,
    theta: Annotated[
        float | None,
        typer.Option(min=0.0, help="Zipf skew of the keys; 0 is uniform. Each workload has its own default."),
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Events in one batch.")] = 100_000,
    batches: Annotated[int, typer.Option(min=1, help="Batches to measure, after one that warms up.")] = 20,
    memory_events: Annotated[
        int, typer.Option(min=1, help="Events of the one batch whose working memory is measured.")
    ] = 1_000_000,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    state: Annotated[
        Path | None,
        typer.Option(help="Directory for the durable runs, on the disk to measure; default a temporary one."),
    ] = None,
) -> None:
    """Measure one workload: the kernel alone, whole batches in memory, and durable batches."""
    from penstock.cli.bench import run_bench
    from penstock.cli.job import Job

    job = Job.of(workload, policy, keys, accounts, theta, batch, batches, memory_events)
    run_bench(job, state=state, as_json=json)


@app.command()
@one_line_errors
def demo(
    batches: Annotated[int, typer.Option(min=4, help="Batches to run; the crash comes in the middle.")] = 12,
    batch: Annotated[int, typer.Option(min=10, help="Events in one batch.")] = 2_000,
    seed: Annotated[int, typer.Option(help="Seed of the random payments.")] = 7,
) -> None:
    """Run a small bank durably, kill it in the middle, reopen it and show that no money is lost."""
    from penstock.cli.demo import run_demo

    run_demo(batches=batches, batch=batch, seed=seed)


if __name__ == "__main__":
    main()
