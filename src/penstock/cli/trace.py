"""`penstock trace`: one event of a state directory, as text: its outcome, its round as a tree, what it did."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from penstock.cli.inspect import as_plain
from penstock.errors import InputError
from penstock.inspect.batches import Batches
from penstock.inspect.places import Place, at, find
from penstock.inspect.trace import again
from penstock.inspect.trace import trace as traced

_STYLES = {"committed": "green", "aborted": "red", "late": "yellow", "rejected": "magenta"}
_RECORDS_MAX = 20


def trace(state: Path, event: str, *, app: str | None, as_json: bool) -> None:
    batches = Batches(state)
    place = _place(batches, event)
    told = traced(batches, place)
    if app is not None:
        from penstock.cli.pipeline import app_of

        told |= again(app_of(app).plan, state, place.commit.version, place.row)
    if as_json:
        print(json.dumps(told, default=as_plain))
    else:
        _show(told, app)


def _place(batches: Batches, event: str) -> Place:
    by_row = re.fullmatch(r"(\d{1,18})/(\d{1,18})", event)
    found = None
    if by_row is None or "id" in batches.commits.directory.outcomes_schema().names:
        found = find(batches, event)
    if found is None and by_row is not None:
        found = at(batches, int(by_row[1]), int(by_row[2]))
    if found is None:
        raise InputError(
            f"state directory {batches.commits.path}: no retained version has an event with the id {event!r}; open the "
            "database with a larger retain, to keep more of what happened"
        )
    return found


def _show(told: dict[str, Any], app: str | None) -> None:
    console = Console(highlight=False)
    batch, own = told["batch"], told["outcome"]
    where = (
        f"row {own['place']} of version {batch['version']}, committed at {batch['committed_at']:%Y-%m-%d %H:%M:%S} UTC"
    )
    console.print(Text.assemble(_title(own), ("  ", ""), (where, "dim")))
    steps = told.get("again") or []
    root = Tree(_line(told["round"][0], steps[0] if steps else None))
    nodes = {0: root}
    for number, row in enumerate(told["round"][1:], 1):
        step = steps[number] if number < len(steps) else None
        parent = nodes.get(0 if step is None or step["parent"] is None else step["parent"], root)
        nodes[number] = parent.add(_line(row, step))
    for number, step in enumerate(steps):
        for record in step["records"]:
            nodes.get(number, root).add(_record(record))
    for out in told["emitted"]:
        fields = _fields(out["fields"])
        nodes.get(out["step"], root).add(Text.assemble(("emitted ", "dim"), f"{out['event']}({fields})"))
    console.print(root)
    if steps:
        return
    if "says" in told:
        console.print(told["says"] + ".", markup=False)
        return
    _changed(console, told)
    if app is None:
        console.print(
            "What it read and wrote itself is told with --app MODULE:APP, where the database keeps its events "
            '(log="input" or "source").',
            style="dim",
        )


def _changed(console: Console, told: dict[str, Any]) -> None:
    batch = told["batch"]
    if told["changed"] is None:
        console.print(
            "The version was logged as its input, so what it changed is told with --app MODULE:APP.", style="dim"
        )
        return
    tree = Tree(Text(f"version {batch['version']} of {batch['events']:,} events changed {batch['changes']:,} records"))
    for name, found in told["changed"].items():
        table = tree.add(f"{name}: {found['count']:,}")
        for record in found["records"][:_RECORDS_MAX]:
            rest = {column: value for column, value in record.items() if column != "change"}
            table.add(Text.assemble((f"{record['change']} ", "dim"), _fields(rest)))
    console.print(tree)


def _title(row: dict[str, Any]) -> Text:
    id_ = "" if row.get("id") is None else f" {row['id']}"
    return Text(f"{row['transaction'] or 'row'}{id_}", style="bold")


def _line(row: dict[str, Any], step: dict[str, Any] | None) -> Text:
    status = str(row["status"])
    given = {"transaction", "ts", "id", "status", "reason", "version", "step", "place"}
    returned = {name: value for name, value in row.items() if name not in given and value is not None}
    line = Text.assemble(f"{row['transaction']} ", (status, _STYLES.get(status, "")))
    if row["reason"]:
        line.append(f": {row['reason']}")
    if row["ts"] is not None:
        line.append(f"  at {row['ts']}", "dim")
    if step is not None:
        line.append(f"  {step['event']}({_fields(step['fields'])})")
    if returned:
        line.append(f"  returned {_fields(returned)}", "dim")
    return line


def _record(record: dict[str, Any]) -> Text:
    what = "reads and writes" if record["reads"] and record["writes"] else "writes" if record["writes"] else "reads"
    name = f"{record['table']}[{', '.join(str(part) for part in record['key'])}]"
    before = "nothing" if record["before"] is None else _fields(record["before"])
    line = Text.assemble((f"{what} ", "dim"), (name, "bold"), f" {before}")
    if record["writes"]:
        line.append(f" → {'deleted' if record['after'] is None else _fields(record['after'])}")
    return line


def _fields(values: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())
