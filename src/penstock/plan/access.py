"""What a transaction touches, and on what each touch depends: the raw material of a schedule.

An Access is one operation on one record. From a batch of them follow the dependencies
    temporal    the same table and key in an earlier event
    parametric  `needs`: the value or the condition of this one comes from other records
    logical     all accesses of one event stand or fall together
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.plan.ir import Block, Op, walk

KINDS = {"read": "read", "read_or": "read", "write": "write", "insert": "insert", "delete": "delete", "find": "look"}
LOOKUPS = ("find", "locate", "ensure", "insert")


@dataclass(frozen=True, slots=True)
class Access:
    op: int
    kind: str  # read, write, insert, delete, look (only whether it is there)
    table: str
    keys: tuple[int, ...]  # the key's values
    key: str  # the key as text
    needs: tuple[str, ...]  # other records whose values decide what this one writes, as text
    key_from_event: bool
    in_loop: bool


@dataclass(frozen=True, slots=True)
class Requirement:
    """One way in which a transaction may abort."""

    op: int
    reason: str
    needs: tuple[str, ...]  # the records that decide it


def accesses(block: Block) -> tuple[Access, ...]:
    return tuple(_Finder(block).run())


def requirements(block: Block) -> tuple[Requirement, ...]:
    """Every reason for which the body may abort, with the records that decide it; equal ones once."""
    finder = _Finder(block)
    found: dict[tuple[str, tuple[str, ...]], Requirement] = {}
    for op in block.walk():
        for reason in _reasons(op):
            needs = finder.deciders(op)
            found.setdefault((reason, needs), Requirement(op.id, reason, needs))
    return tuple(found.values())


def given(block: Block) -> dict[str, tuple[str, ...]]:
    """Returned field -> the records that it comes from."""
    finder = _Finder(block)
    out: dict[str, set[str]] = {}
    for op in block.walk():
        if op.code == "give":
            out.setdefault(op.name, set()).update(finder.deciders(op))
    return {name: tuple(sorted(needs)) for name, needs in out.items()}


def _reasons(op: Op) -> tuple[str, ...]:
    if not op.may_abort or op.is_loop:
        return ()
    match op.code:
        case "abort":
            return (op.name,)
        case "field" | "list":
            return (f"null {op.name}",)
        case "locate" | "delete":
            return (f"missing {op.table}",)
        case "insert":
            return (f"exists {op.table}",)
        case "udf":
            return (f"udf {op.name} failed",)
        case "ensure":
            return ()
        case "div" | "floordiv" | "mod":
            return (
                ("division by zero",)
                if op.type is not None and op.type.kind == "float"
                else ("division by zero", "overflow")
            )
    return ("overflow",)


class _Finder:
    def __init__(self, block: Block) -> None:
        self.block = block
        self.ops = {op.id: op for op in block.walk()}
        self.loops = {inner.id for op in block.walk() if op.is_loop for inner in walk(op.body)}
        self.carries = {c.id: (c.init, c.next) for op in block.walk() for c in op.carries}
        self.items = {i.id: op for op in block.walk() if op.is_loop for i in op.body if i.code == "item"}

    def run(self) -> list[Access]:
        out = []
        rows_read = {op.args[0] for op in self.ops.values() if op.code in ("read", "read_or", "write")}
        for op in self.block.walk():
            if op.code not in KINDS or (op.code == "find" and op.id in rows_read):
                continue
            row = op if op.code in ("insert", "delete", "find") else self.ops[op.args[0]]
            if row.code == "self":
                continue
            keys = row.args[: row.const]  # an insert knows how many of its arguments are the key
            key = ", ".join(self.text(k) for k in keys)
            reads = self.sources(op, keys)
            needs = sorted({f"{t}[{k}]" for t, k in reads if (t, k) != (op.table, key)}) if op.code != "read" else []
            from_event = not any(self.depends(k, set()) for k in keys)
            out.append(
                Access(op.id, KINDS[op.code], op.table, keys, key, tuple(needs), from_event, op.id in self.loops)
            )
        return out

    def deciders(self, op: Op) -> tuple[str, ...]:
        """The records whose values, or presence, decide what an operation does."""
        found = {f"{table}[{key}]" for table, key in self.sources(op, ())}
        if op.code in ("locate", "insert", "delete"):
            found.add(f"{op.table}[{', '.join(self.text(k) for k in op.args[: op.const])}]")
        return tuple(sorted(found))

    def sources(self, op: Op, keys: tuple[int, ...]) -> set[tuple[str, str]]:
        found: set[int] = set()
        for arg in (*op.args, *((op.guard,) if op.guard is not None else ())):
            if arg not in keys:
                self.depends(arg, found)
        out = set()
        for one in found:
            read = self.ops[one]
            row = self.ops[read.args[0]] if read.code in ("read", "read_or") else read
            out.add((read.table, ", ".join(self.text(k) for k in row.args)))
        return out

    def depends(self, value: int, found: set[int], seen: set[int] | None = None) -> bool:
        """Collect the reads that a value comes from; True if there is any."""
        seen = set() if seen is None else seen
        if value in seen:
            return bool(found)
        seen.add(value)
        if value in self.carries:
            for one in self.carries[value]:
                self.depends(one, found, seen)
            return bool(found)
        op = self.ops[value]
        if op.code in ("read", "read_or", "find"):
            found.add(value)
        if op.code in ("find", "locate", "ensure"):
            return bool(found)
        for one in (*op.args, *((op.guard,) if op.guard is not None else ())):
            self.depends(one, found, seen)
        return bool(found)

    def text(self, value: int) -> str:
        if value in self.carries:
            return f"%{value}"
        op = self.ops[value]
        if op.code == "field":
            return f"e.{op.name}"
        if op.code == "const":
            return repr(op.const)
        if op.code == "item":
            loop = self.items[value]
            if loop.code == "each":
                return f"e.{self.ops[loop.args[op.const]].name}[*]"
            return "range[*]"
        if op.code == "convert":
            return self.text(op.args[0])
        return f"%{value}"
