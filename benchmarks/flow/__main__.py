"""python -m benchmarks.flow COMMAND"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.schedulers.measure import machine, write_json


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flow", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    show = _command(commands, "leaderboard", "the talent show: votes a second, next to PostgreSQL and Redis")
    show.add_argument("--install", action="store_true", help="fetch the servers that are missing (Debian, as root)")
    _command(commands, "chain", "a chain of emits, nested or not, next to a call a step")
    return parser


def _command(commands: Any, name: str, help: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(name, help=help, description=help)
    command.add_argument("--quick", action="store_true", help="a few events: to see that it runs")
    command.add_argument("--json", type=Path, metavar="FILE", help="write all numbers to this file")
    return command


def main(words: Sequence[str] | None = None) -> dict[str, Any]:
    chosen = arguments().parse_args(words)
    given = sys.argv[1:] if words is None else words
    report = {"command": shlex.join(["python", "-m", "benchmarks.flow", *given]), "machine": machine()}
    print(report["machine"])
    if chosen.command == "leaderboard":
        from benchmarks.flow.table1 import table1

        report |= table1(quick=chosen.quick, may_install=chosen.install)
    else:
        from benchmarks.flow.chain import figure

        report |= figure((1, 3) if chosen.quick else (1, 2, 4, 7, 10), quick=chosen.quick)
    write_json(chosen.json, report)
    return report


if __name__ == "__main__":
    main()
