"""The law: whatever the input, the native engine equals the reference in every outcome and record.

`agree` runs one sequence of batches on both and compares as it goes. A batch can be handed over
in several forms, which must not matter.
"""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.declare.objects import Event, EventType
from penstock.testing import assert_same_outcomes, assert_same_tables

# How a batch is handed over: event objects; a table for each type of event; such tables cut out of
# larger ones, so that offsets are not zero; in several chunks; with strings dictionary-encoded.
FORMS = ("events", "tables", "sliced", "chunks", "dictionary")


def agree(app: Any, rows: dict[Any, Any], batches: Iterable[Any], policy: Any = None) -> None:
    """Raise AssertionError where the engine and the reference differ. What atomic batches hold is run at the end."""
    reference = app.reference()
    with app.open() as db:
        for table, some in rows.items():
            db.load(table, some, check=False)
            reference.load(table, some, check=False)
        for batch in batches:
            step(app, db, reference, batch, policy)
        if app.program.batches:
            step(app, db, reference, [], policy, flush=True)


def agree_reopened(app: Any, rows: dict[Any, Any], batches: Iterable[Any], path: Path, log: str) -> None:
    """The same on a directory that is opened again before each batch; and behind each the clock is set by hand."""
    reference = app.reference()
    with app.open(path, log=log, background=False) as db:
        for table, some in rows.items():
            db.load(table, some, check=False)
            reference.load(table, some, check=False)
    for number, batch in enumerate(batches):
        with app.open(path, log=log, snapshot_every=2, background=False) as db:
            step(app, db, reference, batch)
            same(app, db, reference, db.advance(7 * number), reference.advance(7 * number))


def step(app: Any, db: Any, reference: Any, batch: Any, policy: Any = None, **options: Any) -> None:
    """One batch, run on both."""
    same(app, db, reference, db.run(batch, policy=policy, **options), reference.run(batch, **options))


def same(app: Any, db: Any, reference: Any, got: Any, wanted: Any) -> None:
    """Of one batch the outcomes, and what both sides have behind it."""
    assert_same_outcomes(got, wanted)
    _same_zeros(got, wanted)
    assert db.held == reference.held
    for event in app.program.outputs():
        assert_same_outcomes(db.emitted(event.name), reference.emitted(event.name))
    for name in app.program.flow.timed if app.program.flow is not None else ():
        assert_same_outcomes(db.pending(name), reference.pending(name))
    for table in app.program.tables:
        keys = [c.name for c in table.keys]
        got, wanted = (_sorted(side.table(table.name), keys) for side in (db, reference))
        assert_same_tables(got, wanted, keys)
        _same_zeros(got, wanted)


def in_form(events: list[Event], form: str) -> Any:
    """The same events in another form; tables order ties of different types otherwise than a list does."""
    if form == "events":
        return events
    kinds = {e.definition.name: e.definition for e in events}
    out = {}
    for name, definition in kinds.items():
        records = [e.values for e in events if e.definition.name == name]
        table = pa.Table.from_pylist(records, schema=definition.arrow())
        if form == "sliced":
            table = pa.concat_tables([table, table, table]).combine_chunks().slice(table.num_rows, table.num_rows)
        elif form == "chunks":
            table = pa.concat_tables([table.slice(0, 1), table.slice(1, 0), table.slice(1)])
        elif form == "dictionary":
            for place, field in enumerate(table.schema):
                if field.type == pa.string():
                    table = table.set_column(place, field.name, table.column(place).dictionary_encode())
        out[EventType(definition)] = table
    return out


def spoiled(batch: dict[EventType, pa.Table]) -> dict[EventType, pa.Table]:
    """The same with rows that cannot be events between its own: copies without a ts, or without an id."""
    out = {}
    for kind, table in batch.items():
        pieces = []
        for i in range(table.num_rows):
            row = table.slice(i, 1)
            pieces.append(row)
            for name in (kind.definition.order, kind.definition.id):
                if name is not None and i % 3 == 0:
                    place = table.column_names.index(name)
                    pieces.append(row.set_column(place, name, pa.nulls(1, table.schema.field(name).type)))
        out[kind] = pa.concat_tables(pieces) if pieces else table
    return out


def _sorted(table: pa.Table, keys: list[str]) -> pa.Table:
    return table.sort_by([(key, "ascending") for key in keys])


def _same_zeros(got: pa.Table, wanted: pa.Table) -> None:
    """0.0 equals -0.0, but a record must not change from one to the other."""
    for field in wanted.schema:
        if field.type == pa.float64():
            for row, (a, b) in enumerate(zip(got[field.name].to_pylist(), wanted[field.name].to_pylist(), strict=True)):
                same = a is None or a != 0 or math.copysign(1, a) == math.copysign(1, b)
                assert same, f"row {row}, {field.name}: the engine has {a}, the reference {b}"
