"""Timers that a directory holds in another shape than those of the app of today.

They are no records of a table that was declared: an event may have lost a field, or may not be emitted with at= any
more, while its timers wait. What still waits in the last version is brought into the shape of today (carry.py), or the
directory is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from penstock.declare.model import NUMBER, TableDef, timers_of


class ForeignTimers:
    def __init__(self, own: Iterable[TableDef]) -> None:
        self._own = {table.name: shape(table.arrow()) for table in own}
        self._waiting: dict[str, list[pa.Table]] = {}  # table of timers -> those that have not run

    def sorted_out(self, written: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        """What was written, without foreign timers; these are kept here."""
        out = {}
        for name, rows in written.items():
            if name.startswith(timers_of("")) and shape(rows.schema) != self._own.get(name):
                if rows.num_rows:
                    self._waiting.setdefault(name, []).append(rows)
            else:
                out[name] = rows
        return out

    def deleted(self, keys: Mapping[str, pa.Table]) -> None:
        for name in self._waiting.keys() & keys.keys():
            gone = keys[name].column(NUMBER).combine_chunks()
            left = [rows.filter(pc.invert(pc.is_in(rows.column(NUMBER), gone))) for rows in self._waiting[name]]
            self._waiting[name] = [rows for rows in left if rows.num_rows]

    def forget(self, name: str) -> None:
        self._waiting.pop(name, None)

    def of(self, own: Iterable[TableDef]) -> tuple[ForeignTimers, dict[str, pa.Table]]:
        """The same for tables of timers of other shapes, and those that are not foreign to them."""
        other, out = ForeignTimers(own), dict[str, list[pa.Table]]()
        for name, several in self._waiting.items():
            for rows in several:
                for found in other.sorted_out({name: rows}).values():
                    out.setdefault(name, []).append(found)
        return other, {name: pa.concat_tables(several) for name, several in out.items()}

    @property
    def waiting(self) -> dict[str, list[pa.Table]]:
        return {name: several for name, several in self._waiting.items() if several}


def shape(schema: pa.Schema) -> list[tuple[str, pa.DataType, bool]]:
    return [(field.name, field.type, field.nullable) for field in schema]
