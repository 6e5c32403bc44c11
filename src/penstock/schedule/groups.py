"""Transactions that can never meet: they share no table that one of them writes. Each group may have its own policy."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.execute.codegen.layout import CLOCK
from penstock.execute.native import BatchContext, Result
from penstock.execute.order import clocks_of
from penstock.plan.ir import Plan


def groups(plan: Plan) -> list[list[int]]:
    """The events of each group, by number."""
    found: list[tuple[set[int], set[str], set[str]]] = []  # events, tables that are read or written, those written
    for transaction in plan.transactions:
        tables = {op.table for op in transaction.block.walk() if op.table}
        one = ({plan.program.kind(transaction.event)}, tables, set(transaction.writes))
        apart = []
        for other in found:
            if other[1] & one[2] or other[2] & one[1]:
                one = (one[0] | other[0], one[1] | other[1], one[2] | other[2])
            else:
                apart.append(other)
        found = [*apart, one]
    return sorted(sorted(events) for events, _, _ in found)


def part(running: BatchContext, places: Any) -> BatchContext:
    """These events of a batch, as a batch of their own over the same tables."""
    fields = tuple((np.zeros(places.size, v.dtype), np.zeros(places.size, np.bool_)) for v, _ in running.result.fields)
    result = Result(np.zeros(places.size, np.int32), fields)
    own = {"kind": running.fixed["kind"][places], "pos": running.fixed["pos"][places], "code": result.code}
    if CLOCK.name in running.fixed:
        own[CLOCK.name] = clocks_of(running.fixed[CLOCK.name], places)
    for k, (values, given) in enumerate(fields):
        own |= {f"o{k}": values, f"h{k}": given}
    return BatchContext(running.tables, result, running.parts, running.fixed | own, int(places.size))


def put_back(running: BatchContext, places: Any, own: BatchContext) -> None:
    """What became of a part, to the places that it was taken from."""
    running.result.code[places] = own.result.code
    for (values, given), (new, told) in zip(running.result.fields, own.result.fields, strict=True):
        values[places], given[places] = new, told
