"""The values of messages as events: JSON objects, Avro records or Arrow streams, checked one by one.

What cannot be an event is told by its place, "topic transfers, partition 2, offset 17", and why. Good values are parsed
many at once; only where that fails are they told apart, by halves, so that one bad message in a million costs 20 looks.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.declare.model import EventDef
from penstock.errors import InputError
from penstock.execute.casting import column, left_out, without_columns
from penstock.execute.source_files import SourceRows

# What Arrow's reader of JSON does not read as what it is: it comes as this, and is cast.
_JSON_AS = {"date": pa.string(), "timedelta": pa.int64()}
_BLOCK = 1 << 20

# Events of messages, and how many each message has, where that is not one; InputError, or one of Arrow's, where any of
# the messages is bad.
Parse = Callable[[EventDef, list[bytes]], tuple[pa.Table, list[int] | None]]


@dataclass(slots=True)
class Messages:
    """Records of a topic, one partition's behind another's."""

    topic: str
    values: list[bytes | None] = field(default_factory=list)  # None: a tombstone
    offsets: list[int] = field(default_factory=list)
    partitions: list[int] = field(default_factory=list)  # whose records begin
    begins: list[int] = field(default_factory=list)  # where

    def add(self, partition: int, offsets: list[int], values: list[bytes | None]) -> None:
        self.partitions.append(partition)
        self.begins.append(len(self.values))
        self.offsets += offsets
        self.values += values

    def where(self, i: int) -> str:
        partition = self.partitions[bisect_right(self.begins, i) - 1]
        return f"topic {self.topic}, partition {partition}, offset {self.offsets[i]}"


@dataclass(frozen=True, slots=True)
class BadValue:
    place: int  # among the messages
    reason: str
    ts: Any = None  # what can be read of it
    id: Any = None


@dataclass(frozen=True, slots=True)
class _Run:
    """Good messages one behind another."""

    table: pa.Table
    place: int  # of the first one
    counts: list[int] | None  # rows of each, where that is not one

    def of(self, row: int) -> int:
        """The message that a row is of."""
        return self.place + (row if self.counts is None else bisect_right(list(accumulate(self.counts)), row))


def rows(event: EventDef, messages: Messages, parse: Parse) -> SourceRows:
    """The events, and what is to be said of messages that are none."""
    bad, runs, start = list[BadValue](), list[_Run](), 0
    gone = [i for i, value in enumerate(messages.values) if value is None]
    for end in (*gone, len(messages.values)):
        _by_halves(event, messages.values[start:end], start, parse, bad, runs)  # type: ignore[arg-type]
        if end < len(messages.values):
            bad.append(BadValue(end, "it has no value (a tombstone)"))
        start = end + 1
    table = pa.concat_tables(one.table for one in runs) if runs else event.arrow().empty_table()
    return SourceRows(table, (), unreadable=_told(event, messages, bad), where=partial(_where, messages, runs))


def _by_halves(
    event: EventDef, values: list[bytes], place: int, parse: Parse, bad: list[BadValue], runs: list[_Run]
) -> None:
    if not values:
        return
    try:
        table, counts = parse(event, values)
        runs.append(_Run(table, place, counts))
        return
    except (InputError, pa.ArrowException, ValueError) as error:
        if len(values) == 1:
            read = {name: _read_only(event, of, values, parse) for name, of in (("ts", event.order), ("id", event.id))}
            bad.append(BadValue(place, f"{error}", **read))
            return
    half = len(values) // 2
    _by_halves(event, values[:half], place, parse, bad, runs)
    _by_halves(event, values[half:], place + half, parse, bad, runs)


def _read_only(event: EventDef, name: str | None, values: list[bytes], parse: Parse) -> Any:
    """One field of a message that is no event; None where that cannot be read either."""
    if name is None:
        return None
    only = tuple(f for f in event.fields if f.name == name)
    try:
        found, _ = parse(replace(event, fields=only), values)
    except (InputError, pa.ArrowException, ValueError):
        return None
    return found.column(0)[0].as_py() if found.num_rows == 1 else None


def _told(event: EventDef, messages: Messages, bad: list[BadValue]) -> pa.Table | None:
    if not bad:
        return None
    columns = {"reason": pa.array([f"{messages.where(one.place)}: {one.reason}" for one in bad])}
    for name, of in (("ts", event.order), ("id", event.id)):
        if of is not None:
            columns[name] = pa.array([getattr(one, name) for one in bad], event.type_of(of).arrow())
    return pa.table(columns)


def _where(messages: Messages, runs: list[_Run], row: int) -> str:
    """The message that a row is of."""
    for one in runs:
        if row < one.table.num_rows:
            return messages.where(one.of(row))
        row -= one.table.num_rows
    raise IndexError(row)


def parse_json(event: EventDef, values: list[bytes]) -> tuple[pa.Table, None]:
    """One object a message; names that the event has not are passed over, and those that are missing have their
    defaults, else null.

    Every message opens and closes with a brace, and no object can go on from one into the next, since there a brace
    would follow a brace. So where there are as many objects as messages, each has one.
    """
    if not event.fields:
        return without_columns(len(values)), None
    for value in values:
        if value[:1] != b"{" or value[-1:] != b"}":
            values = [value.strip() for value in values]
            break
    if any(value[:1] != b"{" or value[-1:] != b"}" for value in values):
        raise InputError(f"it is no JSON object: {_shown(values[0])}")
    data = b"\n".join(values)
    lines = data.count(b"\n") + 1
    table = _read_json(event, data, _BLOCK if lines == len(values) else len(data) + 1)
    if table.num_rows != len(values):
        raise InputError(f"it is {table.num_rows} JSON objects, not one: {_shown(values[0])}")
    return _with_defaults(event, _fitted(event, table), values), None


def _read_json(event: EventDef, data: bytes, block: int) -> pa.Table:
    import pyarrow.json as pj  # not before somebody reads JSON

    fields = [pa.field(f.name, _read_as(f.type)) for f in event.fields]
    longest = len(data) + 1 if block < len(data) else block
    parse = pj.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior="ignore")
    try:
        return pj.read_json(pa.BufferReader(data), pj.ReadOptions(block_size=block), parse)
    except pa.ArrowInvalid as error:
        if "straddling object" not in str(error) or block == longest:
            raise
        return pj.read_json(pa.BufferReader(data), pj.ReadOptions(block_size=longest), parse)


def _read_as(type_: object) -> pa.DataType:
    item = getattr(type_, "item", None)
    if item is not None:
        return pa.list_(_read_as(item))
    return _JSON_AS.get(type_.kind) or type_.arrow()  # type: ignore[attr-defined]


def _fitted(event: EventDef, table: pa.Table) -> pa.Table:
    """With the columns of the event, of its types; those that are missing have their defaults."""
    arrays = []
    for f in event.fields:
        if f.name not in table.column_names:
            arrays.append(left_out(f, table.num_rows))
            continue
        data = table.column(f.name)
        wanted = f.type.arrow()
        if _read_as(f.type) != wanted:
            data = data.cast(wanted)
        arrays.append(column(data, f.type, where=f"column '{f.name}'"))
    return pa.Table.from_arrays(arrays, schema=event.arrow())


def _with_defaults(event: EventDef, table: pa.Table, values: list[bytes]) -> pa.Table:
    """A name that is missing has its field's default, where Arrow's reader has null; a null that is given stays."""
    for place, f in enumerate(event.fields):
        data = table.column(place)
        if f.left_out is None or not data.null_count:
            continue
        nulls = np.flatnonzero(data.is_null().to_numpy())
        missing = np.zeros(len(data), np.bool_)
        missing[[i for i in nulls.tolist() if not _has(values[i], f.name)]] = True
        default = pa.scalar(f.default, data.type)
        table = table.set_column(place, table.field(place), pc.if_else(pa.array(missing), default, data))
    return table


def _has(value: bytes, name: str) -> bool:
    """Whether a JSON object has that name."""
    if name.encode() not in value and b"\\" not in value:
        return False
    try:
        return name in json.loads(value)
    except (ValueError, RecursionError) as error:
        raise InputError(f"whether it has a value for '{name}' cannot be told: {error}") from error


def parse_arrow(event: EventDef, values: list[bytes]) -> tuple[pa.Table, list[int]]:
    """An Arrow IPC stream a message, of any number of events.

    Streams of several schemas are each brought to the event's types by themselves: what they have in common might take
    what one of them, alone, may not bring.
    """
    tables = [_read_stream(event, value) for value in values]
    alike = all(table.schema == tables[0].schema for table in tables)
    several = [pa.concat_tables(tables)] if alike else tables
    return pa.concat_tables(_fitted(event, table) for table in several), [table.num_rows for table in tables]


def _read_stream(event: EventDef, value: bytes) -> pa.Table:
    """Its columns that the event has. They are what they say: Arrow's reader does not look, and its casts trust it."""
    reader = pa.BufferReader(value)
    try:
        with pa.ipc.open_stream(reader) as stream:
            table = stream.read_all()
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"it is no Arrow stream: {error}") from error
    if reader.tell() < len(value):
        raise InputError("it is no Arrow stream: something is left behind it")
    names = table.column_names
    for f in event.fields:
        if names.count(f.name) != 1 and (f.required or f.name in names):
            problem = f"it has column '{f.name}' twice" if f.name in names else f"it has no column '{f.name}'"
            raise InputError(f"{problem}; it has {', '.join(names)}")
    table = table.select([f.name for f in event.fields if f.name in names])
    table.validate(full=True)
    return table


def _shown(value: bytes) -> str:
    text = value[:60].decode(errors="replace")
    return repr(text) + ("…" if len(value) > 60 else "")
