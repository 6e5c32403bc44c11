"""`penstock query` and `penstock history`: a state directory read without its app, while a writer may be at work."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from penstock.declare.model import TableDef
from penstock.errors import InputError
from penstock.replica.directory import Directory


def query(path: Path, sql: str, *, version: int | None, allow_files: bool, as_json: bool) -> None:
    view = Directory(path).view(version)
    rows = view.sql(sql, allow_files=allow_files)
    _show(rows, {"version": view.version}, f"version {view.version}", as_json)


def history(path: Path, name: str, key: list[str], *, as_json: bool) -> None:
    directory = Directory(path)
    table = directory.definition(next((n for n in directory.tables if n.lower() == name.lower()), name))
    where = _where(table, key)
    named = {"table": table.name, "key": {column: values[0] for column, values in where.items()}}
    _show(directory.history(table.name, where), named, f"{table.name} {', '.join(key)}", as_json)


def _where(table: TableDef, key: list[str]) -> dict[str, list[Any]]:
    if len(key) != len(table.keys):
        names = " ".join(c.name for c in table.keys)
        raise InputError(f"table '{table.name}' has the key ({names}); got {len(key)} part(s)")
    where = {}
    for column, text in zip(table.keys, key, strict=True):
        try:
            where[column.name] = pa.array([text]).cast(column.type.arrow()).to_pylist()
        except pa.ArrowInvalid:
            raise InputError(f"table '{table.name}': key '{column.name}' is {column.type}, not {text!r}") from None
    return where


def _show(rows: pa.Table, named: dict[str, Any], title: str, as_json: bool) -> None:
    if as_json:
        found = [{name: _span(value) for name, value in row.items()} for row in rows.to_pylist()]
        print(json.dumps(named | {"rows": found}, default=as_plain))
        return
    table = Table()
    for field in rows.schema:
        table.add_column(
            escape(field.name), justify="left" if pa.types.is_string(field.type) else "right", overflow="fold"
        )
    for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        table.add_row(*("" if value is None else escape(str(_span(value))) for value in row))
    console = Console()
    console.print(f"{title}: {rows.num_rows:,} row{'' if rows.num_rows == 1 else 's'}", markup=False, highlight=False)
    console.print(table)


def _span(value: Any) -> Any:
    """An interval of SQL as a timedelta, which is what a table holds; one of months has no length of its own."""
    if isinstance(value, pa.MonthDayNano):
        days = dt.timedelta(days=value.days, microseconds=value.nanoseconds // 1000)
        return f"{value.months} months, {days}" if value.months else days
    return value


def as_plain(value: Any) -> Any:
    """What JSON has no word for: decimals as text, so that no cent is lost, and times in ISO form."""
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    return str(value)
