"""`penstock migrate`: says what becomes of a state directory, asks, and does it."""

from __future__ import annotations

from pathlib import Path

import typer

from penstock.cli.pipeline import app_of
from penstock.database import Database
from penstock.errors import InputError
from penstock.plan.migration import Words


def run_migrate(
    state: Path, name: str, rename: list[str], drop: list[str], drop_tables: list[str], *, yes: bool, dry_run: bool
) -> None:
    app, renamed = app_of(name), dict[str, str]()
    for word in rename:
        old, is_word, new = word.partition("=")
        if not is_word:
            raise InputError(f"--rename {word}: say what the column is called now: --rename {word}=NEW")
        renamed[old] = new
    if not app.migrate(state, renamed, drop, drop_tables, dry_run=True) or dry_run:
        return
    if not yes and not typer.confirm("Do this? Versions before it stay readable as they are"):
        raise typer.Exit(1)
    with Database(app.plan, state, words=Words.checked(renamed, drop, drop_tables)) as database:
        print(f"done: version {database.version}")
