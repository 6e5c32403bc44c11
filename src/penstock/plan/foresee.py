"""Which records a transaction may reach, as far as the event alone tells it before anything runs.

A site is a place in the body that looks a record up. Lookups of one key are one site; a site in a loop over a list
is met once a turn. The sites are a superset: a guard may keep the body from going there. A transaction with a key
that comes from state, or from a loop in a loop, cannot be foreseen: a schedule runs it alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.plan.ir import Op, Plan, TransactionPlan

_ROWS = ("find", "locate", "ensure", "insert", "delete")
_CHANGES = ("ensure", "insert", "delete")


@dataclass(frozen=True, slots=True)
class Site:
    table: str
    keys: tuple[int, ...]  # the values that are the key
    loop: int | None  # the loop whose items the key is made of
    writes: bool
    rows: tuple[int, ...]  # the lookups that are this site


@dataclass(frozen=True, slots=True)
class Foresight:
    """The sites of one transaction: those outside loops first, then those of each loop in turn."""

    sites: tuple[Site, ...]
    loops: tuple[int, ...]

    def straight(self) -> tuple[Site, ...]:
        return tuple(s for s in self.sites if s.loop is None)

    def of_loop(self, loop: int) -> tuple[Site, ...]:
        return tuple(s for s in self.sites if s.loop == loop)

    def site_of(self, row: int) -> Site:
        return next(s for s in self.sites if row in s.rows)


def foresee(transaction: TransactionPlan) -> Foresight | None:
    """None where a key cannot be known before the transaction runs."""
    ops = {op.id: op for op in transaction.block.walk()}
    written = {op.args[0] for op in ops.values() if op.code == "write"}
    found: dict[tuple[str, tuple[int, ...], int | None], list[Op]] = {}
    for loops, op in _lookups(transaction.block.ops, ()):
        keys = op.args[: op.const]
        items = [k for k in keys if ops.get(k) is not None and ops[k].code == "item"]
        if any(k not in ops or ops[k].code not in ("field", "const", "item") for k in keys):
            return None
        if items and (len(loops) != 1 or loops[0].code != "each"):
            return None
        found.setdefault((op.table, keys, loops[0].id if items else None), []).append(op)
    sites = [
        Site(
            table, keys, loop, any(o.code in _CHANGES or o.id in written for o in several), tuple(o.id for o in several)
        )
        for (table, keys, loop), several in found.items()
    ]
    order = tuple(dict.fromkeys(s.loop for s in sites if s.loop is not None))
    sites.sort(key=lambda s: -1 if s.loop is None else order.index(s.loop))
    return Foresight(tuple(sites), order)


def growing(plan: Plan) -> set[str]:
    """Tables that some transaction may insert into."""
    return {op.table for t in plan.transactions for op in t.block.walk() if op.code in ("insert", "ensure")}


def _lookups(ops: tuple[Op, ...], loops: tuple[Op, ...]) -> Iterator[tuple[tuple[Op, ...], Op]]:
    for op in ops:
        if op.code in _ROWS:
            yield loops, op
        yield from _lookups(op.body, (*loops, op))
