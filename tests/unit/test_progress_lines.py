"""What a long `run` says meanwhile: to whom it was given, and in `penstock run` on and off a terminal."""

import io
import threading
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import penstock as ps
from penstock.cli import run as cli
from penstock.cli.pipeline import Pipeline
from penstock.observe import progress

app = ps.App("long")


@app.table
class Sum:
    id: int = ps.key()
    total: int = 0


@app.event
class Add:
    ts: int = ps.order()
    amount: int


@app.transaction
def add(e: Add):
    Sum.get(0).total += e.amount


def test_a_function_gets_what_a_long_batch_is_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "AFTER_S", 0.001)
    monkeypatch.setattr(progress, "_EVERY_S", 0.001)
    said, enough = [], threading.Event()

    def tell(line: str) -> None:
        said.append(line)
        enough.set()

    def events() -> list[Any]:
        assert enough.wait(60)
        return [Add(ts=1, amount=2)]

    with app.open(progress=tell) as database:
        database.run(events)
    assert said[0].startswith("batch of version 1: intake, ")
    assert said[-1] == ""


def test_penstock_run_prints_it_where_no_line_can_change(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    to = io.StringIO()
    monkeypatch.setattr(cli, "Console", lambda **_: Console(file=to, width=100))
    pipeline = Pipeline(app, {}, tmp_path, tmp_path)
    monkeypatch.setattr(cli, "TOLD_EVERY_S", 0.0)
    with cli._progress(pipeline, cli.Totals(), quiet=False) as (_, at):
        at("batch of version 7: 2,000,000 events, execute, 12 s")
        monkeypatch.setattr(cli, "TOLD_EVERY_S", 1e9)
        at("batch of version 7: 2,000,000 events, execute, 13 s")
        at("")
    assert "execute, 12 s\n" in to.getvalue()
    assert "13 s" not in to.getvalue()
    with cli._progress(pipeline, cli.Totals(), quiet=True) as (_, nothing):
        assert nothing is False
