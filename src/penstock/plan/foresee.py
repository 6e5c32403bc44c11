"""Which records a transaction may reach, as far as the event alone tells it before anything runs.

A site is a place in the body that looks a record up. Lookups of one key are one site; a site in loops is met once a
turn of those loops that its key's items are from. The sites are a superset: a guard may keep the body from going
there, and so may an abort on the way to the key.

A key may be anything that the event's fields and constants make. What cannot be foreseen, so that a schedule runs the
transaction alone: a key from state; from a udf, which need not give the same twice; that a loop carries from turn to
turn; from a slice of a list; or from loops of which nothing says beforehand that their turns are few: a range of no
constant length or of more than MOST_TURNS, or two lists at once, whose turns are the product. Neither can the records
of a scan. And a transaction that makes a string runs alone, for others would write it to the same place.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from penstock.plan.ir import Block, Op, Plan, TransactionPlan

# Each turn has an entry in the batch's graph, also those that the body breaks off before.
MOST_TURNS = 64
_SCANNED, _SCAN = "from a scan", "scan of "
_NEW_TEXT = "a new string"


@dataclass(frozen=True, slots=True)
class Site:
    table: str
    keys: tuple[int, ...]  # the values that are the key
    loop: tuple[int, ...]  # the loops whose items the key is made of: one over lists first, then ranges
    writes: bool
    rows: tuple[int, ...]  # the lookups that are this site


@dataclass(frozen=True, slots=True)
class AccessSet:
    """The sites of one transaction: those outside loops first, then those of each loop, or loops at once, in turn."""

    sites: tuple[Site, ...]
    loops: tuple[tuple[int, ...], ...]
    turns: dict[int, int]  # loop -> how often it runs, of those where that is constant

    def straight(self) -> tuple[Site, ...]:
        return self.of_loop(())

    def of_loop(self, loop: tuple[int, ...]) -> tuple[Site, ...]:
        return tuple(s for s in self.sites if s.loop == loop)

    def site_of(self, row: int) -> Site:
        return next(s for s in self.sites if row in s.rows)


def foresee(transaction: TransactionPlan) -> AccessSet | None:
    """None where a key cannot be known before the transaction runs."""
    keys = _Keys(transaction.block)
    if keys.scans or keys.interns or any(keys.alone(op) for op in keys.lookups):
        return None
    # Behind a choice between records, each of them may be the one that is written.
    written = keys.behind(
        tuple(op.args[0] for op in keys.ops.values() if op.traits.takes == "row" and op.traits.writes)
    )
    found: dict[tuple[str, tuple[int, ...], tuple[int, ...]], list[Op]] = {}
    for op in keys.lookups:
        loop = tuple(one.id for one in keys.loops(op))
        found.setdefault((op.table, op.args[: op.const], loop), []).append(op)
    sites = [
        Site(
            table,
            key,
            loop,
            any("presence" in o.traits.writes or o.id in written for o in several),
            tuple(o.id for o in several),
        )
        for (table, key, loop), several in found.items()
    ]
    order = tuple(dict.fromkeys(s.loop for s in sites if s.loop))
    sites.sort(key=lambda s: order.index(s.loop) if s.loop else -1)
    turns = {id_: keys.turns(keys.ops[id_]) for loop in order for id_ in loop}
    return AccessSet(tuple(sites), order, {id_: count for id_, count in turns.items() if count is not None})


def unforeseen(block: Block) -> dict[int, str]:
    """Why a transaction runs alone: lookups, and where their key is from; scans; and new strings."""
    keys = _Keys(block)
    found = {op.id: why for op in keys.lookups if (why := keys.alone(op))}
    return found | {op.id: f"{_SCAN}{op.table}" for op in keys.scans} | {op.id: _NEW_TEXT for op in keys.interns}


def in_words(several: set[str]) -> str:
    """What `unforeseen` says of transactions, in words."""
    tables = sorted(one.removeprefix(_SCAN) for one in several if one.startswith(_SCAN))
    # That keys are from a scan goes without saying where the scan is named.
    keys = sorted(one for one in several if not one.startswith(_SCAN) and one not in (_SCANNED, _NEW_TEXT))
    parts = [f"a key {' or '.join(keys)}"] if keys else []
    parts += [f"a scan of {', '.join(tables)}"] if tables else []
    return " or ".join([*parts, *([_NEW_TEXT] if _NEW_TEXT in several else [])])


class _Keys:
    """The lookups of a block, and what their keys are made of."""

    def __init__(self, block: Block) -> None:
        self.ops = {op.id: op for op in block.walk()}
        self.lookups = [op for op in self.ops.values() if op.traits.takes == "key"]
        self.interns = [op for op in self.ops.values() if op.traits.interns]
        self.scans = [op for op in self.ops.values() if op.code == "scan"]
        self.owner = block.loops_of_items()
        self.windows = {op.table for op in self.ops.values() if op.traits.takes == "window"}
        self.made = {op.id: op.args for op in self.ops.values()}
        for loop in (op for op in self.ops.values() if op.is_loop):
            ends = () if loop.until is None else (loop.until,)
            self.made |= {c.id: (c.init, c.next, *loop.args, *ends) for c in loop.carries}

    def behind(self, values: tuple[int, ...]) -> set[int]:
        """These values and all that they are made of; guards apart, which decide only that they are needed."""
        seen: set[int] = set()
        todo = list(values)
        while todo:
            value = todo.pop()
            if value not in seen:
                seen.add(value)
                todo += self.made[value]
        return seen

    def loops(self, lookup: Op) -> list[Op]:
        """The loops whose items its key is made of: one over lists, of which there is one at most, before ranges."""
        behind = self.behind(lookup.args[: lookup.const])
        found = {self.owner[v].id: self.owner[v] for v in behind if v in self.owner}
        return sorted(found.values(), key=lambda loop: (loop.code != "each", loop.id))

    def turns(self, loop: Op) -> int | None:
        """How often a loop runs, where that is constant."""
        bounds = [self.ops[a] for a in loop.args if a in self.ops]
        if loop.code != "range" or len(bounds) < len(loop.args) or any(op.code != "const" for op in bounds):
            return None
        start, stop = (op.const for op in bounds)
        return max(0, -((start - stop) // loop.const))  # `len` of a range counts to 2^63 only

    def alone(self, lookup: Op) -> str:
        """Where a key is from, if it cannot be foreseen."""
        if lookup.table in self.windows:
            return "of a window"
        behind = self.behind(lookup.args[: lookup.const])
        made = [self.ops[v] for v in behind if v in self.ops]
        of_rows = any(self.owner[v].code == "rows" for v in behind if v in self.owner)
        if of_rows or any({"presence", "column", "rows"} & set(op.traits.reads) for op in made):
            return "from state"
        if len(made) < len(behind):
            return "from a loop's earlier turns"
        if any(op.code == "udf" for op in made):
            return "from a udf"
        loops = self.loops(lookup)
        if any(loop.code == "scan" for loop in loops):
            return _SCANNED
        counts = [self.turns(loop) for loop in loops if loop.code == "range"]
        if None in counts:
            return "from a range of no constant length"
        if prod(count or 0 for count in counts) > MOST_TURNS:
            return "from a long range"
        given = (self.ops[a] for loop in loops for a in loop.args if a in self.ops)
        if any(op.code == "slice" for op in (*made, *given)):
            return "from a slice"
        return "from two lists" if len(loops) - len(counts) > 1 else ""


def growing(plan: Plan) -> set[str]:
    """Tables that some transaction may insert into."""
    return {
        op.table for t in plan.transactions for op in t.block.walk() if {"presence", "column"} <= set(op.traits.writes)
    }
