"""The benchmarks of the schedulers run, at a tiny size, and what they report is sane. Nothing here looks at times."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.schedulers import regret, scaling
from benchmarks.schedulers.__main__ import main
from benchmarks.schedulers.draw import draw
from benchmarks.schedulers.measure import Bench, Measured, parsed
from benchmarks.schedulers.points import describe, grid
from benchmarks.schedulers.scaling import longest_paths
from benchmarks.schedulers.studies import LOCKS, Panel, Study

from penstock import Policy
from penstock.observe.report import BatchReport
from penstock.workloads import PHASES, StreamingLedger

# Whole transactions: operations take long to compile.
FEW = ("serial", "bfs/transaction/eager", "ready/transaction/eager")


def report_of(tmp_path: Path, *words: str) -> dict[str, Any]:
    file = tmp_path / "report.json"
    main([*words, "--quick", "--json", str(file)])
    report: dict[str, Any] = json.loads(file.read_text())
    assert {"command", "machine"} <= set(report)
    return report


def test_the_grid_is_wide() -> None:
    points = grid()
    assert len(points) >= 40
    assert len({describe(p) for p in points}) == len(points)
    assert {p.name for p in points} == {"sl", "gs", "ob", "tp"}
    assert {p.cost_us for p in points} == {0.0, 0.3, 1.0, 3.0, 10.0}
    assert {p.theta for p in points} >= {0.0, 0.6, 1.0}
    assert min(p.batch for p in points) <= 1_024 < 100_000 <= max(p.batch for p in points)
    assert max(p.abort_ratio for p in points) == 0.9


def test_the_best_policy_is_picked_by_other_rounds_than_it_is_timed_by() -> None:
    policies = [*parsed(("serial", "bfs/transaction/eager"), 2), Policy.adaptive(2)]

    def measured(*medians: float) -> list[Measured]:
        return [
            Measured(policy, 1, seconds=[taken], chose=["serial"])
            for policy, taken in zip(policies, medians, strict=True)
        ]

    found, final = measured(4.0, 6.0, 4.5), measured(5.0, 3.0, 4.0)
    found[-1].last = final[-1].last = BatchReport(1, "serial", "", 1, 1, 0, 0, {}, 0, {})
    point = regret.point(StreamingLedger(), found, final)
    assert (point["best"], point["best_ms"], point["adaptive_ms"]) == ("serial", 5000.0, 4000.0)
    assert point["regret"] == pytest.approx(4.0 / 5.0 - 1)
    assert point["fixed_ms"] == {"serial": 4000.0, "bfs/transaction/eager": 6000.0}
    assert point["luckiest"] == pytest.approx(4.0 / 3.0 - 1)
    assert point["all_rounds"] == pytest.approx(4.0 / 5.0 - 1)
    assert point["noise"] == pytest.approx(4.5 / 4.0 - 1)


def test_times_are_compared_round_by_round() -> None:
    """A machine that becomes twice as slow midway: the medians would say that the first one is slower by a third."""
    one = Measured(Policy.serial(), 1, seconds=[1.1, 2.2, 2.2, 2.2])
    other = Measured(Policy.adaptive(2), 1, seconds=[1.0, 1.4, 2.0, 2.0])
    assert one.over(other) == pytest.approx(0.1)


def test_costs_count_together_by_their_seconds_and_alike() -> None:
    def form(serial: float, bfs: float, adaptive: float, first: float) -> dict[str, Any]:
        final = {"serial": {"sum": serial}, "adaptive": {"sum": adaptive}}
        return {"totals": final, "first": {"bfs": {"sum": bfs}, "serial": {"sum": 9.0}, "adaptive": {"sum": first}}}

    found = regret.together([form(2.0, 0.5, 1.0, 0.5), form(10.0, 10.0, 20.0, 5.0)])
    assert found["serial"] == {"seconds": pytest.approx(21 / 12), "mean": pytest.approx(1.0)}
    # One that was not in the final is compared by what both took before it.
    assert found["bfs"] == {"seconds": pytest.approx(21 / (1 + 40)), "mean": pytest.approx(0.5**0.5)}


def test_regret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regret, "FIXED", FEW)
    report = report_of(tmp_path, "regret", "--threads", "2", "--only", "sl")
    (point,) = report["points"]
    assert set(point["fixed_ms"]) == set(FEW)
    assert point["best"] in point["fixed_ms"]
    assert report["summary"]["worst_regret"] == point["regret"]
    (dynamic,) = report["dynamic"]
    assert set(dynamic["first"]) == {*FEW, "adaptive"}
    assert set(dynamic["totals"]) <= {*FEW, "adaptive"} and dynamic["best_fixed"] in dynamic["totals"]
    for total in dynamic["totals"].values():
        assert total["sum"] == pytest.approx(sum(total[phase.name] for phase in PHASES))
    assert len(dynamic["chose"]) == len(dynamic["steps"]) == 2 * len(PHASES)
    assert set(report["together"]) == set(FEW)
    # There is but one form here.
    for what in ("seconds", "mean"):
        assert max(one[what] for one in report["together"].values()) == pytest.approx(dynamic["adaptive_to_best"])


def test_regret_can_be_shared_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Points that are measured apart, and the phases, are those of the whole."""
    monkeypatch.setattr(regret, "FIXED", FEW[:2])
    knobs = [StreamingLedger(keys=200, batch=batch, cost_us=0.3) for batch in (200, 250, 300)]
    monkeypatch.setattr(regret, "few", lambda: knobs)
    points = []
    for part in (":1", "1:3", "3:"):
        report = report_of(tmp_path, "regret", "--threads", "2", "--points", part)
        assert "dynamic" not in report
        points += report["points"]
    assert [point["point"] for point in points] == [describe(one) for one in knobs]
    report = report_of(tmp_path, "regret", "--threads", "2", "--phases")
    assert "points" not in report and len(report["dynamic"]) == 1


def test_scaling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "POLICIES", FEW[1:])
    report = report_of(tmp_path, "scaling", "--cores", "1,2", "--repeat", "1")
    assert [one["theta"] for one in report["scaling"]] == [0.0, 0.6, 1.0]
    for one in report["scaling"]:
        assert {p["threads"] for p in one["policies"]} == {1, 2}
        assert one["longest_path"]["operation"] <= one["longest_path"]["transaction"] <= one["operations"]
    assert all(one["per_s"] > 0 for one in report["construct"])


def test_latency(tmp_path: Path) -> None:
    report = report_of(tmp_path, "latency", "--threads", "2")
    for made in ("beforehand", "between"):
        assert {one["workload"] for one in report["workloads"] if one["made"] == made} == {"sl", "gs", "ob", "tp"}
    assert all(0 < one["p50"] <= one["p90"] <= one["p99"] for one in report["workloads"])


def test_a_path_is_as_long_as_the_events_that_wait_for_each_other() -> None:
    knobs = StreamingLedger(keys=2, batch=50, transfer_ratio=0.0, theta=0.0)
    paths = longest_paths(knobs.events())
    assert paths["work"] == 100
    # Two accounts and two assets: nearly every deposit waits for the one before it.
    assert 25 <= paths["operation"] <= 50 < paths["transaction"] <= 100
    apart = longest_paths(StreamingLedger(batch=3, transfer_ratio=1.0, theta=0.0).events())
    assert apart == {"work": 12, "transaction": 4, "operation": 1}


def test_policies_take_turns_and_the_hopeless_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    knobs = StreamingLedger(keys=100, batch=50, cost_us=0.0)
    with Bench(knobs) as bench:
        real, ran = bench.run, []

        def run(events: Any, policy: Policy) -> Any:
            ran.append(policy.name)
            report = real(events, policy)
            report.seconds["execute"] = 10.0 if policy.name == "lal" else 1.0
            return report

        monkeypatch.setattr(bench, "run", run)
        found = bench.compare(knobs.events(), [Policy.serial(), Policy.parse("lal", 1), Policy.adaptive(1)], repeat=8)
        assert len(ran) == 20
        final = bench.final(knobs.events(), [found[2], found[0]])
        assert [(one.name, one.seconds) for one in final] == [("adaptive", [1.0] * 9), ("serial", [1.0] * 9)]
    assert ran[:4] == ["serial", "lal", "adaptive", "lal"]
    rounds = [tuple(ran[4 + 2 * k : 6 + 2 * k]) for k in range(8)]
    assert {frozenset(one) for one in rounds} == {frozenset(("serial", "adaptive"))}
    assert len(set(rounds)) == 2  # neither always runs behind the other
    assert [one.median for one in found] == [1.0, 10.0, 1.0]


def test_every_kind_of_panel_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    lines = Panel("a", "sl", "cores", "events / s", [1, 2], {"serial": [1.0, 1.0], "adaptive": [1.0, 2.0]}, logx=True)
    bars = Panel("b", "sl", "", "events / s", ["serial", "lal"], {"": [1.0, 2.0]}, "bars")
    stack = Panel("c", "sl", "", "µs", ["serial", "lal"], {"useful": [1.0, 2.0], "lock": [0.0, 2.0]}, "stack")
    assert draw(Study("all", "All", "none", [lines, bars, stack]), tmp_path / "all.png", "a machine")
    assert (tmp_path / "all.png").stat().st_size > 10_000


@pytest.mark.long
def test_figures(tmp_path: Path) -> None:
    main(["figures", "--quick", "--threads", "2", "--out", str(tmp_path)])
    report = json.loads((tmp_path / "figures.json").read_text())
    assert len(report["studies"]) == 10
    for study in report["studies"]:
        for panel in study["panels"]:
            assert all(len(values) == len(panel["x"]) for values in panel["series"].values())
    assert set(LOCKS) <= set(report["studies"][0]["panels"][0]["series"])
