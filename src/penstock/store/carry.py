"""What a directory holds, brought into the schema of today: records, events that wait, timers.

    records     a column that stays is taken over, by its new name and as its new type; a new one has its default
    held        an event that waits for a watermark loses the fields that have gone; new ones take their default or null
    timers      likewise

Where a value does not fit, or a new field has neither, it is a StateError that names it, and nothing has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa

from penstock.declare.model import AT, ID, NAMED, NUMBER, Column, EventDef, Field, Program, TableDef, timers_of
from penstock.declare.types import of_arrow
from penstock.errors import InputError, StateError
from penstock.execute import validate
from penstock.execute.casting import left_out, one_array
from penstock.execute.watermark import ARRIVAL
from penstock.plan.migration import widens
from penstock.state.arrow import widened

_WRONG = (pa.ArrowInvalid, pa.ArrowNotImplementedError)
_REMEDY = "open it with the code that wrote it and let them run, or declare the field as it was"


def restated(table: TableDef, rows: pa.Table, renamed: Mapping[str, str], where: str) -> pa.Table:
    """Records with the columns of today."""
    before = {renamed.get(name, name): name for name in rows.column_names}
    arrays = []
    for column in table.columns:
        if column.name not in before:
            arrays.append(left_out(column, rows.num_rows))
            continue
        given = rows.column(before[column.name])

        def wrong(row: int, column: Column = column, given: pa.ChunkedArray = given) -> str:
            key = ", ".join(repr(rows.column(before[c.name])[row].as_py()) for c in table.keys)
            return (
                f"{where}: the record of table '{table.name}' with the key {key} has {column.name} = "
                f"{given[row].as_py()}, which is no {column.type}; declare a wider type, or change the record with "
                "the app as it was"
            )

        arrays.append(_widened(given, column.type.arrow(), wrong))
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
    arrays = []
    for field in event.fields:
        if field.name not in rows.column_names and not field.required:
            arrays.append(left_out(field, rows.num_rows))
            continue
        if field.name not in rows.column_names:
            raise StateError(
                f"{what} without the field '{field.name}', which has neither a default nor None as a value; {_REMEDY}, "
                "or give it one"
            )
        refuse_strangers([field], rows, what)
        column = rows.column(field.name)
        given = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if given == field.type.arrow():
            arrays.append(column)
            continue
        before = of_arrow(given)
        if before is None or not widens(before, field.type):
            raise StateError(f"{what} with the field '{field.name}' as {given}, and it is {field.type} now; {_REMEDY}")

        def wrong(row: int, field: Field = field, column: pa.ChunkedArray = column) -> str:
            value = column[row].as_py()
            return f"{what}, and the field '{field.name}' of one is {value}, which is no {field.type}; {_REMEDY}"

        arrays.append(_widened(column, field.type.arrow(), wrong))
    return pa.Table.from_arrays(arrays, names=[f.name for f in event.fields])


def _widened(column: pa.ChunkedArray, type_: pa.DataType, wrong: Callable[[int], str]) -> pa.ChunkedArray:
    """The column as of another type. wrong: what to say of the first row whose value does not fit."""
    try:
        return widened(column, type_)
    except _WRONG as error:
        first = next(row for row in range(len(column)) if not _fits(column.slice(row, 1), type_))
        raise StateError(wrong(first)) from error


def _fits(value: pa.ChunkedArray, type_: pa.DataType) -> bool:
    try:
        widened(value, type_)
    except _WRONG:
        return False
    return True
