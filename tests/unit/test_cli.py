"""The command line: what it prints, and how it fails."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from penstock._version import __version__
from penstock.cli.commands import app

TINY = ["--accounts", "50", "--batch", "200", "--batches", "2", "--memory-events", "5000", "--json"]


def penstock(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(words))
    return result.exit_code, result.stdout, result.stderr


def test_version() -> None:
    assert penstock("--version") == (0, f"penstock {__version__}\n", "")


@pytest.mark.parametrize("command", ["bench", "demo"])
def test_every_command_has_help(command: str) -> None:
    code, out, _ = penstock(command, "--help")
    assert code == 0
    assert "Usage: " in out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["bench", "nothing"], "there is no workload 'nothing'; choose one of sl, ob, gs, tp, smallbank"),
        (["bench", "sl", "--policy", "lucky"], "there is no policy 'lucky'"),
        (["bench", "gs", "--keys", "str"], "workload 'gs' has keys int, not 'str'"),
    ],
)
def test_an_error_is_one_line_and_exit_code_1(words: list[str], says: str) -> None:
    code, out, err = penstock(*words)
    assert (code, out) == (1, "")
    assert says in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize("workload", ["sl", "gs"])
def test_bench_prints_one_json_object(workload: str) -> None:
    code, out, err = penstock("bench", workload, *TINY)
    assert code == 0, err
    report = json.loads(out)
    assert (report["workload"], report["keys"], report["batch"]) == (workload, "int", 200)
    assert set(report["events_per_s"]) == {"kernel", "memory", "durable"}
    assert set(report["compile_s"]) == {"cold", "warm"}
    assert set(report["latency_ms"]) == {"p50", "p99"}
    assert {"policy", "threads", "bytes_per_event", "machine", "command", "durability"} <= set(report)
    assert ("ratio" in report) == (workload == "sl")


def test_demo_proves_that_the_money_is_there() -> None:
    code, out, err = penstock("demo", "--batches", "6", "--batch", "300")
    assert code == 0, err
    assert "All the money is there" in out
