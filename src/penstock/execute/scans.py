"""The law of scans: which records a scan gives, in which order. Its keys are taken before the first turn.

all                     every record, in order of the keys
where(column=value)     those that have it in the column, likewise
between(…, low, high)   those whose key begins so and lies there, both ends included, likewise
top, bottom(k, by=…)    the k that have the most, or the least, in a column; of equal ones the least key comes first,
                        and nan behind every number
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.declare.model import TableDef
from penstock.declare.null import use
from penstock.execute.values import convert

Key = tuple[Any, ...]
Row = dict[str, Any]


def keys(table: TableDef, rows: dict[Key, Row], way: str, names: tuple[str, ...], values: tuple[Any, ...]) -> list[Key]:
    """The keys of the records that a scan gives."""
    ordered = sorted(rows)
    if way == "where":
        return _where(table, rows, ordered, names[0], values[0])
    if way == "between":
        return _between(table, ordered, values)
    if way in ("top", "bottom"):
        return _best(table, rows, ordered, names[0], way == "top")[: max(0, use(values[0]))]
    return ordered


def _where(table: TableDef, rows: dict[Key, Row], ordered: list[Key], name: str, value: Any) -> list[Key]:
    column = table.column(name)
    assert column is not None and column.index, name
    wanted = convert(value, column.type, nullable=column.nullable)
    return [key for key in ordered if rows[key][name] == wanted]


def _between(table: TableDef, ordered: list[Key], values: tuple[Any, ...]) -> list[Key]:
    last = len(values) - 2  # which key column the ends are of
    types = [c.type for c in table.keys[: last + 1]]
    *first, low, high = (convert(v, t) for v, t in zip(values, [*types, types[-1]], strict=True))
    return [key for key in ordered if list(key[:last]) == first and low <= key[last] <= high]


def _best(table: TableDef, rows: dict[Key, Row], ordered: list[Key], by: str, highest: bool) -> list[Key]:
    place = next((n for n, c in enumerate(table.keys) if c.name == by), None)

    def value(key: Key) -> Any:
        return rows[key][by] if place is None else key[place]

    # Sorting is stable, also where it is reversed.
    numbers = sorted((key for key in ordered if value(key) == value(key)), key=value, reverse=highest)
    return numbers + [key for key in ordered if value(key) != value(key)]


class Scan(list[Any]):
    """The records that a scan of a table gives."""

    def __init__(self, table: TableDef, records: Iterable[Any]) -> None:
        super().__init__(records)
        self.table = table
