"""What a load does where records are there already, and the checks of what it brings.

    on_conflict   "fail"      a key that is there is refused
                  "keep"      the record that is there stays as it is
                  "replace"   the row takes its place, the whole of it

A load is all or nothing: what is refused here is found before anything has changed. A check means what it means behind
a transaction, so it runs as in the reference (uncompiled.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Literal, cast, get_args

import pyarrow as pa

from penstock.declare import objects
from penstock.declare.model import Program, TableDef
from penstock.errors import Aborted, InputError
from penstock.execute.uncompiled import Clock, Key, Row, Transaction, uncompiled
from penstock.execute.values import convert, lift, lower
from penstock.execute.windows import Windows

OnConflict = Literal["fail", "keep", "replace"]


def checked(table: TableDef, on_conflict: object, check: object) -> OnConflict:
    """The way of a load; InputError if its options cannot be taken."""
    if on_conflict not in get_args(OnConflict):
        raise InputError(
            f"table '{table.name}': on_conflict={on_conflict!r} does not say what becomes of a record that is there "
            'already; write "fail", "keep" or "replace"'
        )
    if check is not True and check is not False:
        raise InputError(f"table '{table.name}': check={check!r}; give True or False")
    return cast("OnConflict", on_conflict)


def refuse_there(table: TableDef, key: Key) -> None:
    raise InputError(
        f"table '{table.name}': key {_shown(key)} is there already; load new keys only, or say what becomes of the "
        'record: on_conflict="keep" or on_conflict="replace"'
    )


def records(table: TableDef, rows: pa.Table) -> Iterator[tuple[Key, Row]]:
    """Rows as bodies see them."""
    for plain in rows.to_pylist():
        row = {c.name: convert(lift(plain[c.name]), c.type, nullable=c.nullable) for c in table.columns}
        yield tuple(row.pop(c.name) for c in table.keys), row


def refuse_broken(table: TableDef, loaded: Iterable[tuple[Key, Row]]) -> None:
    """InputError, naming the first record that breaks a check."""
    for key, found in broken(table, loaded):
        raise InputError(
            f"table '{table.name}': the record with the key {key} breaks the check {found}; nothing was loaded; "
            "correct it, or load with check=False"
        )


def broken(table: TableDef, rows: Iterable[tuple[Key, Row]]) -> Iterator[tuple[str, str]]:
    """The records that break a check: the key and the check, as they are shown."""
    checks = [(check.text, uncompiled(check.function)) for check in table.checks]
    for key, row in rows if checks else ():
        found = _broken(table, key, row, checks)
        if found:
            yield _shown(tuple(map(lower, key))), found


def told_apart(table: TableDef, rows: pa.Table, reads: Collection[str]) -> pa.Table:
    """The first of those rows that are equal in all that the checks read, in order: what one holds all of them do."""
    read = [c for c in table.columns if c.name in reads]
    if any(c.type.kind == "float" for c in read):  # equal ones may differ, as 0.0 and -0.0 do
        return rows
    if not read:
        return rows.slice(0, 1)
    numbered = rows.select([c.name for c in read]).append_column("(number)", pa.array(range(rows.num_rows)))
    groups = numbered.group_by([c.name for c in read]).aggregate([("(number)", "min")])
    return rows.take(groups.column("(number)_min").combine_chunks().sort())


def _broken(table: TableDef, key: Key, row: Row, checks: list[tuple[str, Callable[..., Any]]]) -> str:
    """The check that a record breaks; "" where it holds all."""
    alone = Transaction({table.name: {key: row}}, Windows(Program(table.name), uncompiled), 0, Clock(None, None, 0))
    token = objects.current.set(alone)
    try:
        for text, check in checks:
            try:
                if not check(alone.existing(table, key)):
                    return repr(text)
            except Aborted as abort:
                return f"{text!r} ({abort.reason})"
            except ZeroDivisionError:
                return f"{text!r} (division by zero)"
    finally:
        objects.current.reset(token)
    return ""


def _shown(key: Key) -> str:
    return ", ".join(repr(part) for part in key)
