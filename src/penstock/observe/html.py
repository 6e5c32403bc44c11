"""How a notebook shows what Penstock gives: tables, reports and plans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import pyarrow as pa

from penstock.observe.progress import notebook

# Rows that are shown of a table.
_SHOWN = 20


class Text(str):
    """Text of several lines, which a notebook shows as such."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self)}</pre>"


def of_rows(names: Sequence[str], rows: Iterable[Sequence[Any]], below: str = "") -> str:
    """A table; null where a value is None."""
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    cells = ("".join(f"<td>{_cell(value)}</td>" for value in row) for row in rows)
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    note = f"<p>{escape(below)}</p>" if below else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}"


def of_table(table: pa.Table) -> str:
    """The first rows of an Arrow table, such as outcomes."""
    shown = zip(*(column.to_pylist() for column in table.slice(0, _SHOWN).columns), strict=True)
    below = f"{table.num_rows:,} rows" + (f", the first {_SHOWN} of them shown" if table.num_rows > _SHOWN else "")
    return of_rows(table.column_names, shown, below)


def show_tables() -> None:
    """From now on this notebook, if it is one, shows Arrow tables so, unless it has a way of its own."""
    shell = notebook()
    formatter = getattr(shell, "display_formatter", None)
    html = None if formatter is None else formatter.formatters.get("text/html")
    if html is not None and pa.Table not in html.type_printers:
        html.for_type(pa.Table, of_table)


def _cell(value: Any) -> str:
    return "<i>null</i>" if value is None else escape(str(value))
