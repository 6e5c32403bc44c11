"""python -m benchmarks.schedulers COMMAND"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.schedulers.measure import write_json
from penstock.schedule.policy import cores


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.schedulers", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    regret = _command(commands, "regret", "adaptive against every fixed policy, over a grid and over time")
    regret.add_argument("--threads", type=int, default=cores(), help="threads of each policy; default all cores")
    regret.add_argument("--only", default="", metavar="TEXT", help="only points whose description holds this text")
    part = regret.add_mutually_exclusive_group()
    part.add_argument("--points", type=_slice, metavar="A:B", help="only these of the points, and not the phases")
    part.add_argument("--phases", action="store_true", help="only the phases, and not the points")
    scaling = _command(commands, "scaling", "Streaming Ledger on 1, 2, 4, … cores, against the bound")
    scaling.add_argument("--cores", type=_numbers, default=_powers(cores()), metavar="N,N,…", help="default 1, 2, 4, …")
    scaling.add_argument("--repeat", type=int, default=2, help="runs of each policy that count; default %(default)s")
    latency = _command(commands, "latency", "batches of 500 events: percentiles of db.run")
    latency.add_argument("--threads", type=int, default=cores(), help="threads of each policy; default all cores")
    figures = _command(commands, "figures", "the papers' figures: pictures, and figures.json with all numbers")
    figures.add_argument("--threads", type=int, default=cores(), help="threads of each policy; default all cores")
    figures.add_argument("--out", type=Path, default=Path("bench-paper"), metavar="DIR", help="default %(default)s")
    figures.add_argument("--only", nargs="*", default=(), metavar="NAME", help="these figures; default all")
    return parser


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def _slice(text: str) -> slice:
    """A:B as of a list; either may be left out."""
    start, _, stop = text.partition(":")
    return slice(int(start) if start else None, int(stop) if stop else None)


def _powers(most: int) -> list[int]:
    """1, 2, 4, … and the most of all."""
    return sorted({most, *(1 << k for k in range(most.bit_length()))})


def _command(commands: Any, name: str, help: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(name, help=help, description=help)
    command.add_argument("--quick", action="store_true", help="a few small batches: to see that it runs")
    command.add_argument("--json", type=Path, metavar="FILE", help="write all numbers to this file")
    return command


def main(words: Sequence[str] | None = None) -> dict[str, Any]:
    chosen = arguments().parse_args(words)
    report = run(chosen)
    write_json(chosen.json, report)
    return report


def run(chosen: argparse.Namespace) -> dict[str, Any]:
    """A command imports what it needs when it runs."""
    if chosen.command == "scaling":
        from benchmarks.schedulers.scaling import scaling

        return scaling(chosen.cores, quick=chosen.quick, repeat=chosen.repeat)
    if chosen.command == "latency":
        from benchmarks.schedulers.latency import latency

        return latency(chosen.threads, quick=chosen.quick)
    if chosen.command == "figures":
        from benchmarks.schedulers.figures import figures

        return figures(chosen.out, chosen.threads, only=chosen.only, quick=chosen.quick)
    from benchmarks.schedulers.regret import regret

    return regret(chosen.threads, quick=chosen.quick, only=chosen.only, points=chosen.points, phases=chosen.phases)


if __name__ == "__main__":
    main()
