"""Which records a transaction may reach, as far as the event alone tells it before anything runs.

A site is a place in the body that looks a record up. Lookups of one key are one site; a site in a loop over a list
is met once a turn of the loop that its key's items are from. The sites are a superset: a guard may keep the body
from going there. Keys have to be the event's own values: a transaction with one that comes from state, is computed, or
comes from a range or from two loops at once, cannot be foreseen, and a schedule runs it alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.plan.ir import Block, Op, Plan, TransactionPlan

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
class AccessSet:
    """The sites of one transaction: those outside loops first, then those of each loop in turn."""

    sites: tuple[Site, ...]
    loops: tuple[int, ...]

    def straight(self) -> tuple[Site, ...]:
        return tuple(s for s in self.sites if s.loop is None)

    def of_loop(self, loop: int) -> tuple[Site, ...]:
        return tuple(s for s in self.sites if s.loop == loop)

    def site_of(self, row: int) -> Site:
        return next(s for s in self.sites if row in s.rows)


def foresee(transaction: TransactionPlan) -> AccessSet | None:
    """None where a key cannot be known before the transaction runs."""
    if unforeseen(transaction.block):
        return None
    ops = {op.id: op for op in transaction.block.walk()}
    written = {op.args[0] for op in ops.values() if op.code == "write"}
    owner = _owners(transaction.block)
    found: dict[tuple[str, tuple[int, ...], int | None], list[Op]] = {}
    for op in (op for op in transaction.block.walk() if op.code in _ROWS):
        keys = op.args[: op.const]
        loop = next((owner[k].id for k in keys if k in owner), None)
        found.setdefault((op.table, keys, loop), []).append(op)
    sites = [
        Site(
            table, keys, loop, any(o.code in _CHANGES or o.id in written for o in several), tuple(o.id for o in several)
        )
        for (table, keys, loop), several in found.items()
    ]
    order = tuple(dict.fromkeys(s.loop for s in sites if s.loop is not None))
    sites.sort(key=lambda s: -1 if s.loop is None else order.index(s.loop))
    return AccessSet(tuple(sites), order)


def unforeseen(block: Block) -> dict[int, str]:
    """The lookups whose key cannot be known before the transaction runs, and where that key is from."""
    ops, owner = {op.id: op for op in block.walk()}, _owners(block)
    out = {}
    for op in (op for op in block.walk() if op.code in _ROWS):
        keys = op.args[: op.const]
        loops = {owner[k].id: owner[k] for k in keys if k in owner}
        if any(k not in ops or ops[k].code not in ("field", "const", "item") for k in keys):
            out[op.id] = "from state" if _reads(block, keys) else "computed from the event"
        elif any(loop.code != "each" for loop in loops.values()):
            out[op.id] = "from a range"
        elif len(loops) > 1:
            out[op.id] = "from two loops"
    return out


def _owners(block: Block) -> dict[int, Op]:
    """Item -> the loop that gives it."""
    loops = [op for op in block.walk() if op.is_loop]
    return {item.id: loop for loop in loops for item in loop.body if item.code == "item"}


def _reads(block: Block, values: tuple[int, ...]) -> bool:
    """Whether values are made from what a record holds, or from whether there is one; guards apart, which decide only
    that they are needed."""
    made = {op.id: op.args for op in block.walk()}
    for loop in (op for op in block.walk() if op.is_loop):
        ends = () if loop.until is None else (loop.until,)
        made |= {c.id: (c.init, c.next, *loop.args, *ends) for c in loop.carries}
    rows = {op.id for op in block.walk() if op.code in _ROWS}
    seen: set[int] = set()
    todo = list(values)
    while todo:
        value = todo.pop()
        if value in rows:
            return True
        if value not in seen:
            seen.add(value)
            todo += made[value]
    return False


def growing(plan: Plan) -> set[str]:
    """Tables that some transaction may insert into."""
    return {op.table for t in plan.transactions for op in t.block.walk() if op.code in ("insert", "ensure")}
