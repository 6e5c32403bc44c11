"""python -m benchmarks.flow COMMAND"""

from __future__ import annotations

import argparse
import importlib
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.schedulers.measure import machine, write_json

# Where each is, and what it is.
EXPERIMENTS = {
    "leaderboard": ("table1.table1", "the talent show: votes a second, next to PostgreSQL and Redis"),
    "triggers": ("triggers.figure", "nested transactions, next to statements of a client"),
    "chain": ("chain.figure", "a chain of emits, next to a call a step"),
    "recovery": ("recovery.figure", "what is logged: the input, or what was changed; opening again"),
    "windows": ("windows.experiment", "add and sum, next to tables kept by hand, and SQL"),
    "hybrid": ("hybrid.experiment", "calls beside a stream"),
}


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flow", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (_, help) in EXPERIMENTS.items():
        _command(commands, name, help)
    _command(commands, "all", "each of them, one after the other")
    page = commands.add_parser("page", help="write a report of all into docs/FLOW.md")
    page.add_argument("json", type=Path, metavar="FILE", help="what `all --json FILE` wrote")
    return parser


def _command(commands: Any, name: str, help: str) -> None:
    command: argparse.ArgumentParser = commands.add_parser(name, help=help, description=help)
    command.add_argument("--quick", action="store_true", help="a few events: to see that it runs")
    command.add_argument("--json", type=Path, metavar="FILE", help="write all numbers to this file")
    where = "DIRECTORY" if name == "all" else "FILE"
    command.add_argument("--plot", type=Path, metavar=where, help="a picture of each experiment; needs matplotlib")
    command.add_argument("--install", action="store_true", help="fetch the servers that are missing (Debian, as root)")


def main(words: Sequence[str] | None = None) -> dict[str, Any]:
    chosen = arguments().parse_args(words)
    if chosen.command == "page":
        from benchmarks.flow.page import refresh

        return refresh(chosen.json)
    given = sys.argv[1:] if words is None else words
    report = {"command": shlex.join(["python", "-m", "benchmarks.flow", *given]), "machine": machine()}
    print(report["machine"])
    if chosen.install:
        from benchmarks.pipeline import servers

        servers.need_postgres(True)
        servers.need_redis(True)
    several = chosen.command == "all"
    for name in EXPERIMENTS if several else (chosen.command,):
        print(f"\n{name}: {EXPERIMENTS[name][1]}", flush=True)
        module, function = EXPERIMENTS[name][0].split(".")
        report[name] = getattr(importlib.import_module(f"benchmarks.flow.{module}"), function)(quick=chosen.quick)
        write_json(chosen.json, report)  # so far
        if chosen.plot:
            from benchmarks.flow.draw import draw

            draw(name, report, chosen.plot / f"flow-{name}.png" if several else chosen.plot)
    return report


if __name__ == "__main__":
    main()
