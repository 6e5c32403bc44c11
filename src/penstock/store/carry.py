"""What a directory holds, brought into the schema of today: records, events that wait, timers.

    records     a column that stays is taken over, by its new name and as its new type; a new one has its default
    held        an event that waits for a watermark loses the fields that have gone; new ones take their default or null
    timers      likewise

Where a value does not fit, or a new field has neither, it is a StateError that names it, and nothing has changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.declare.model import AT, ID, NAMED, NUMBER, Column, EventDef, Field, Program, TableDef, timers_of
from penstock.errors import InputError, StateError
from penstock.execute import validate
from penstock.execute.casting import left_out, one_array
from penstock.execute.watermark import ARRIVAL
from penstock.state.arrow import widened

_WRONG = (pa.ArrowInvalid, pa.ArrowNotImplementedError)
_REMEDY = "open it with the code that wrote it and let them run, or declare the field as it was"


def restated(table: TableDef, rows: pa.Table, renamed: Mapping[str, str], where: str) -> pa.Table:
    """Records with the columns of today."""
    before = {renamed.get(name, name): name for name in rows.column_names}
    arrays = []
    for column in table.columns:
        if column.name not in before:
            arrays.append(pa.array([column.default], column.type.arrow()).take(_zeros(rows)))
            continue
        given = rows.column(before[column.name])
        try:
            arrays.append(widened(given, column.type.arrow()))
        except _WRONG as error:
            first = next(i for i in range(rows.num_rows) if not _fits(given.slice(i, 1), column.type.arrow()))
            key = ", ".join(repr(rows.column(before[c.name])[first].as_py()) for c in table.keys)
            raise StateError(
                f"{where}: the record of table '{table.name}' with the key {key} has {column.name} = "
                f"{given[first].as_py()}, which is no {column.type}; declare a wider type, or change the record with "
                "the app as it was"
            ) from error
    return pa.Table.from_arrays(arrays, schema=table.arrow())


def refuse_strangers(columns: Iterable[Column | Field], rows: pa.Table, what: str) -> None:
    """StateError where a value is of no member of the Enum that its column is of now. what: the rows, to people."""
    for column in columns:
        try:
            if column.type.all_members and column.name in rows.column_names:
                validate.refuse_strangers(one_array(rows.column(column.name), what), column.type, where=column.name)
        except InputError as error:
            raise StateError(
                f"{what}: {error}; keep the member, or change what holds it with the app as it was"
            ) from None


def held(program: Program, name: str, waiting: pa.Table, where: str) -> pa.Table:
    """Events that wait for a watermark, or for others of their atomic batch."""
    event = program.event(name)
    if event is None or event.order is None or program.transaction_of(event) is None:
        raise StateError(
            f"{where} holds back {waiting.num_rows} event(s) '{name}', and app '{program.name}' does not take these "
            "any more; open it with the code that wrote it and run what is held (a batch with flush=True), or declare "
            "the event as it was"
        )
    what = f"{where} holds back {waiting.num_rows} event(s) '{name}'"
    fields = _fields(event, waiting, what)
    return pa.Table.from_arrays([*fields.columns, waiting.column(ARRIVAL)], names=[*fields.column_names, ARRIVAL])


def timers(program: Program, table: str, waiting: pa.Table, where: str) -> pa.Table:
    """Timers that have not run, as rows of their table of today."""
    name = table.removeprefix(timers_of(""))
    event, wanted = program.event(name), next((t for t in program.timers if t.name == table), None)
    if event is None or wanted is None:
        raise StateError(
            f"{where} holds {waiting.num_rows} timer(s) '{name}' that have not run, and app '{program.name}' does not "
            f"emit '{name}' with at= any more; open it with the code that set them and let them run (db.advance: it "
            "sets the clock, so they run before their time, and where there is a watermark, what arrives at or below "
            "that time is late from then on), or declare the event and its emit as they were"
        )
    what = f"{where} holds {waiting.num_rows} timer(s) '{name}'"
    fields = _fields(event, waiting, what)
    for field in event.fields:
        if not field.nullable and fields.column(field.name).null_count:
            raise StateError(f"{what}, and the field '{field.name}' of one is None, which it may not be now; {_REMEDY}")
    columns = {NUMBER: waiting.column(NUMBER), AT: waiting.column(AT)}
    if wanted.column(ID) is not None:
        there = ID in waiting.column_names
        type_ = wanted.arrow().field(ID).type
        nobody = pa.scalar("" if pa.types.is_string(type_) else 0, type_)
        columns[ID] = waiting.column(ID) if there else pa.repeat(nobody, waiting.num_rows)
        columns[NAMED] = waiting.column(NAMED) if there else pa.repeat(pa.scalar(False), waiting.num_rows)
    columns |= dict(zip(fields.column_names, fields.columns, strict=True))
    return pa.Table.from_arrays([columns[f.name] for f in wanted.arrow()], schema=wanted.arrow())


def _fields(event: EventDef, rows: pa.Table, what: str) -> pa.Table:
    """Rows of an event with its fields of today."""
    remedy = _REMEDY
    arrays = []
    for field in event.fields:
        if field.name not in rows.column_names and not field.required:
            arrays.append(left_out(field, rows.num_rows))
            continue
        if field.name not in rows.column_names:
            raise StateError(
                f"{what} without the field '{field.name}', which has neither a default nor None as a value; {remedy}, "
                "or give it one"
            )
        refuse_strangers([field], rows, what)
        column = rows.column(field.name)
        given = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        wanted = field.type.arrow()
        if given == wanted:
            arrays.append(column)
        elif not _widens(given, wanted):
            raise StateError(f"{what} with the field '{field.name}' as {given}, and it is {field.type} now; {remedy}")
        else:
            try:
                arrays.append(widened(column, wanted))
            except _WRONG as error:
                first = next(i for i in range(rows.num_rows) if not _fits(column.slice(i, 1), wanted))
                raise StateError(
                    f"{what}, and the field '{field.name}' of one is {column[first].as_py()}, which is no "
                    f"{field.type}; {remedy}"
                ) from error
    return pa.Table.from_arrays(arrays, names=[f.name for f in event.fields])


def _widens(given: pa.DataType, wanted: pa.DataType) -> bool:
    """As for columns (plan/migration.py)."""
    if not pa.types.is_decimal(wanted):
        return False
    if pa.types.is_int64(given):
        return True
    whole = wanted.precision - wanted.scale
    return pa.types.is_decimal(given) and wanted.scale >= given.scale and whole >= given.precision - given.scale


def _fits(value: pa.ChunkedArray, type_: pa.DataType) -> bool:
    try:
        widened(value, type_)
    except _WRONG:
        return False
    return True


def _zeros(rows: pa.Table) -> Any:
    return pc.fill_null(pa.nulls(rows.num_rows, pa.int32()), 0)
