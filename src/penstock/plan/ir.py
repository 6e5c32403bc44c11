"""The plan's language: typed operations under guards.

A body becomes a flat list of operations in program order. Each makes at most one value, named by
its number, and runs only if its guard (a bool value) holds:

    %4  locate Account(%3)              -> row       aborts `missing Account`
    %5  read balance(%4)                -> decimal(18, 2)
    %7  lt(%5, %6)                      -> bool
    --  abort "not enough"              if %7

There are no branches: an `if` is guards on what it holds and a `select` for each name that both
arms may set. A loop is one operation with a body of its own; names that change from turn to turn
are its carries. An operation that aborts ends the transaction: what follows it may rely on it.

Invariants, which verify.py keeps: a value is defined before it is used; a guard is a bool; an
operation's arguments are in scope (a loop's body sees what is outside it, never the reverse,
except through carries).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from penstock.declare.model import Program, TableDef
from penstock.declare.objects import Udf
from penstock.declare.types import Type

ROW = Type("row")  # the place of a record in its table; negative where there is none

COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
ARITHMETIC = ("add", "sub", "mul", "div", "floordiv", "mod", "neg", "abs")
LOGIC = ("not", "and", "or", "select", "present")
# Operations on records. find: row or none; locate: row or abort; ensure: insert the defaults where there is none.
LOOKUPS = ("find", "locate", "ensure")
CHANGES = ("ensure", "insert", "delete")
CODES = (
    ("const", "self", "field", "list", "len", "item", "convert", "udf")
    + COMPARE
    + ARITHMETIC
    + LOGIC
    + ("find", "locate", "ensure", "insert", "delete", "read", "read_or", "write")
    + ("abort", "give", "each", "range")
)


@dataclass(frozen=True, slots=True)
class Carry:
    """A value that changes from turn to turn of a loop; `id` is its value inside and after it."""

    id: int
    type: Type
    init: int
    next: int


@dataclass(frozen=True, slots=True)
class Op:
    id: int
    code: str
    args: tuple[int, ...] = ()
    type: Type | None = None
    guard: int | None = None
    line: int = 0
    table: str = ""
    name: str = ""  # a column, a field, a reason, a function
    const: Any = None  # const: the value; item: which list; range: the step; insert: how many arguments are the key
    body: tuple[Op, ...] = ()  # loops
    carries: tuple[Carry, ...] = ()  # loops
    until: int | None = None  # loops: a bool of the body that ends it after this turn
    undo: bool = True  # writes: something later may still abort

    @property
    def is_loop(self) -> bool:
        return self.code in ("each", "range")

    @property
    def is_effect(self) -> bool:
        return self.code in ("write", "insert", "delete", "ensure", "give", "abort", "each", "range")

    @property
    def may_abort(self) -> bool:
        match self.code:
            case "field" | "list":
                return bool(self.const)  # const: the field may be null
            # ensure never aborts a transaction for good, but where its table is full the transaction is undone,
            # the table grows, and the transaction runs again.
            case "locate" | "insert" | "ensure" | "delete" | "abort" | "udf" | "div" | "floordiv" | "mod":
                return True
            case "add" | "sub" | "mul":
                assert self.type is not None
                return self.type.kind != "float"
            case "neg" | "abs":
                assert self.type is not None
                return self.type.kind == "int"
            case "convert":
                assert self.type is not None
                return self.type.kind == "decimal"
            case "each" | "range":
                return any(op.may_abort for op in self.body)
        return False


@dataclass(frozen=True, slots=True)
class Block:
    """Operations of one transaction or one check."""

    name: str
    ops: tuple[Op, ...]
    source: str = ""  # the function that it was lowered from, for those who print it
    first: int = 0  # the line of its file on which that begins

    def walk(self) -> Iterator[Op]:
        return walk(self.ops)

    def line(self, number: int) -> str:
        """A line of the source by its number in the file; none where nothing is known of it."""
        lines, place = self.source.split("\n"), number - self.first
        return lines[place].strip() if 0 <= place < len(lines) else ""


@dataclass(frozen=True, slots=True)
class TransactionPlan:
    name: str
    event: str
    block: Block
    writes: tuple[str, ...]  # tables that it may write
    file: str = ""


@dataclass(frozen=True, slots=True)
class CheckPlan:
    table: str
    text: str
    block: Block


@dataclass(frozen=True, slots=True)
class Plan:
    program: Program
    transactions: tuple[TransactionPlan, ...]
    checks: tuple[CheckPlan, ...]
    udfs: tuple[tuple[str, Udf], ...] = ()

    def table(self, name: str) -> TableDef:
        return self.program.table(name)

    def checks_of(self, table: str) -> tuple[CheckPlan, ...]:
        return tuple(c for c in self.checks if c.table == table)

    def explain(self) -> str:
        from penstock.plan.explain import explain

        return explain(self)


def walk(ops: tuple[Op, ...]) -> Iterator[Op]:
    """Every operation, loops before what they hold."""
    for op in ops:
        yield op
        yield from walk(op.body)
