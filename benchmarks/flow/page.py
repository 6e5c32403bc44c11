"""The tables of docs/FLOW.md, from a report: what stands between `<!-- NAME -->` and `<!-- end -->` there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.flow.draw import series
from benchmarks.pipeline.report import short

PAGE = Path(__file__).parents[2] / "docs" / "FLOW.md"


def refresh(file: Path, page: Path = PAGE) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(file.read_text())
    text = page.read_text()
    for name, table in TABLES.items():
        if name in report:
            text = put(text, name, table(report[name]))
    page.write_text(put(text, "machine", f"`{report['command']}`, on {report['machine']}."))
    return report


def put(text: str, name: str, found: str) -> str:
    text, count = re.subn(
        rf"(<!-- {name} -->\n).*?(<!-- end -->)", lambda m: f"{m[1]}{found}\n{m[2]}", text, flags=re.S
    )
    assert count == 1, f"{PAGE.name} has {count} places for {name}"
    return text


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def _leaderboard(found: dict[str, Any]) -> str:
    right = {True: "yes", False: "NO", None: "-"}
    rows = [
        (
            row["arm"],
            row["durability"],
            short(row["per_s"]),
            right[row["right"]],
            _times(found["ratios"].get(row["arm"])),
        )
        for row in found["rows"]
    ]
    return _table(("", "durable", "votes/s", "boards are right", "Penstock's batches are faster by"), rows)


def _by_steps(what: str, price: str) -> Any:
    def table(found: dict[str, Any]) -> str:
        places, arms = series(found["points"], "arm", "steps", "per_s")
        few, many = places[0], places[-1]
        rows = []
        for arm, rates in arms.items():
            ns = (1e9 / rates[-1] - 1e9 / rates[0]) / (many - few) if rates[0] and rates[-1] else None
            rows.append((arm, *map(short, rates), f"{ns:,.0f}" if ns else "-"))
        return _table((what, *map(str, places), price), rows)

    return table


def _recovery(found: dict[str, Any]) -> str:
    places = list(dict.fromkeys(point["steps"] for point in found["points"]))
    rows = []
    for batches, events in dict.fromkeys((point["batches"], point["events"]) for point in found["points"]):
        points = [point for point in found["points"] if point["batches"] == batches]
        for y, name, form in (("per_s", "chains/s", "{:,.0f}"), ("opened_s", "opened, s", "{:.2f}")):
            for log, values in series(points, "log", "steps", y)[1].items():
                rows.append((f'{batches:,} × {events:,}, {name}, log="{log}"', *map(form.format, values)))
    return _table(("emits", *map(str, places)), rows)


def _windows(found: dict[str, Any]) -> str:
    points = found["points"]
    arms = points[0]["per_s"]
    rows = [
        (
            point["what"],
            *(short(point["per_s"][arm]) for arm in arms),
            *(_times(point["ratios"].get(arm)) for arm in list(arms)[1:]),
        )
        for point in points
    ]
    return _table(("", *arms, *(f"window / {arm}" for arm in list(arms)[1:])), rows)


def _hybrid(found: dict[str, Any]) -> str:
    rows = [
        (
            f"{point['rate']:,} a second, {point['from']}",
            short(point["made_per_s"]),
            short(point["alone_per_s"]),
            short(point["beside_per_s"]),
            f"{point['lost']:.0%}",
            f"{point['batch_ms']:.1f}",
            f"{point['p50_ms']:.1f}",
            f"{point['p99_ms']:.1f}",
            f"{point['p99_batches']:.1f}",
        )
        for point in found["points"]
    ]
    head = ("calls", "made/s", "events/s alone", "beside", "lost", "a batch, ms", "p50, ms", "p99, ms", "p99, batches")
    return _table(head, rows)


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:,.1f}x" if ratio < 100 else f"{ratio:,.0f}x"


TABLES = {
    "leaderboard": _leaderboard,
    "triggers": _by_steps("triggers", "each more, ns"),
    "chain": _by_steps("emits", "each more, ns"),
    "recovery": _recovery,
    "windows": _windows,
    "hybrid": _hybrid,
}
