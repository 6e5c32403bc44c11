"""Picture: the demo's batches, one plot below the other: throughput, aborts, what waited, what came late, the books."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

# Colours that most people who do not see red and green apart can tell from one another (Okabe and Ito).
BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#777777"
TITLE: dict[str, Any] = {"loc": "left", "fontsize": 11}


@dataclass(frozen=True, slots=True)
class Balance:
    """The books after one batch: what all accounts hold, and what they should."""

    version: int
    held: Decimal  # by SQL, as of this version
    due: Decimal  # the opening balances and the deposits that were committed by then


@dataclass(frozen=True, slots=True)
class Picture:
    reports: list[dict[str, Any]]  # one a batch, as BatchReport.to_dict gives them, and "wall_s"
    counts: list[dict[str, Any]]  # outcomes: version, status, reason, events
    books: list[Balance]
    killed: int  # the batch after which the process was killed
    batch: int  # events that arrive in one batch

    def write(self, path: Path) -> bool:
        """Draw it to a PNG file; False where matplotlib is not installed."""
        if importlib.util.find_spec("matplotlib") is None:
            return False
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator

        figure = Figure(figsize=(10, 12), layout="constrained")
        speed, aborts, held, late, books = figure.subplots(5, 1, sharex=True, height_ratios=(3, 3, 2, 2, 3))
        figure.suptitle(
            f"penstock demo: a bank on Spark, {self.batch:,} payments a batch, killed after batch {self.killed}",
            fontsize=13,
        )
        self._speed(speed)
        self._aborts(aborts)
        self._waits(held, late)
        self._books(books)
        books.set_xlabel("batch (the last one is what the watermark held back at the end)")
        last = max(report["version"] for report in self.reports)
        books.set_xlim(0.4, last + 0.6)
        books.set_xticks(range(1, last + 1, 1 + last // 30))
        for axes in (speed, aborts, held, late, books):
            axes.axvline(self.killed + 0.5, color=RED, linestyle="--", linewidth=1.2)
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(axis="y", color="#dddddd", linewidth=0.7)
            axes.set_axisbelow(True)
            axes.yaxis.set_major_locator(MaxNLocator("auto", integer=True))
            axes.yaxis.set_major_formatter("{x:,.0f}")
        figure.align_ylabels()
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=120)
        return True

    def _speed(self, axes: Any) -> None:
        versions = [r["version"] for r in self.reports]
        axes.bar(versions, [r["events"] / r["wall_s"] / 1000 for r in self.reports], color=BLUE)
        axes.set_ylabel("thousand events / s")
        axes.set_title("Throughput, Spark included (the first batch after a start warms it up)", **TITLE)
        # Room above the bars for the words.
        axes.set_ylim(0, 1.15 * axes.get_ylim()[1])
        place = (self.killed + 0.5, axes.get_ylim()[1])
        words = {"textcoords": "offset points", "color": RED, "va": "top", "backgroundcolor": "white"}
        axes.annotate("SIGKILL, then restarted", place, (6, -3), **words)

    def _aborts(self, axes: Any) -> None:
        reasons = sorted({c["reason"] for c in self.counts if c["status"] == "aborted"})
        versions = sorted({c["version"] for c in self.counts})
        below = [0] * len(versions)
        for reason, colour in zip(reasons, (ORANGE, GREEN, BLUE, GREY) * len(reasons), strict=False):
            found = {c["version"]: c["events"] for c in self.counts if c["reason"] == reason}
            heights = [found.get(v, 0) for v in versions]
            axes.bar(versions, heights, bottom=below, color=colour, label=reason)
            below = [b + h for b, h in zip(below, heights, strict=True)]
        axes.set_ylabel("events")
        axes.set_title("Aborted transactions, by reason", **TITLE)
        # Beside the title: nothing is drawn there.
        axes.legend(loc="lower right", bbox_to_anchor=(1, 0.98), ncols=len(reasons) or 1, frameon=False)

    def _waits(self, held: Any, late: Any) -> None:
        versions = [r["version"] for r in self.reports]
        held.bar(versions, [r["held"] for r in self.reports], color=BLUE)
        held.set_ylabel("events")
        held.set_title("Held back by the watermark after the batch", **TITLE)
        late.bar(versions, [r["late"] for r in self.reports], color=ORANGE)
        late.set_ylabel("events")
        late.set_title("Late: arrived after the watermark, and not run", **TITLE)

    def _books(self, axes: Any) -> None:
        versions = [book.version for book in self.books]
        held = [float(book.held) / 1000 for book in self.books]
        due = [float(book.due) / 1000 for book in self.books]
        axes.bar(versions, held, color=GREEN, label="all balances, by SQL")
        axes.plot(versions, due, "k_-", markersize=9, linewidth=1, label="opening balances and deposits")
        axes.set_ylabel("thousand")
        wrong = sum(book.held != book.due for book in self.books)
        words = f"{wrong} batches are off" if wrong else "no cent is missing after any batch"
        axes.set_title(f"The books: {words}", **TITLE)
        axes.legend(loc="lower right", bbox_to_anchor=(1, 0.98), ncols=2, frameon=False)
