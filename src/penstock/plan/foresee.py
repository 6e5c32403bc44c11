"""Which records a transaction may reach, as far as the event alone tells it before anything runs.

A site is a place in the body that looks a record up. Lookups of one key are one site; a site in a loop over a list
is met once a turn of the loop that its key's items are from. The sites are a superset: a guard may keep the body
from going there. A transaction with a key that comes from state, or from two loops at once, cannot be foreseen: a
schedule runs it alone.
"""

from __future__ import annotations

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
    owner = {item.id: loop for loop in ops.values() if loop.is_loop for item in loop.body if item.code == "item"}
    found: dict[tuple[str, tuple[int, ...], int | None], list[Op]] = {}
    for op in (op for op in transaction.block.walk() if op.code in _ROWS):
        keys = op.args[: op.const]
        if any(k not in ops or ops[k].code not in ("field", "const", "item") for k in keys):
            return None
        loops = {owner[k].id: owner[k] for k in keys if k in owner}
        if len(loops) > 1 or any(loop.code != "each" for loop in loops.values()):
            return None
        found.setdefault((op.table, keys, next(iter(loops), None)), []).append(op)
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
