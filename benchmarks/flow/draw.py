"""What the experiments found, as pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.pipeline.report import short
from benchmarks.schedulers.draw import BLACK, BLUE, GREEN, GREY, ORANGE, PINK, RED

COLOURS = (BLACK, BLUE, ORANGE, GREEN, RED, PINK)
Series = dict[str, list[float | None]]


def draw(name: str, report: dict[str, Any], path: Path) -> None:
    from matplotlib.figure import Figure

    found, panels = report[name], PANELS[name]
    figure = Figure(figsize=(5.0 * len(panels) + 0.5, 3.8), layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False).flat, panels, strict=True):
        panel(axes, found)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#dddddd", linewidth=0.7)
        axes.set_axisbelow(True)
        axes.tick_params(labelsize=8)
    where = f"{report['machine']}\n{found['durability']}"
    figure.supxlabel(where, fontsize=6, color=GREY, x=0.01, ha="left")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def series(points: Sequence[dict[str, Any]], name: str, x: str, y: str) -> tuple[list[Any], Series]:
    """The values of y by what `name` says, at each x."""
    places = list(dict.fromkeys(point[x] for point in points))
    out: Series = {}
    for point in points:
        out.setdefault(str(point[name]), [None] * len(places))[places.index(point[x])] = point[y]
    return places, out


def _lines(axes: Any, x: list[Any], lines: Series, title: str, xlabel: str, *, log: bool) -> None:
    for (name, values), colour in zip(lines.items(), COLOURS, strict=False):
        axes.plot(x, values, color=colour, marker="o", markersize=4, linewidth=1.6, label=name)
    _finish(axes, title, xlabel, log=log)
    axes.set_xticks(x)


def _bars(axes: Any, x: list[Any], bars: Series, title: str, xlabel: str, *, log: bool) -> None:
    width = 0.8 / len(bars)
    for k, ((name, values), colour) in enumerate(zip(bars.items(), COLOURS[1:], strict=False)):
        places = [i - 0.4 + width * (k + 0.5) for i in range(len(x))]
        drawn = axes.bar(places, [v or 0 for v in values], width * 0.9, color=colour, label=name)
        axes.bar_label(drawn, [short(v) for v in values], fontsize=6)
    axes.set_xticks(range(len(x)), [str(one).replace(", ", "\n") for one in x], fontsize=7)
    _finish(axes, title, xlabel, log=log)


def _finish(axes: Any, title: str, xlabel: str, *, log: bool) -> None:
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_xlabel(xlabel, fontsize=8)
    if log:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.legend(fontsize=7, frameon=False)


def _leaderboard(axes: Any, found: dict[str, Any]) -> None:
    rows = [row for row in found["rows"] if row["per_s"]][::-1]
    drawn = axes.barh([row["arm"] for row in rows], [row["per_s"] for row in rows], color=BLUE)
    axes.bar_label(drawn, [short(row["per_s"]) for row in rows], fontsize=8, padding=3)
    axes.set_xscale("log")
    axes.set_title("The talent show, votes a second", loc="left", fontsize=10)


def _by_steps(title: str, xlabel: str) -> Callable[[Any, dict[str, Any]], None]:
    def panel(axes: Any, found: dict[str, Any]) -> None:
        _lines(axes, *series(found["points"], "arm", "steps", "per_s"), title, xlabel, log=True)

    return panel


def _recovery(y: str, title: str, small: bool) -> Callable[[Any, dict[str, Any]], None]:
    def panel(axes: Any, found: dict[str, Any]) -> None:
        points = [point for point in found["points"] if (point["events"] == 1) == small]
        much = f", {points[0]['batches']:,} batches of {points[0]['events']:,}"
        _lines(axes, *series(points, "log", "steps", y), title + much, "emits in the chain", log=False)

    return panel


def _windows(axes: Any, found: dict[str, Any]) -> None:
    points = found["points"]
    bars = {arm: [point["per_s"][arm] for point in points] for arm in points[0]["per_s"]}
    _bars(axes, [point["what"] for point in points], bars, "Adds and sums a second", "", log=True)


def _hybrid(y: str, title: str) -> Callable[[Any, dict[str, Any]], None]:
    def panel(axes: Any, found: dict[str, Any]) -> None:
        rates, bars = series(found["points"], "from", "rate", y)
        _bars(axes, [f"{rate:,}" for rate in rates], bars, title, "calls a second", log=False)

    return panel


PANELS: dict[str, tuple[Callable[[Any, dict[str, Any]], None], ...]] = {
    "leaderboard": (_leaderboard,),
    "triggers": (_by_steps("Events a second, with all they trigger", "triggers"),),
    "chain": (_by_steps("Chains a second", "emits in the chain"),),
    "recovery": (_recovery("per_s", "Chains/s", small=True), _recovery("opened_s", "Opening, s", small=True)),
    "windows": (_windows,),
    "hybrid": (
        _hybrid("beside_per_s", "Events a second of the stream"),
        _hybrid("p99_batches", "99% of calls, in batches' time"),
    ),
}
