"""The Arrow border: what a user hands in, as Arrow tables of exactly the declared shape.

    call(event)                    called()   EventBatch of one row, whose ts may be null
    run(batch)                     events()   [EventBatch(event, table, arrival), ...]
      [Transfer(...), Top(...)]   --------->    one for each type of event in the batch;
      {Transfer: table, ...}                    arrival is each row's place in the batch
    load(Account, rows)            rows()
      [{"id": "a"}, ...]          --------->  pa.Table of the table's columns, no null, no key twice
      Arrow table

Everything is checked here, once, before anything is applied: past this border no stage meets a
wrong type, a null ts or a null key, text that is no UTF-8 or a time that Python does not have. An Arrow table
of the right types passes without a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.declare.model import Column, EventDef, Program, TableDef
from penstock.declare.objects import Event, EventType
from penstock.errors import InputError
from penstock.execute.casting import column, left_out, values, without_columns
from penstock.execute.source_files import SourceFile, SourceRows
from penstock.execute.validate import JUDGED, refuse_strangers, refuse_unsound


@dataclass(frozen=True, slots=True)
class EventBatch:
    """The events of one type in a batch."""

    event: EventDef
    table: pa.Table  # the fields of event.arrow(), in that order; a str may be dictionary<int32, string>
    arrival: npt.NDArray[np.int64]  # the place of each row in the batch
    files: tuple[SourceFile, ...] = ()  # that its rows are read from, where the log names these
    refused: Any = None  # which rows of these files are no events

    def column(self, name: str) -> pa.ChunkedArray:
        # By its place: quicker than Arrow's search for the name.
        return self.table.column(self.event.place(name))

    def where(self, wanted: Any) -> EventBatch:
        """Those of its rows."""
        if wanted.all():
            return self
        return EventBatch(self.event, self.table.filter(pa.array(wanted)).combine_chunks(), self.arrival[wanted])


def events(program: Program, batch: Any, *, sound: bool = False, called: bool = False) -> list[EventBatch]:
    """The batch by type of event; InputError if any of it cannot be taken. sound: tables whose values were looked at
    before, since they come from a log. called: of a version that calls made."""
    if isinstance(batch, Mapping):
        return _from_tables(program, batch, sound, called)
    if isinstance(batch, Event | str) or _is_arrow(batch) or not isinstance(batch, Iterable):
        raise InputError(
            f"app '{program.name}': a batch is a list of events or a dict of tables, {{Transfer: table}}; "
            f"got {type(batch).__name__}"
        )
    return _from_events(program, list(batch))


def fitting(program: Program, who: Any, data: pa.Table) -> EventDef:
    """The event whose rows these may be; InputError if the schema does not fit, whatever they hold."""
    return events(program, {who: data.slice(0, 0)})[0].event


def _instead(program: Program, given: Any) -> str:
    """How an event is made, by one of this app's own that has a place in time."""
    own = next((one.event for one in program.transactions if one.event.order is not None), None)
    if own is None:
        return "no transaction of this app takes one that has a ps.order(); call one: db.call(...)"
    made = f"make one as {own.name}({own.order}=…, ...)"
    if isinstance(given, Mapping):
        return f"{made}, or give all rows by their event: db.run({{{own.name}: [{{…}}]}})"
    return made


def called(program: Program, event: Any) -> EventBatch:
    """The event of a call; or of several at once, as a name and a table. Its ts may be null: it runs at the clock."""
    who = f"app '{program.name}'"
    name, data = event if isinstance(event, tuple) else (getattr(event, "definition", None), event)
    if not isinstance(event, Event | tuple):
        raise InputError(f"{who}: {event!r} is not an event, and only an event is called; make one as Transfer(id=7)")
    definition = _event(program, name, who, called=True)
    where = f"event '{definition.name}'"
    if program.takes_several(definition.name):
        raise InputError(f"{where} is taken by a transaction of several events, and a call is one; put it into a batch")
    if isinstance(data, Event):
        needed = () if definition.id is None else (definition.id,)
        table = _table_of_values(definition, [data.values], needed, lambda _: where)
    else:
        data = _with_left_out(definition, data)
        if not data.num_rows or not data.schema.equals(definition.arrow()):
            has = ", ".join(f"{f.name}: {f.type}" for f in data.schema)
            raise InputError(
                f"{where} was called with {data.num_rows} row(s) of other fields than it has in app '{program.name}': "
                f"{has}; call it with the code that the writer runs"
            )
        table = _event_table(definition, data.combine_chunks(), where, sound=False, called=True)
    return EventBatch(definition, table, np.arange(table.num_rows))


def rows(table: TableDef, rows: Any) -> pa.Table:
    """Rows for `load` as a table of exactly the declared columns."""
    where = f"table '{table.name}'"
    found = _table_of_dicts(table, rows) if _is_dicts(rows) else _table_of_arrow(table, arrow(rows, where), where)
    for c, data in zip(table.columns, found.columns, strict=True):
        if data.null_count and not c.nullable:
            raise InputError(f"{_at(where, c)}, row {_first_null(data)}: is null; give it a value{_or_leave_out(c)}")
    _refuse_double_keys(table, found)
    return found


def key(table: TableDef, parts: tuple[Any, ...]) -> pa.Table:
    """One key, as a table of the key columns."""
    where = f"table '{table.name}'"
    arrays = []
    for c, part in zip(table.keys, parts, strict=True):
        if part is None:
            raise InputError(f"{_at(where, c)}: is null, which no key is; give it a value")
        arrays.append(values([part], c.type, where=lambda _, c=c: _at(where, c)))  # type: ignore[misc]
    return pa.table(arrays, names=[c.name for c in table.keys])


def output(program: Program, event: Any) -> EventDef:
    """The event that goes out which the user named."""
    name = str(event.definition.name if isinstance(event, EventType) else event)
    for one in program.outputs():
        if one.name == name:
            return one
    names = ", ".join(e.name for e in program.outputs()) or "none"
    raise InputError(f"app '{program.name}' has no output {name!r}; its outputs are {names}")


def timed(program: Program, event: Any) -> EventDef:
    """The event that is emitted with at= which the user named."""
    name = str(event.definition.name if isinstance(event, EventType) else event)
    names = program.flow.timed if program.flow is not None else ()
    found = program.event(name) if name in names else None
    if found is None:
        known = ", ".join(names) or "none"
        raise InputError(f"app '{program.name}' has no timers {name!r}; the events that it emits with at= are {known}")
    return found


def moment(program: Program, t: Any) -> int:
    """A place in time that the user gave, as the number that it is in a lane."""
    type_ = program.order_type()
    if type_ is None:
        raise InputError(f"app '{program.name}' has no clock: none of its events has a ps.order()")
    at = f"db.advance({t!r}) of app '{program.name}', whose ts is {type_}"
    if t is None:
        raise InputError(f"{at}: None is no time; give one")
    return int(values([t], type_, where=lambda _: at).cast(pa.int64())[0].as_py())


def _from_events(program: Program, batch: list[Any]) -> list[EventBatch]:
    places: dict[str, list[int]] = {}
    found: dict[str, EventDef] = {}
    for i, event in enumerate(batch):
        if not isinstance(event, Event):
            raise InputError(f"app '{program.name}', event {i}: {event!r} is not an event; {_instead(program, event)}")
        if event.definition.name not in found:
            found[event.definition.name] = _event(program, event.definition, f"event {i}")
            places[event.definition.name] = []
        elif event.definition != found[event.definition.name]:
            _event(program, event.definition, f"event {i}")
        places[event.definition.name].append(i)
    return [
        EventBatch(event, _table_of_given(event, [batch[i].values for i in at], at), np.array(at, np.int64))
        for event, at in ((found[name], at) for name, at in places.items())
    ]


def _table_of_given(event: EventDef, records: list[dict[str, Any]], places: list[int] | range) -> pa.Table:
    return _table_of_values(event, records, (event.order, event.id), lambda i: f"event {places[i]} ({event.name})")


def _table_of_values(
    event: EventDef, records: list[dict[str, Any]], needed: tuple[str | None, ...], who: Callable[[int], str]
) -> pa.Table:
    """needed: the fields that are never null. who: opens the message about a record."""
    arrays = []
    for f in event.fields:

        def where(i: int, name: str = f.name) -> str:
            return f"{who(i)}, field '{name}'"

        data = [r.get(f.name, f.left_out) for r in records]
        array = values(data, f.type, where=where)
        if f.name in needed and array.null_count:
            raise InputError(f"{where(_first_null(array))}: is null; every {event.name} needs its {f.name}")
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=event.arrow()) if arrays else without_columns(len(records))


def _from_tables(program: Program, batch: Mapping[Any, Any], sound: bool, called: bool) -> list[EventBatch]:
    out: list[EventBatch] = []
    start = 0
    for who, data in batch.items():
        event = _event(program, who, f"app '{program.name}'", called=called)
        where = f"event '{event.name}'"
        if any(a.event is event for a in out):
            raise InputError(f"{where} is given twice in one batch; give it one table")
        if isinstance(data, SourceRows) and data.unreadable is not None:
            raise InputError(f"{where}: {data.unreadable.column('reason')[0]}")
        files, refused = (data.files, data.refused) if isinstance(data, SourceRows) else ((), None)
        data = data.table if isinstance(data, SourceRows) else data
        if _is_dicts(data):
            _refuse_unknown(where, "field", data, {f.name for f in event.fields})
            table = _table_of_given(event, data, range(len(data)))
        else:
            table = _event_table(event, arrow(data, where), where, sound)
        out.append(EventBatch(event, table, np.arange(start, start + table.num_rows, dtype=np.int64), files, refused))
        start += table.num_rows
    return out


def _event_table(event: EventDef, data: pa.Table, where: str, sound: bool, *, called: bool = False) -> pa.Table:
    """called: then its ts may be null."""
    needed = [name for name in (event.id, None if called else event.order) if name is not None]
    if _is_right(event, data, needed):
        for place, f in enumerate(event.fields):
            if f.type.kind in JUDGED and not sound:
                refuse_unsound(data.column(place).chunk(0), f.type, where=f"{where}, column '{f.name}'")
            if not sound:
                refuse_strangers(data.column(place).chunk(0), f.type, where=f"{where}, column '{f.name}'")
        return data
    arrays = {}
    for f in event.fields:
        at = f"{where}, column '{f.name}'"
        if not f.required and f.name not in data.column_names:
            arrays[f.name] = left_out(f, data.num_rows)
            continue
        array = column(_take(data, f.name, at), f.type, where=at, dictionary=True, sound=sound)
        if f.name in needed and array.null_count:
            raise InputError(f"{at}, row {_first_null(array)}: is null; every {event.name} needs its {f.name}")
        arrays[f.name] = array
    return pa.table(arrays) if arrays else without_columns(data.num_rows)


def _is_right(event: EventDef, data: pa.Table, needed: list[str]) -> bool:
    """Whether the table can be taken as it is: the short way of small batches, which the long way agrees with."""
    if not data.schema.equals(event.arrow()) or len(data.to_batches()) != 1:
        return False
    return not any(data.column(event.place(name)).null_count for name in needed)


def _with_left_out(event: EventDef, data: pa.Table) -> pa.Table:
    """Called events with all their fields, if only some are given, and none that there is not."""
    if data.num_columns >= len(event.fields) or not set(data.column_names) <= {f.name for f in event.fields}:
        return data
    given = {name: data.column(name) for name in data.column_names}
    columns = [given.get(f.name, left_out(f, data.num_rows) if not f.required else None) for f in event.fields]
    nulls = [pa.nulls(data.num_rows, f.type.arrow()) for f in event.fields]
    columns = [null if column is None else column for column, null in zip(columns, nulls, strict=True)]
    return pa.table(columns, names=[f.name for f in event.fields])


def _event(program: Program, who: Any, where: str, *, called: bool = False) -> EventDef:
    """The event of this program that the user named. called: one without a place in time will do."""
    definition = who.definition if isinstance(who, EventType) else who
    name = definition.name if isinstance(definition, EventDef) else str(definition)
    event = program.event(name)
    if event is not None and isinstance(definition, EventDef) and definition is not event and definition != event:
        # As where an app was declared anew, in a notebook, and the event is of the one before.
        raise InputError(
            f"{where}: this '{name}' is not an event of app '{program.name}', whose '{name}' has other fields; make it "
            "with that one"
        )
    if event is None:
        declared = ", ".join(e.name for e in program.events) or "none"
        since = (
            "; if the app has declared it since, open the database again" if isinstance(definition, EventDef) else ""
        )
        raise InputError(f"{where}: '{name}' is not an event of app '{program.name}'; its events are {declared}{since}")
    if event.order is None and not called:
        raise InputError(
            f"{where}: event '{name}' has no place in time, so it can only be emitted or called: db.call({name}(...)); "
            "to stream it, write one of its fields as `ts: int = ps.order()`"
        )
    if program.transaction_of(event) is None:
        raise InputError(f"{where}: event '{name}' has no transaction; declare one: def f(e: {name})")
    return event


def _table_of_dicts(table: TableDef, records: list[dict[str, Any]]) -> pa.Table:
    who = f"table '{table.name}'"
    _refuse_unknown(who, "column", records, {c.name for c in table.columns})
    arrays = []
    for c in table.columns:
        at = _at(who, c)
        if c.required:
            missing = next((i for i, r in enumerate(records) if c.name not in r), None)
            if missing is not None:
                raise InputError(f"{at}, row {missing}: is missing and has no default; give it a value")
        data = [r.get(c.name, c.default) for r in records]
        arrays.append(values(data, c.type, where=lambda i, at=at: f"{at}, row {i}"))  # type: ignore[misc]
    return pa.Table.from_arrays(arrays, schema=table.arrow())


def _table_of_arrow(table: TableDef, data: pa.Table, where: str) -> pa.Table:
    names = [c.name for c in table.columns]
    unknown = [n for n in data.column_names if n not in names]
    if unknown:
        raise InputError(f"{where} has no column '{unknown[0]}'; it has {', '.join(names)}: rename it or leave it out")
    arrays = []
    for c in table.columns:
        if c.required or c.name in data.column_names:
            arrays.append(column(_take(data, c.name, _at(where, c)), c.type, where=_at(where, c)))
        else:
            arrays.append(pa.repeat(pa.scalar(c.default, c.type.arrow()), data.num_rows))
    return pa.Table.from_arrays(arrays, schema=table.arrow())


def _refuse_double_keys(table: TableDef, found: pa.Table) -> None:
    keys = found.select([c.name for c in table.keys])
    if keys.group_by(keys.column_names).aggregate([]).num_rows == found.num_rows:
        return
    seen: dict[tuple[Any, ...], int] = {}
    for i, key in enumerate(zip(*(c.to_pylist() for c in keys.columns), strict=True)):
        if key in seen:
            shown = ", ".join(repr(k) for k in key)
            raise InputError(
                f"table '{table.name}': rows {seen[key]} and {i} have the same key, {shown}; give each key once"
            )
        seen[key] = i


def _refuse_unknown(where: str, noun: str, records: Iterable[dict[str, Any]], names: set[str]) -> None:
    for i, record in enumerate(records):
        unknown = record.keys() - names
        if unknown:
            raise InputError(
                f"{where}, row {i}: there is no {noun} '{min(unknown, key=str)}'; it has {', '.join(sorted(names))}"
            )


def _take(data: pa.Table, name: str, where: str) -> pa.ChunkedArray:
    places = data.schema.get_all_field_indices(name)
    if len(places) != 1:
        problem = "is missing; add it to the Arrow table" if not places else "is there twice; keep one"
        raise InputError(f"{where}: {problem}")
    return data.column(places[0])


def _first_null(data: pa.Array | pa.ChunkedArray) -> int:
    return int(data.is_null().index(True).as_py())


def _is_arrow(data: Any) -> bool:
    return (
        isinstance(data, pa.Table | pa.RecordBatch) or hasattr(data, "__arrow_c_stream__") or hasattr(data, "to_arrow")
    )


def _is_dicts(data: Any) -> bool:
    return isinstance(data, list | tuple) and all(isinstance(r, dict) for r in data)


def arrow(data: Any, where: str) -> pa.Table:
    """Anything that is an Arrow table, or can be one."""
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if not isinstance(data, pa.Table) and _is_arrow(data):
        data = pa.table(data) if hasattr(data, "__arrow_c_stream__") else data.to_arrow()
    if isinstance(data, pa.Table):
        return data
    raise InputError(f"{where}: give a list of dicts or an Arrow table, not {type(data).__name__}")


def _at(where: str, c: Column) -> str:
    return f"{where}, {'key' if c.key else 'column'} '{c.name}'"


def _or_leave_out(c: Column) -> str:
    return "" if c.required else f", or leave it out for its default, {c.default}"
