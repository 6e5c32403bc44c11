"""`penstock top`: a state directory as it goes, in a terminal."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.cli.inspect import as_plain
from penstock.commit import Disk
from penstock.inspect.batches import Batches
from penstock.inspect.overview import overview
from penstock.replica.lag import Lag, lag

_LISTED = 15


def top(state: Path, *, every: float, once: bool, as_json: bool) -> None:
    batches, console = Batches(state), Console()
    if as_json:
        told, writer = _look(batches)
        print(
            json.dumps({**told, "writer": {"pid": writer.writer, "is_there": writer.writer_is_there}}, default=as_plain)
        )
        return
    if once:
        console.print(_shown(batches))
        return
    try:
        with Live(_shown(batches), console=console, screen=console.is_terminal, auto_refresh=False) as live:
            while True:
                time.sleep(every)
                live.update(_shown(batches), refresh=True)
    except KeyboardInterrupt:
        console.print(_shown(batches))


def _look(batches: Batches) -> tuple[dict[str, Any], Lag]:
    newest = batches.commits.directory.newest()
    found = batches.last(newest.version)
    told = {
        "app": batches.commits.directory.app,
        "version": newest.version,
        "batches": found,
        "together": overview(found),
    }
    return told, lag(Disk(), batches.commits.path, newest.version, newest.commit, None)


def _shown(batches: Batches) -> Group:
    told, writer = _look(batches)
    title = Text.assemble((f"{told['app']}", "bold"), f"  version {told['version']:,}  ", _writer(writer))
    if not told["batches"]:
        return Group(title, Text("No batch has run yet: the first one shows here."))
    return Group(title, _together(told["together"], told["batches"][0]), _table(told["batches"][:_LISTED]))


def _writer(found: Lag) -> Text:
    if found.writer_is_there:
        return Text(f"writer: pid {found.writer}", "green")
    if found.writer_is_there is False:
        return Text("nobody writes" if found.writer is None else f"the writer, pid {found.writer}, is gone", "red")
    return Text(f"writer: pid {found.writer} on {found.host}", "yellow")


def _together(sums: dict[str, Any], last: dict[str, Any]) -> Text:
    rate = "–" if sums["events_per_s"] is None else f"{sums['events_per_s']:,.0f}"
    aborted = ", ".join(f"{reason} {n:,}" for reason, n in sums["aborted"].items()) or "none"
    lines = [
        f"{rate} events/s over {sums['batches']} batches, {sums['seconds']:.1f} s: committed {sums['committed']:,}, "
        f"late {sums['late']:,}, rejected {sums['rejected']:,}, duplicate {sums['duplicate']:,}; "
        f"held {last['held'] or 0:,}",
        f"aborted: {aborted}",
        f"clock {last['clock']}, highest ts {last['highest']} (event time)",
    ]
    if sums["ms_by_stage"]:
        stages = ", ".join(f"{stage} {ms:.2f}" for stage, ms in sums["ms_by_stage"].items())
        lines.append(f"ms of a batch by stage: {stages}")
    if last["policy"]:
        lines.append(f"{last['policy']}: {last['why']}")
    return Text("\n".join(lines))


def _table(batches: list[dict[str, Any]]) -> Table:
    table = Table()
    for name in ("version", "events", "committed", "aborted", "late", "held", "changes", "ms", "policy", "cause"):
        table.add_column(name, justify="left" if name in ("policy", "cause") else "right")
    for one in batches:
        row = [one[name] for name in ("version", "events", "committed")] + [sum(one["aborted"].values())]
        row += [one[name] for name in ("late", "held", "changes")]
        table.add_row(
            *("–" if value is None else f"{value:,}" for value in row),
            "–" if one["ms"] is None else f"{one['ms']:.2f}",
            one["policy"] or "–",
            one["cause"],
        )
    return table
