"""Timers that a directory holds, and that the app of today does not set, or not with these fields.

They are no records of a table that was declared, so the directory's identity does not know of them. They would never
run: if any of them still waits in the last version, the directory is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from penstock.declare.model import NUMBER, Program, timers_of
from penstock.errors import StateError


class ForeignTimers:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._own = {table.name: _shape(table.arrow()) for table in program.timers}
        self._waiting: dict[str, set[int]] = {}  # table of timers -> numbers of those that have not run

    def sorted_out(self, written: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        """What was written, without foreign timers; these are remembered."""
        out = {}
        for name, rows in written.items():
            if name.startswith(timers_of("")) and _shape(rows.schema) != self._own.get(name):
                self._waiting.setdefault(name, set()).update(rows.column(NUMBER).to_pylist())
            else:
                out[name] = rows
        return out

    def deleted(self, keys: Mapping[str, pa.Table]) -> None:
        for name in self._waiting.keys() & keys.keys():
            self._waiting[name] -= set(keys[name].column(NUMBER).to_pylist())

    def refuse(self, where: str) -> None:
        for name, numbers in self._waiting.items():
            if numbers:
                event = name.removeprefix("$")
                raise StateError(
                    f"{where} holds {len(numbers)} timer(s) '{event}' that have not run, and app "
                    f"'{self._program.name}' does not emit '{event}' with at= any more, or not with these fields and "
                    "types; open it with the code that set them and let them run (db.advance: it sets the clock, so "
                    "they run before their time, and where there is a watermark, what arrives at or below that time is "
                    "late from then on), or declare the event and its emit as they were"
                )


def _shape(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    return [(field.name, field.type) for field in schema]
