"""`penstock advance`: a high mark that a wild ts has set, shown, and set back if that is wanted."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from penstock.errors import PenstockError
from penstock.store.reset import Marks, opened


def advance(path: Path, to: str, *, yes: bool, as_json: bool) -> None:
    with opened(path) as reset:
        time = reset.time_of(to)
        before, after = reset.marks, reset.after(time)
        if not as_json:
            _show(path, before, after)
        done = yes or (not as_json and typer.confirm("Set it back?"))
        if done:
            reset.do(time)
    if as_json:
        print(json.dumps({"done": done, "before": _plain(before), "after": _plain(after)}))
    elif done:
        Console().print(f"done: version {after.version}. Start the stream again.", highlight=False)
    else:
        raise PenstockError("nothing was changed")


def _show(path: Path, before: Marks, after: Marks) -> None:
    held = ", ".join(f"{name} {count:,}" for name, count in before.held.items())
    table = Table(title=f"state directory {path}", title_justify="left")
    for heading in ("", f"version {before.version}", f"version {after.version}"):
        table.add_column(heading, overflow="fold")
    table.add_row("highest ts that has arrived", str(before.highest), str(after.highest))
    table.add_row("clock: highest that has run", _shown(before.clock), _shown(after.clock))
    table.add_row("held back", held or "nothing", "the next batch rejects those beyond" if held else "nothing")
    console = Console(highlight=False)
    console.print(table, markup=False)
    console.print(
        "No record changes, and what was late stays so. What has run at later times has run; records that expire, and "
        "timers, count from the new clock on."
    )


def _shown(time: Any) -> str:
    return "none yet" if time is None else str(time)


def _plain(marks: Marks) -> dict[str, Any]:
    return {
        name: value if value is None or isinstance(value, int | dict) else value.isoformat()
        for name, value in asdict(marks).items()
    }
