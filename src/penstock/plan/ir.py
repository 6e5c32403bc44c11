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

from penstock.declare.model import Program, TableDef, WindowDef
from penstock.declare.objects import Udf
from penstock.declare.types import Type

ROW = Type("row")  # the place of a record in its table; negative where there is none
MEMBER = Type("member")  # the place of an event among those of its type, where a transaction takes several
MEMBERS = Type("list", item=MEMBER)
RANGE = Type("rows")  # rows of a window: whose, the number of the first, and the number behind the last


@dataclass(frozen=True, slots=True)
class Traits:
    """What is known of an opcode. Stages ask this; none of them lists opcodes."""

    # Its value as a template of its arguments ("{0} and {1}"), or the function of execute/codegen that writes it.
    emit: str
    sign: str = ""  # as Python writes it between its operands
    orders: bool = False  # a comparison that needs an order
    aborts: tuple[str, ...] = ()  # the reasons for which it may abort, as templates of its table and name
    conditional: bool = False  # it may abort only where its const says so
    fits: tuple[str, ...] = ()  # kinds of result that never overflow
    retries: bool = False  # where its table is full the transaction is undone, the table grows, and it runs again
    shared: bool = False  # an equal one before it will do, until a record that it asks for comes or goes
    cheap: bool = False  # run rather than guarded, where it cannot abort
    pure: bool = True  # nobody sees whether it ran but those who use its value
    loop: bool = False
    whole: bool = False  # a transaction that has it is not split
    stands: bool = False  # it takes no line of its own: it stands where it is used
    # "key": its first arguments are a key; "row": its first one is a row; "table": all of its records; "emission": the
    # number of a timer; "window": a window's rows
    takes: str = ""
    # "event": a field; "column": a value of a record; "presence": whether there is a record; "rows": those of a window
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()  # likewise
    access: str = ""  # what a schedule calls it
    interns: bool = False  # it makes a string, which only a transaction that runs alone can do

    @property
    def compares(self) -> bool:
        return self.emit == "comparison"

    @property
    def of_column(self) -> bool:
        """Whether it reads or writes one column of a row."""
        return self.takes == "row" and "column" in self.reads + self.writes


_BY_ZERO = ("division by zero", "overflow")
_OVERFLOW = ("overflow",)
_TOO_MANY = ("too many events",)
_CHECKS = ("a check",)
_MISSING, _EXISTS, _NULL = ("missing {table}",), ("exists {table}",), ("null {name}",)
_THERE, _COLUMN, _RECORD, _ROWS = ("presence",), ("column",), ("presence", "column"), ("rows",)

OPERATIONS: dict[str, Traits] = {
    # Values, and what the event gives. const, item: bound where they are used. field, list: of the member that is their
    # argument, where a transaction takes several events, which `members` are.
    "const": Traits("nothing", shared=True, stands=True),
    "item": Traits("nothing"),
    "field": Traits("field", aborts=_NULL, conditional=True, shared=True, cheap=True, reads=("event",)),
    "is_null": Traits("is_null", shared=True, cheap=True, reads=("event",)),
    "list": Traits("list", aborts=_NULL, conditional=True, shared=True, reads=("event",)),
    "members": Traits("members"),
    "len": Traits("{0}_n", cheap=True),
    # An item of a list by its place, and the items from one place to another; whole: a list is handed to no fragment.
    "index": Traits("index", aborts=("index out of range",), shared=True),
    "slice": Traits("slice", shared=True, cheap=True, whole=True),
    # The clock; only a call may find that there is none yet.
    "now": Traits("now", aborts=("no clock yet",), conditional=True, shared=True, cheap=True),
    "convert": Traits("convert", aborts=_OVERFLOW, fits=("float",), cheap=True),
    "call": Traits("call", aborts=_OVERFLOW, conditional=True, shared=True),
    # Strings: look looks at them, make makes one; name is the kernel.
    "look": Traits("look", shared=True),
    "make": Traits("make", aborts=_OVERFLOW, retries=True, shared=True, interns=True),
    "udf": Traits("udf", aborts=("udf {name} failed",)),
    # Comparison.
    "eq": Traits("comparison", "==", cheap=True),
    "ne": Traits("comparison", "!=", cheap=True),
    "lt": Traits("comparison", "<", orders=True, cheap=True),
    "le": Traits("comparison", "<=", orders=True, cheap=True),
    "gt": Traits("comparison", ">", orders=True, cheap=True),
    "ge": Traits("comparison", ">=", orders=True, cheap=True),
    # Arithmetic.
    "add": Traits("operator", "+", aborts=_OVERFLOW, fits=("float",), cheap=True),
    "sub": Traits("operator", "-", aborts=_OVERFLOW, fits=("float",), cheap=True),
    "mul": Traits("operator", "*", aborts=_OVERFLOW, fits=("float",), cheap=True),
    "div": Traits("division", "/", aborts=_BY_ZERO, fits=("float",)),
    "floordiv": Traits("division", "//", aborts=_BY_ZERO, fits=("float",)),
    "mod": Traits("division", "%", aborts=_BY_ZERO, fits=("float",)),
    "neg": Traits("unary", aborts=_OVERFLOW, fits=("float", "decimal"), cheap=True),
    "abs": Traits("unary", aborts=_OVERFLOW, fits=("float", "decimal"), cheap=True),
    # Logic.
    "not": Traits("not {0}", shared=True, cheap=True),
    "and": Traits("{0} and {1}", shared=True, cheap=True),
    "or": Traits("{0} or {1}", shared=True, cheap=True),
    "select": Traits("{1} if {0} else {2}", cheap=True),
    # Records. find: row or none; locate: row or abort; ensure: insert the defaults where there is none; self: the row
    # that a check looks at.
    "self": Traits("self"),
    "find": Traits("record", shared=True, takes="key", reads=_THERE, access="look"),
    "locate": Traits("record", aborts=_MISSING, shared=True, takes="key", reads=_THERE, access="look"),
    "ensure": Traits("record", retries=True, shared=True, pure=False, takes="key", reads=_THERE, writes=_RECORD),
    "insert": Traits("record", aborts=_EXISTS, pure=False, takes="key", reads=_THERE, writes=_RECORD, access="insert"),
    "delete": Traits("record", aborts=_MISSING, pure=False, takes="key", reads=_THERE, writes=_THERE, access="delete"),
    "present": Traits("{0} >= 0", cheap=True, takes="row", reads=_THERE),
    "read": Traits("record", takes="row", reads=_COLUMN, access="read"),
    "read_or": Traits("record", takes="row", reads=_RECORD, access="read"),
    "write": Traits("record", pure=False, takes="row", writes=_COLUMN, access="write"),
    # The records of a table, or some: the rows are collected before the first turn, where there is room for them.
    "scan": Traits("loop", retries=True, pure=False, loop=True, takes="table", reads=_RECORD, access="scan"),
    # Windows. seen: of a record of the hidden table and the clock, if it is of time; entered, expired: of an add.
    "seen": Traits("seen", shared=True, takes="window", reads=_ROWS, access="see"),
    "window_add": Traits(
        "window_add", retries=True, pure=False, takes="window", reads=_ROWS, writes=_ROWS, access="add"
    ),
    "entered": Traits("slid", takes="window"),
    "expired": Traits("slid", takes="window"),
    "window_len": Traits("{0}_b - {0}_a", shared=True, cheap=True),
    "window_sum": Traits("window_sum", aborts=_OVERFLOW, fits=("float",), shared=True, takes="window", reads=_ROWS),
    "window_min": Traits("window_best", shared=True, takes="window", reads=_ROWS),
    "window_max": Traits("window_best", shared=True, takes="window", reads=_ROWS),
    # Values that may be None (nullable.py). reason: the number of a reason to abort with; use: aborts for the reason
    # that its argument is, if it is one.
    "reason": Traits("nothing", shared=True, stands=True),
    "use": Traits("use", aborts=_NULL, shared=True),
    # Control.
    "abort": Traits("abort", aborts=("{name}",), pure=False),
    "return": Traits("return", pure=False),
    # What the abort behind it gives: values, to the lanes that its const names.
    "tell": Traits("tell", pure=False, whole=True),
    # Where the queue of its event is full the round is undone, the queue grows, and the round runs again.
    "emit": Traits("emit", aborts=_TOO_MANY, retries=True, pure=False),
    # A group that is one transaction (inline.py). emitted: counts towards what a round may emit; member: counts in a
    # lane; checks: of all that was written since those before.
    "emitted": Traits("emitted", aborts=_TOO_MANY, pure=False, whole=True),
    "member": Traits("member", pure=False, whole=True),
    "checks": Traits("checks", aborts=_CHECKS, pure=False, whole=True),
    # An emit with at=: it waits in a table, and its last argument is when it runs.
    "timer": Traits(
        "timer", aborts=(*_TOO_MANY, *_OVERFLOW), retries=True, pure=False, takes="emission", writes=_RECORD
    ),
    "each": Traits("loop", pure=False, loop=True),
    "range": Traits("loop", pure=False, loop=True),
    "rows": Traits("loop", pure=False, loop=True, takes="window", reads=_ROWS),
}


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
    name: str = ""  # a column, a field, a reason, a function, an event, a lane
    # const: the value; make: which of its arguments are ints; field, list: whether it may be null; now: whether there
    # may be none; call: whether it may overflow; item: which list (-1: the number of the turn), which key column of a
    # record, or which column of a window's row; range: the step; insert: how many of its arguments are the key; tell: a
    # lane for each argument; scan: which records; window_sum: whether of what is seen, of which the sum is kept;
    # checks: the tables
    const: Any = None
    body: tuple[Op, ...] = ()  # loops
    carries: tuple[Carry, ...] = ()  # loops
    until: int | None = None  # loops: a bool of the body that ends it after this turn
    undo: bool = True  # writes: something later may still abort

    @property
    def traits(self) -> Traits:
        return OPERATIONS[self.code]

    @property
    def is_loop(self) -> bool:
        return self.traits.loop

    @property
    def makes(self) -> tuple[int, ...]:
        """The values that are known behind it by its id, or by those of what a loop carries."""
        return (self.id, *(carry.id for carry in self.carries))

    @property
    def uses(self) -> tuple[int, ...]:
        """The values that it takes itself; what it holds takes more."""
        ends = (end for end in (self.guard, self.until) if end is not None)
        return (*self.args, *ends, *(value for carry in self.carries for value in (carry.init, carry.next)))

    @property
    def looks_through(self) -> bool:
        """Whether its first argument is the row of what it looks at or changes."""
        return self.traits.of_column or (self.traits.takes == "window" and bool(self.traits.access))

    @property
    def may_abort(self) -> bool:
        if self.traits.loop and any(op.may_abort for op in self.body):
            return True
        return self.traits.retries or bool(self._aborts())

    @property
    def reasons(self) -> tuple[str, ...]:
        """What itself, not what it holds, may abort the transaction with."""
        return tuple(text.format(table=self.table, name=self.name) for text in self._aborts())

    def _aborts(self) -> tuple[str, ...]:
        traits = self.traits
        if traits.conditional and not self.const:
            return ()
        if self.type is not None and self.type.kind in traits.fits:
            return tuple(text for text in traits.aborts if text != "overflow")
        return traits.aborts


@dataclass(frozen=True, slots=True)
class Block:
    """Operations of one transaction or one check."""

    name: str
    ops: tuple[Op, ...]
    source: str = ""  # the function that it was lowered from, for those who print it
    first: int = 0  # the line of its file on which that begins

    def walk(self) -> Iterator[Op]:
        return walk(self.ops)

    def loops_of_items(self) -> dict[int, Op]:
        """Item -> the loop that gives it."""
        return {item.id: loop for loop in self.walk() if loop.is_loop for item in loop.body if item.code == "item"}

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
class WindowPlan:
    definition: WindowDef
    table: TableDef  # hidden: where each key's rows lie (plan/windows.py)
    summed: tuple[int, ...]  # the columns whose sums are kept


@dataclass(frozen=True, slots=True)
class Plan:
    program: Program
    transactions: tuple[TransactionPlan, ...]
    checks: tuple[CheckPlan, ...]
    udfs: tuple[tuple[str, Udf], ...] = ()
    windows: tuple[WindowPlan, ...] = ()

    @property
    def tables(self) -> tuple[TableDef, ...]:
        """What the state consists of: the program's own, and behind them the windows' hidden ones."""
        return (*self.program.stored, *(w.table for w in self.windows))

    def table(self, name: str) -> TableDef:
        return next(t for t in self.tables if t.name == name)

    def window(self, table: str) -> WindowPlan | None:
        """The window that a hidden table is of."""
        return next((w for w in self.windows if w.table.name == table), None)

    @property
    def uses_clock(self) -> bool:
        """Whether transactions look at the clock or set timers, or their records expire."""
        looks = any(op.code == "now" for transaction in self.transactions for op in transaction.block.walk())
        return looks or bool(self.program.timers) or any(table.ttl is not None for table in self.program.tables)

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
