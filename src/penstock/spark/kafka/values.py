"""The values of messages as events: JSON objects, Avro records or Arrow streams, checked one by one.

What cannot be an event is told by its place, "topic transfers, partition 2, offset 17", and why. Good values are parsed
many at once; only where that fails are they told apart, by halves, so that one bad message in a million costs 20 looks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.declare.model import EventDef
from penstock.errors import InputError
from penstock.execute.casting import column, without_columns

# What Arrow's reader of JSON does not read as what it is: it comes as this, and is cast.
_JSON_AS = {"date": pa.string(), "timedelta": pa.int64()}
_BLOCK = 1 << 20

Parse = Callable[[EventDef, list[bytes]], pa.Table]  # InputError, or one of Arrow's, where any of the values is bad


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


def rows(event: EventDef, messages: Messages, parse: Parse) -> tuple[pa.Table, list[BadValue]]:
    """The events, and the messages that are none."""
    bad = [BadValue(i, "it has no value (a tombstone)") for i, value in enumerate(messages.values) if value is None]
    places = list(range(len(messages.values)))
    values = messages.values
    if bad:
        places = [i for i in places if values[i] is not None]
        values = [values[i] for i in places]
    tables = _by_halves(event, values, places, parse, bad)  # type: ignore[arg-type]
    if not tables:
        return event.arrow().empty_table(), bad
    return pa.concat_tables(tables), sorted(bad, key=lambda one: one.place)


def _by_halves(
    event: EventDef, values: list[bytes], places: list[int], parse: Parse, bad: list[BadValue]
) -> list[pa.Table]:
    if not values:
        return []
    try:
        return [parse(event, values)]
    except (InputError, pa.ArrowException, ValueError) as error:
        if len(values) == 1:
            bad.append(BadValue(places[0], f"{error}"))
            return []
    half = len(values) // 2
    first = _by_halves(event, values[:half], places[:half], parse, bad)
    return first + _by_halves(event, values[half:], places[half:], parse, bad)


def parse_json(event: EventDef, values: list[bytes]) -> pa.Table:
    """One object a message; names that the event has not are passed over, and those that are missing are null.

    Every message opens and closes with a brace, and no object can go on from one into the next, since there a brace
    would follow a brace. So where there are as many objects as messages, each has one.
    """
    if not event.fields:
        return without_columns(len(values))
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
    return _fitted(event, table)


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
    """With the columns of the event, of its types."""
    arrays = []
    for f in event.fields:
        data = table.column(f.name)
        wanted = f.type.arrow()
        if _read_as(f.type) != wanted:
            data = data.cast(wanted)
        arrays.append(column(data, f.type, where=f"column '{f.name}'"))
    for f, array in zip(event.fields, arrays, strict=True):
        if f.name in (event.order, event.id) and array.null_count:
            raise InputError(f"it has no '{f.name}', which every {event.name} needs")
    return pa.Table.from_arrays(arrays, schema=event.arrow())


def parse_arrow(event: EventDef, values: list[bytes]) -> pa.Table:
    """An Arrow IPC stream a message, of any number of events."""
    tables = []
    for value in values:
        with pa.ipc.open_stream(pa.BufferReader(value)) as stream:
            table = stream.read_all()
        missing = [f.name for f in event.fields if f.name not in table.column_names]
        if missing:
            raise InputError(f"it has no column '{missing[0]}'; it has {', '.join(table.column_names)}")
        tables.append(table.select([f.name for f in event.fields]))
    return _fitted(event, pa.concat_tables(tables, promote_options="permissive"))


def _shown(value: bytes) -> str:
    text = value[:60].decode(errors="replace")
    return repr(text) + ("…" if len(value) > 60 else "")
