"""Which records of a state directory break a check of its app: a check that is new is held against them only when they
are written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.execute import loading
from penstock.plan.ir import Plan
from penstock.plan.migration import Words, migration
from penstock.plan.schema import Schema
from penstock.replica.directory import Directory
from penstock.store import carry


@dataclass(frozen=True, slots=True)
class BrokenRecord:
    table: str
    key: str
    check: str


def broken_records(plan: Plan, directory: Directory) -> Iterator[BrokenRecord]:
    """As of the newest version. Where the app has not been opened there yet, as its schema would make them."""
    where, view = str(directory.path), directory.view()
    change = migration(plan.program, directory.schema(view.version), Schema.of(plan), Words(), where)
    for table in plan.program.tables:
        rows = view.tables.get(table.name)
        if rows is None or not table.checks:
            continue
        if table.name in change.restated:
            rows = carry.restated(table, rows, {}, f"state directory {where}")
        for key, check in loading.broken(table, loading.records(table, rows)):
            yield BrokenRecord(table.name, key, check)
