"""Studies as pictures, where matplotlib is installed."""

from __future__ import annotations

import importlib.util
import textwrap
from pathlib import Path
from typing import Any

from benchmarks.schedulers.studies import Panel, Study

# Colours that most people who do not see red and green apart can tell from one another (Okabe and Ito).
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, RED, PINK, GREY, PALE = (
    "#000000",
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#F0E442",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
    "#888888",
    "#BBBBBB",
)
# A policy looks the same in all pictures.
LOOKS: dict[str, tuple[str, str]] = {
    "adaptive": (BLACK, "o"),
    "serial": (GREY, "s"),
    "ready/transaction/eager": (BLUE, "^"),
    "ready/operation/lazy": (GREEN, "v"),
    "ready/operation/eager": (ORANGE, "D"),
    "ready/chain/lazy": (PINK, "P"),
    "bfs/operation/lazy": (RED, "s"),
    "dfs/operation/lazy": (SKY, "D"),
    "tstream": (RED, "X"),
    "none": (YELLOW, "<"),
    "lal": (ORANGE, ">"),
    "lwm": (PINK, "d"),
    "pat": (SKY, "p"),
}
PARTS = {"useful": GREEN, "construct": BLUE, "explore": SKY, "sync": ORANGE, "lock": RED, "abort": PINK}


def draw(study: Study, path: Path, machine: str) -> bool:
    """A PNG file; False where matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        return False
    from matplotlib.figure import Figure

    columns = min(study.columns, len(study.panels))
    rows = -(-len(study.panels) // columns)
    width = 9.0 if columns < 3 else 11.0
    figure = Figure(figsize=(width, 1.3 + 3.0 * rows), layout="constrained")
    figure.suptitle(f"{study.title}   [{study.paper}]", fontsize=12, x=0.01, ha="left", fontweight="bold")
    for axes, panel in zip(figure.subplots(rows, columns, squeeze=False).flat, study.panels, strict=False):
        {"lines": _lines, "bars": _bars, "stack": _stack}[panel.kind](axes, panel)
        _finish(axes, panel, width / columns)
    _legend(figure, machine)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    return True


def _lines(axes: Any, panel: Panel) -> None:
    crowded = len(panel.x) > 12
    for name, values in panel.series.items():
        colour, marker = LOOKS[name]
        strong = name == "adaptive"
        axes.plot(
            range(len(panel.x)) if panel.even else panel.x,
            values,
            color=colour,
            marker=None if crowded else marker,
            markersize=5,
            linewidth=2.2 if strong else 1.4,
            linestyle="--" if strong else "-",
            zorder=3 if strong else 2,
            label=name,
        )
    if panel.even:
        axes.set_xticks(range(len(panel.x)), [f"{x:g}" for x in panel.x])
    if panel.logx:
        axes.set_xscale("log", base=2)
        axes.set_xticks(panel.x, [f"{x:,}" for x in panel.x])
        axes.minorticks_off()
    if panel.logy:
        _log_scale(axes)
    else:
        axes.set_ylim(bottom=0)
    for word, place in panel.marks.items():
        axes.axvline(place - 0.5, color=GREY, linewidth=0.8, linestyle=":")
        axes.annotate(word, (place, 1), xycoords=("data", "axes fraction"), fontsize=8, color=GREY, va="bottom")


def _log_scale(axes: Any) -> None:
    """Plain numbers at 1, 2, 5, 10, …"""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.yaxis.set_minor_locator(NullLocator())


def _bars(axes: Any, panel: Panel) -> None:
    """Side by side: the policies at each name on x, or one bar a name."""
    single = len(panel.series) == 1
    width = 0.8 / len(panel.series)
    for k, (name, values) in enumerate(panel.series.items()):
        places = [i - 0.4 + width * (k + 0.5) for i in range(len(panel.x))]
        colours = [LOOKS.get(str(x), (PALE, ""))[0] for x in panel.x] if single else LOOKS[name][0]
        bars = axes.bar(places, values, width * 0.9, color=colours, label=name or None)
        axes.bar_label(bars, [f"{v:,.0f}" for v in values], fontsize=8)
    axes.set_xticks(range(len(panel.x)), [str(x).replace("/", "/\n") for x in panel.x], fontsize=8)


def _stack(axes: Any, panel: Panel) -> None:
    below = [0.0] * len(panel.x)
    for name, values in panel.series.items():
        axes.bar(range(len(panel.x)), values, 0.7, bottom=below, color=PARTS[name], label=name)
        below = [b + v for b, v in zip(below, values, strict=True)]
    axes.set_xticks(range(len(panel.x)), [str(x).replace("/", "/\n") for x in panel.x], fontsize=8)


def _finish(axes: Any, panel: Panel, inches: float) -> None:
    where = textwrap.wrap(panel.workload, int(14 * inches))
    low = 14 if panel.marks else 4
    axes.set_title(panel.title, loc="left", fontsize=10, pad=low + 4 + 9 * len(where))
    axes.annotate("\n".join(where), (0, 1), (0, low), "axes fraction", "offset points", fontsize=7.5, color=GREY)
    axes.set_xlabel(panel.xlabel, fontsize=9)
    axes.set_ylabel(panel.ylabel, fontsize=9)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)


def _legend(figure: Any, machine: str) -> None:
    """One for all panels, below; and the machine."""
    found: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(name, handle)
    if not found:
        figure.supxlabel(machine, fontsize=7, color=GREY, x=0.01, ha="left")
        return
    legend = figure.legend(
        found.values(),
        found.keys(),
        loc="outside lower left",
        ncols=4 if len(found) > 6 else len(found),
        fontsize=8,
        frameon=False,
        title=machine,
        title_fontsize=7,
        alignment="left",
    )
    legend.get_title().set_color(GREY)
