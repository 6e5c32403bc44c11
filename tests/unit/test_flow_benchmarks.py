"""The benchmarks of flows run, at a tiny size: that all arms give the same is checked inside them. Nothing here looks
at times."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")  # the servers are those of the pipelines
sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.flow import page, places, triggers, windows
from benchmarks.flow.__main__ import EXPERIMENTS, arguments, main
from benchmarks.flow.payments import rows_of, sums_by_rows, sums_by_time
from benchmarks.pipeline import servers
from benchmarks.pipeline.peers import CannotRun


def report_of(tmp_path: Path, name: str) -> dict[str, Any]:
    file = tmp_path / "report.json"
    main([name, "--quick", "--json", str(file)])
    report: dict[str, Any] = json.loads(file.read_text())
    assert {"command", "machine", name} <= set(report)
    return report


@pytest.fixture
def without_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise CannotRun("PostgreSQL is not installed")

    monkeypatch.setattr(servers, "need_postgres", lambda may_install: missing())


@pytest.mark.usefixtures("without_servers")
def test_triggers(tmp_path: Path) -> None:
    found = report_of(tmp_path, "triggers")["triggers"]
    assert {point["arm"] for point in found["points"]} == {"nested, in a batch", "nested, a call", "a call a step"}
    assert found["note"] in ("PostgreSQL is not installed", "psycopg is not installed")  # its client is asked for first


def test_chain(tmp_path: Path) -> None:
    found = report_of(tmp_path, "chain")["chain"]
    assert [point["steps"] for point in found["points"]] == [1, 1, 1, 3, 3, 3]


def test_recovery(tmp_path: Path) -> None:
    found = report_of(tmp_path, "recovery")["recovery"]
    assert [(point["steps"], point["log"]) for point in found["points"][:3]] == [
        (1, "input"),
        (1, "changes"),
        (3, "input"),
    ]
    assert all(point["per_s"] > 0 and point["opened_s"] > 0 for point in found["points"])


@pytest.mark.usefixtures("without_servers")
def test_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.flow.payments.SPAN", 5_000)
    monkeypatch.setattr(windows, "SPAN", 5_000)
    by_rows = windows._point("rows", 100, 300, 100, slide=10)
    by_time = windows._point("time", 50, 300, 100)
    assert all(set(point["ratios"]) == {windows.HAND} for point in (by_rows, by_time))


def test_sums_are_those_of_what_was_paid() -> None:
    given = [(0, 7, 1), (1, 8, 2), (600_000, 7, 4), (600_001, 8, 8)]
    assert sums_by_time(iter(given)) == [1, 2, 4, 8]
    assert sums_by_time(iter([(1, 7, 1), (600_000, 7, 4)])) == [1, 5]
    assert sums_by_rows(iter(given), 2) == [0, 3, 3, 15]
    (row,) = rows_of(windows.payments(1, 5, 3))
    assert row[0] == 5


def test_calls_beside_a_stream(tmp_path: Path) -> None:
    points = report_of(tmp_path, "hybrid")["hybrid"]["points"]
    assert [point["from"] for point in points] == ["thread", "other process"]
    assert all(point["calls"] > 0 for point in points)


@pytest.mark.skipif(servers.postgres_programs() is None, reason="needs PostgreSQL")
def test_postgres_gives_the_same(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    with places.workplace() as work, places.postgres(work) as connection:
        assert set(triggers._statements(connection, 2, 5)) == {"PostgreSQL, statements", "PostgreSQL, a function"}


def test_each_experiment_has_a_picture_and_a_place_on_the_page() -> None:
    from benchmarks.flow.draw import PANELS

    assert set(PANELS) == set(page.TABLES) == set(EXPERIMENTS)
    text = page.PAGE.read_text()
    for name in EXPERIMENTS:
        text = page.put(text, name, "put here")
        assert f"figures/flow-{name}.png" in text
        arguments().parse_args([name])
    assert text.count("put here") == len(EXPERIMENTS)


def test_tables_of_the_page() -> None:
    points = [{"steps": n, "arm": "emits", "per_s": 1e7 / (n + 1)} for n in (1, 4)]
    assert page.TABLES["chain"]({"points": points}).splitlines()[-1] == "| emits | 5.00M | 2.00M | 100 |"
    point = {"what": "rows", "per_s": {"window": 4e6, "by hand": 2e6, "PostgreSQL": None}, "ratios": {"by hand": 2.0}}
    assert "| rows | 4.00M | 2.00M | - | 2.0x | - |" in page.TABLES["windows"]({"points": [point]})
