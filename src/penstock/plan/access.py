"""What a transaction touches, what may abort it, and on which records each of these depends.

This is the raw material of a schedule. From the accesses of a batch follow the dependencies
    temporal    the same table and key in an earlier event
    parametric  `needs`: the records whose values, or presence, decide what this access does
    logical     all accesses of one event stand or fall together; `requirements` says by what
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from penstock.plan.foresee import unforeseen
from penstock.plan.ir import Block, Op, Plan, TransactionPlan, walk
from penstock.plan.text import Texts


@dataclass(frozen=True, slots=True)
class Access:
    op: int
    # read, write, insert, delete, look (only whether it is there), scan; of a window add, see
    kind: str
    table: str
    keys: tuple[int, ...]  # the key's values
    key: str  # the key as text
    needs: tuple[str, ...]  # other records that decide what this access does
    alone: str  # where the key is from, if it cannot be known before the transaction runs: a schedule runs that alone

    @property
    def foreseen(self) -> bool:
        return not self.alone


@dataclass(frozen=True, slots=True)
class Requirement:
    """One way in which a transaction may abort."""

    reason: str
    needs: tuple[str, ...]  # the records that decide it


def accesses(block: Block) -> tuple[Access, ...]:
    return tuple(_Finder(block).accesses())


def requirements(plan: Plan, transaction: TransactionPlan) -> tuple[Requirement, ...]:
    """Every reason for which a transaction may abort, its tables' checks included; equal ones once."""
    finder = _Finder(transaction.block)
    found = [Requirement(reason, finder.deciders(op)) for op in transaction.block.walk() for reason in op.reasons]
    for access in finder.accesses():
        if access.kind in ("write", "insert"):
            for check in plan.checks_of(access.table):
                reasons = [check.text, *(r for op in check.block.walk() for r in op.reasons)]
                found += [Requirement(reason, (f"{access.table}[{access.key}]",)) for reason in reasons]
    return tuple(dict.fromkeys(found))


def given(block: Block) -> dict[str, tuple[str, ...]]:
    """Returned field -> the records that it comes from."""
    finder = _Finder(block)
    out: dict[str, set[str]] = {}
    for op in block.walk():
        if op.code == "return":
            out.setdefault(op.name, set()).update(finder.deciders(op))
    return {name: tuple(sorted(needs)) for name, needs in out.items()}


def shown(table: str) -> str:
    """A table's name, or that of the window whose hidden table it is."""
    return table.removeprefix("$")


class _Finder:
    def __init__(self, block: Block) -> None:
        self.block = block
        self.texts = Texts(block)
        self.unforeseen = unforeseen(block)
        self.ops = {op.id: op for op in block.walk()}
        self.carries = {c.id: (c.init, c.next) for op in block.walk() for c in op.carries}
        # What decides that a turn takes place: the loop's guard, its bounds, what ends it.
        self.loops: dict[int, list[Op]] = {}
        for loop in (op for op in block.walk() if op.is_loop):
            for inner in walk(loop.body):
                self.loops.setdefault(inner.id, []).append(loop)

    def accesses(self) -> Iterator[Access]:
        used = {op.args[0] for op in self.ops.values() if op.looks_through}
        for op in self.block.walk():
            # A lookup that nothing reads or writes still asks whether a record is there.
            if not op.traits.access or (op.traits.access == "look" and op.id in used):
                continue
            if op.code == "scan":
                yield Access(op.id, "scan", op.table, (), "*", self.deciders(op), self.unforeseen[op.id])
                continue
            row = self.ops[op.args[0]] if op.looks_through else op
            if row.code == "self":
                continue
            keys = row.args[: row.const]  # an insert knows how many of its arguments are the key
            key = self.texts.join(keys)
            reads = op.traits.access in ("read", "see")
            needs = [] if reads else [n for n in self.deciders(op) if n != self.record(op)]
            alone = self.unforeseen.get(row.id, "")
            yield Access(op.id, op.traits.access, shown(op.table), keys, key, tuple(needs), alone)

    def deciders(self, op: Op) -> tuple[str, ...]:
        """The records whose values, or presence, decide what an operation does."""
        roots, scanned = [*op.args, op.guard], set[str]()
        for loop in self.loops.get(op.id, ()):
            roots += [*loop.args, loop.guard, loop.until]
            scanned |= {f"{loop.table}[*]"} if loop.code == "scan" else set()
        found = {self.record(self.ops[one]) for one in self.reads(r for r in roots if r is not None)}
        if op.traits.takes == "key" and op.traits.aborts:
            found.add(f"{shown(op.table)}[{self.texts.join(op.args[: op.const])}]")
        return tuple(sorted(found | scanned))

    def record(self, op: Op) -> str:
        row = self.ops[op.args[0]] if op.looks_through else op
        return f"{shown(op.table)}[{self.texts.join(row.args[: row.const])}]"

    def reads(self, values: Iterable[int]) -> set[int]:
        """The reads and finds that these values come from."""
        found: set[int] = set()
        seen: set[int] = set()
        todo = list(values)
        while todo:
            value = todo.pop()
            if value in seen:
                continue
            seen.add(value)
            if value in self.carries:
                todo += self.carries[value]
                continue
            op = self.ops[value]
            if "column" in op.traits.reads or op.traits.access in ("see", "add"):
                found.add(value)
            elif op.code == "present":
                found.add(op.args[0])
            if op.traits.takes != "key":
                todo += [*op.args, *([op.guard] if op.guard is not None else [])]
        return found
