"""The table, the JSON, the plot; and what they must say of the machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

PACKAGES = ("penstock", "pyspark", "numba", "numpy", "pyarrow", "psycopg", "redis", "protobuf")


@dataclass(frozen=True)
class Row:
    """One peer at one batch size."""

    peer: str
    title: str
    batch: int
    batches: int  # measured
    events_per_s: float | None  # the median over the batches
    slowest: float | None
    fastest: float | None
    durability: str
    agrees: bool | None  # with Penstock, in every balance and outcome; None where it does not do the whole job
    note: str = ""
    seconds: tuple[float, ...] = ()


def row_of(
    peer: Any, batch: int, seconds: list[float], counts: list[int] | None, agrees: bool | None, note: str
) -> Row:
    """The first batch is the warm-up, and is not counted."""
    measured = seconds[1:]
    if not measured:
        raise ValueError(f"{peer.name}: there is no batch beside the warm-up")
    events = counts[1:] if counts else [batch] * len(measured)
    rates = [n / s for n, s in zip(events, measured, strict=True)]
    return Row(
        peer.name,
        peer.title,
        batch,
        len(measured),
        statistics.median(rates),
        min(rates),
        max(rates),
        peer.durability,
        agrees,
        note,
        tuple(measured),
    )


def failed(peer: Any, batch: int, why: str) -> Row:
    return Row(peer.name, peer.title, batch, 0, None, None, None, peer.durability, None, why)


def environment(command: str) -> dict[str, Any]:
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {"command": command, "machine": machine(), "versions": versions, "load_before": os.getloadavg()[0]}


def machine() -> dict[str, Any]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {"cpu": _cpu(), "cores": os.cpu_count(), "memory_gib": round(memory, 1), "system": platform.platform()}


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def short(number: float | None) -> str:
    """Three figures that count: 1.23M, 456k, 7.89k."""
    if number is None:
        return "-"
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if number >= 0.9995 * size:
            return f"{_three(number / size)}{letter}"
    return _three(number)


def _three(number: float) -> str:
    return f"{number:.0f}" if number >= 99.95 else f"{number:.1f}" if number >= 9.995 else f"{number:.2f}"


def say(console: Console, report: dict[str, Any]) -> None:
    for section in ("peers", "overhead", "flat", "profile"):
        if report.get(section):
            console.print(_TABLES[section](report[section]))
    for row in {row["peer"]: row for row in report["peers"]}.values():
        words = "; ".join(w for w in (row["durability"], row["note"]) if w)
        console.print(f"{row['peer']}: {words}", soft_wrap=True, markup=False, highlight=False)
    at, versions = report["machine"], report["versions"]
    console.print(f"{at['cpu']}, {at['cores']} cores, {at['memory_gib']} GiB; {at['system']}")
    console.print(
        ", ".join(f"{name} {version}" for name, version in versions.items()) + f"; Spark local[{report['cores']}]"
    )
    console.print(f"load before: {report['load_before']:.1f}; {report['command']}", soft_wrap=True)


def _peers(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="Parquet to Parquet, events a second (median over the batches after a warm-up)")
    for name, how in (("", {}), ("pipeline", {}), ("batch", {"justify": "right"}), ("n", {"justify": "right"})):
        table.add_column(name, **how)
    table.add_column("events/s", justify="right")
    table.add_column("slowest … fastest", justify="right")
    table.add_column("same result")
    for row in rows:
        agrees = {True: "yes", False: "NO", None: "-"}[row["agrees"]]
        spread = f"{short(row['slowest'])} … {short(row['fastest'])}" if row["events_per_s"] else "-"
        counted = [short(row["batch"]), str(row["batches"]), short(row["events_per_s"])]
        table.add_row(row["peer"], row["title"], *counted, spread, agrees)
    return table


def _overhead(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="One micro-batch, ms (median)")
    for name in ("source", "foreachBatch that does nothing", "Penstock, no events", "Penstock, 1000 events", "added"):
        table.add_column(name, justify="left" if name == "source" else "right")
    for row in rows:
        figures = [f"{row[name]:.0f}" for name in ("empty", "no_events", "thousand", "added")]
        table.add_row(row["source"], *figures)
    return table


def _flat(rows: list[dict[str, Any]]) -> Table:
    sizes = sorted({row["batch"] for row in rows})
    table = Table(title="Price of an event, µs, by events a batch (median)")
    table.add_column("")
    for size in sizes:
        table.add_column(short(size), justify="right")
    for name in dict.fromkeys(row["peer"] for row in rows):
        for of, what in (
            ("us_per_event", "whole batch"),
            ("us_per_event_added", "beside a batch that does nothing"),
            ("us_per_event_more", "each more than in the size before"),
        ):
            price = {row["batch"]: f"{row[of]:.2f}" for row in rows if row["peer"] == name and of in row}
            table.add_row(f"{name}: {what}", *[price.get(size, "") for size in sizes])
    return table


def _profile(rows: list[dict[str, Any]]) -> Table:
    table = Table(title=f"Where a batch of {short(rows[0]['batch'])} events goes, ms (median)")
    table.add_column("")
    for row in rows:
        table.add_column(row["peer"], justify="right")
    for stage in dict.fromkeys(stage for row in rows for stage in row["ms"]):
        table.add_row(stage, *[f"{row['ms'][stage]:.1f}" if stage in row["ms"] else "" for row in rows])
    return table


_TABLES = {"peers": _peers, "overhead": _overhead, "flat": _flat, "profile": _profile}


def plain(rows: list[Row]) -> list[dict[str, Any]]:
    return [asdict(row) for row in rows]


def plot(path: str, report: dict[str, Any]) -> None:
    """Bars on a logarithmic scale, one a peer and batch size."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [row for row in report["peers"] if row["events_per_s"]][::-1]
    figure, axes = pyplot.subplots(figsize=(9, 0.45 * len(rows) + 1.6), layout="constrained")
    colours = {"a": "#0b6e75", "b": "#9aa5b1"}
    rates = [row["events_per_s"] for row in rows]
    spread = [
        [row["events_per_s"] - row["slowest"] for row in rows],
        [row["fastest"] - row["events_per_s"] for row in rows],
    ]
    axes.barh(
        range(len(rows)),
        rates,
        xerr=spread,
        color=[colours.get(row["peer"][0], "#d08c3f") for row in rows],
        error_kw={"ecolor": "#444444", "elinewidth": 1, "capsize": 2},
    )
    axes.set_yticks(
        range(len(rows)), [f"{row['title']}\n{short(row['batch'])} events a batch" for row in rows], fontsize=8
    )
    axes.set_xscale("log")
    axes.set_xlim(min(rates) / 3, max(rates) * 4)
    for i, row in enumerate(rows):
        axes.annotate(
            short(row["events_per_s"]),
            (row["fastest"], i),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    axes.set_xlabel(
        "events a second, Parquet to Parquet (logarithmic; bars: median, whiskers: slowest and fastest batch)"
    )
    axes.xaxis.label.set_fontsize(8)
    axes.tick_params(axis="x", labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    at = report["machine"]
    axes.set_title(
        f"Streaming Ledger on {at['cores']} cores ({at['cpu']}), Spark {report['versions']['pyspark']}", fontsize=9
    )
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
