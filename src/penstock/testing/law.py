"""Run an app both ways and compare: the law, for a user's own app and data.

    def test_bank_means_what_it_says():
        ps.testing.check(bank, load={Account: [{"id": "a"}]}, batches=[[Transfer(ts=1, ...)]])

Each batch runs on the engine (`app.open()`) and on the reference (`app.reference()`), which calls
the functions as the Python they are. The first outcome or record that differs is shown with the
source of its transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from penstock.declare import notebook
from penstock.declare.model import Program
from penstock.declare.objects import Event
from penstock.errors import InputError
from penstock.testing.compare import describe, outcomes_difference, tables_difference

_NAMES = ("engine", "reference")


def check(
    app: Any,
    *,
    load: Mapping[Any, Any] | None = None,
    batches: Iterable[Any] = (),
    policy: Any = None,
    watermark: int | None = None,
) -> list[pa.Table]:
    """Assert that engine and reference agree on every outcome and record; the outcomes of each batch. One event in the
    place of a batch is called. With a watermark all batches have it. Where that, or an atomic batch, holds events, a
    flush behind them is the last batch."""
    given: list[tuple[Any, dict[str, Any]]] = [
        (batch if isinstance(batch, Mapping | Event) else list(batch), {"watermark": watermark}) for batch in batches
    ]
    if watermark is not None or app.program.batches:
        given.append(([], {"flush": True}))
    out = []
    with app.open() as engine, app.reference() as reference:
        for table, rows in (load or {}).items():
            engine.load(table, rows)
            reference.load(table, rows)
        for number, (batch, options) in enumerate(given):
            if isinstance(batch, Event):
                outcomes, wanted = _call(app.program, number, batch, engine, reference)
            else:
                outcomes, wanted = engine.run(batch, policy=policy, **options), reference.run(batch, **options)
            _compare_outcomes(app.program, number, outcomes, wanted)
            for event in app.program.outputs():
                found = outcomes_difference(engine.emitted(event.name), reference.emitted(event.name))
                if found is not None:
                    raise AssertionError(
                        f"app '{app.program.name}', batch {number}: what it emits of '{event.name}' differs\n"
                        f"{describe(found, _NAMES)}"
                    )
            for name in app.program.flow.timed if app.program.flow is not None else ():
                found = outcomes_difference(engine.pending(name), reference.pending(name))
                if found is not None:
                    raise AssertionError(
                        f"app '{app.program.name}', after batch {number}: the timers of '{name}' differ\n"
                        f"{describe(found, _NAMES)}"
                    )
            _compare_tables(app.program, number, engine, reference)
            out.append(outcomes)
    return out


def _call(program: Program, number: int, event: Event, engine: Any, reference: Any) -> tuple[pa.Table, pa.Table]:
    """All that the call has run, as both say."""
    before, told = reference.version, reference.call(event)
    if told is None:
        raise InputError(
            f"app '{program.name}', batch {number}: this call has a ts of its own, and would wait for the watermark; "
            "leave out its ts, or put it into a batch"
        )
    found = engine.call(event)
    if reference.version > before:
        return engine.outcomes(engine.version), reference.outcomes(reference.version)
    schema = program.outcomes()
    return pa.Table.from_pylist([found], schema=schema), pa.Table.from_pylist([told], schema=schema)


def _compare_outcomes(program: Program, number: int, a: pa.Table, b: pa.Table) -> None:
    found = outcomes_difference(a, b)
    if found is not None:
        name = (found.right or found.left or {}).get("transaction")
        raise AssertionError(
            f"app '{program.name}', batch {number}: outcomes differ\n"
            f"{describe(found, _NAMES)}\n{_source(program, name)}"
        )


def _compare_tables(program: Program, number: int, engine: Any, reference: Any) -> None:
    for table in program.tables:
        keys = [c.name for c in table.keys]
        found = tables_difference(engine.table(table.name), reference.table(table.name), keys)
        if found is not None:
            sources = "\n".join(
                _source(program, t.name) for t in program.transactions if _mentions(t.function, table.name)
            )
            raise AssertionError(
                f"app '{program.name}', after batch {number}: table '{table.name}' differs, though the outcomes agree\n"
                f"{describe(found, _NAMES)}\n{sources}"
            )


def _mentions(function: Any, name: str) -> bool:
    return name in function.__code__.co_names or name in function.__code__.co_freevars


def _source(program: Program, name: str | None) -> str:
    """A transaction's source with its line numbers."""
    function = next((t.function for t in program.transactions if t.name == name), None)
    if function is None:
        return ""
    source, first = notebook.source(function)
    shown = "".join(f"  {first + i:4}  {line}" for i, line in enumerate(source.splitlines(keepends=True)))
    return f"in {function.__code__.co_filename}:\n{shown}"
