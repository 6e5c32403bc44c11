"""Plan -> numba source that runs events on the tables themselves: one function for a batch, event after event.

    for each block of events: ask for the slots that they will look at (prefetch.py)
    for each event, in order:
        by its kind, the transaction's operations, fused:
            a lookup probes the hash index in place; a write pushes the old value to the undo log
            an abort sets c and leaves the one-turn `while`
        checks of the records it wrote
        c != 0: undo from the log; otherwise: returned fields to the outcome's columns

The text is deterministic: the same plan gives the same source, and so the same cached machine code.
Names: p0_v7 the value %7 of event 0's transaction, p0_x7 a row as an unsigned index, t0_c1 table 0's column 1,
e0_amount event 0's field, o0 and h0 returned field 0 and whether it is given, d g f n u: a table's counts (dirty,
tombstones, free, rows, slots used).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from penstock.execute.codegen import checks, records, source, undo
from penstock.execute.codegen import prefetch as ahead
from penstock.execute.codegen.emitter import Emitter
from penstock.execute.codegen.layout import (
    FIXED,
    FULL,
    Argument,
    clock_arguments,
    event_arguments,
    out_arguments,
    scan_arguments,
    scanned_tables,
    table_arguments,
    text_arguments,
)
from penstock.execute.codegen.source import Source
from penstock.execute.codegen.subroutines import Cutter
from penstock.plan.ir import Op, Plan, TransactionPlan

# `cached` is handed to the module by whoever loads it.
DECORATOR = '@cached\n@nb.njit(nogil=True, error_model="numpy", boundscheck=False, no_cfunc_wrapper=True)'

# A table's counts in its meta, by name: see state/table.py.
COUNTS = (("n", 0, "rows used"), ("f", 1, "free"), ("d", 2, "dirty"), ("g", 3, "tombstones"), ("u", 4, "slots used"))


def head(plan: Plan, more: str = "") -> Source:
    """What a module of generated functions begins with: imports and udfs."""
    out = Source()
    windows = source.WINDOWS if plan.windows else ""
    kernels = "".join(source.MODULES[name] for name in called_modules(plan))
    out.text(source.IMPORTS + (source.SCANS if scanned_tables(plan) else "") + windows + kernels + more)
    for name, udf in plan.udfs:
        out.text(source.udf_wrapper(name, udf.fingerprint.digest))
    return out


def called_modules(plan: Plan) -> list[str]:
    """The modules of kernels that operations name: those of MODULES."""
    blocks = [*(t.block for t in plan.transactions), *(c.block for c in plan.checks)]
    names = {op.name for block in blocks for op in block.walk() if op.code in ("call", "look", "make")}
    return sorted({name.split(".")[0] for name in names if "." in name})


def used_fields(plan: Plan) -> dict[str, set[str]]:
    """Event -> the fields that its transaction looks at."""
    used: dict[str, set[str]] = {e.name: set() for e in plan.program.events}
    for transaction in plan.transactions:
        used[transaction.event] |= {op.name for op in transaction.block.walk() if "event" in op.traits.reads}
    return used


def one_turn(
    out: Source, plan: Plan, cutter: Cutter, event: int, ops: Iterable[Op], run: Callable[[list[tuple[str, int]]], None]
) -> None:
    """The one-turn loop around these operations, which `run` writes, and what they return.

    A returned field is a name until the transaction is through. In a long kernel it goes where it belongs at once:
    that an aborted event gave something is not looked at, and many names would go through many calls.
    """
    returns = [name for name, _ in plan.program.lanes]
    types = dict(plan.program.lanes)
    codes = {op.name: op.code for op in ops if op.code in ("return", "member")}
    codes |= {lane: op.code for op in ops if op.code == "tell" for lane in op.const}
    given = [(n, k) for k, n in enumerate(returns) if codes.get(n) == "return"]
    for k in (k for k, n in enumerate(returns) if codes.get(n) == "member"):
        out.line(f"o{k}[i] = 0")
    for k in (k for k, n in enumerate(returns) if codes.get(n) == "tell"):
        out.line(f"h{k}[i] = False")

    def nothing(out: Source, several: Sequence[tuple[str, int]]) -> None:
        for _, k in several:
            out.line(f"h{k}[i] = False")

    if cutter.long:
        cutter.run(out, given, nothing)
    else:
        for name, k in given:
            out.line(f"given{event}_{k} = False")
            out.line(f"value{event}_{k} = {source.zero(types[name])}")
    out.line("while True:")
    with out.indented():
        run(given)
        for _, k in given if not cutter.long else ():
            out.line(f"o{k}[i] = value{event}_{k}")
            out.line(f"h{k}[i] = given{event}_{k}")
        out.line("break")


class InPlace:
    """Writes the source that runs one event, and what has to stand around it."""

    def __init__(self, plan: Plan, cutter: Cutter, *, notes: bool = False) -> None:
        self.plan, self.cutter = plan, cutter
        self.emitter = Emitter(plan, cutter, notes=notes)
        self.used = used_fields(plan)

    def arguments(self) -> tuple[Argument, ...]:
        """What the kernel takes, in order."""
        return (*FIXED, *self.own_arguments())

    def own_arguments(self) -> list[Argument]:
        """What is the plan's: its tables, the fields of its events, what it returns."""
        program = self.plan.program
        out: list[Argument] = []
        for number in range(len(self.plan.tables)):
            out += table_arguments(self.plan, number)
        for number, event in enumerate(program.events):
            out += event_arguments(self.plan, number, self.used[event.name])
        return [
            *out,
            *clock_arguments(self.plan),
            *out_arguments(self.plan),
            *scan_arguments(self.plan),
            *text_arguments(self.plan),
        ]

    def kernel(self, out: Source) -> None:
        self.begin(out)
        out.line("for block in range(start, stop, BLOCK):")
        with out.indented():
            out.line("end = min(block + BLOCK, stop)")
            self.ahead(out)
            out.line("for i in range(block, end):")
            with out.indented():
                self.event(out)
        self.store_counts(out)
        out.line("return stop")

    def begin(self, out: Source) -> None:
        """What holds for all events."""
        for t, table in enumerate(self.plan.tables):
            records.mask(out, f"t{t}")
            for name, place, meaning in COUNTS:
                out.line(f"{name}{t} = t{t}_meta[{place}]{self.emitter.note(f'{table.name}: {meaning}')}")
        for argument in self.own_arguments():
            if argument.part.startswith("valid"):
                out.line(f"any_{argument.name} = {argument.name}.size > 0")

    def ahead(self, out: Source, place: str = "i") -> None:
        """Ask for the slots of the index that the block will look at. place: the name of a place in the batch."""
        wanted, events = {}, self.plan.program.events
        for transaction in self.plan.transactions:
            number = self.event_number(transaction)
            if events[number].order is not None:
                wanted[number] = ahead.foreseen(self.plan, transaction, number)
        if not any(wanted.values()):
            return
        out.line(f"for {place} in range(block, end):")
        with out.indented():
            out.line(f"j = np.uint64(pos[{place}])")
            word = "if"
            for number, several in wanted.items():
                out.line(f"{word} kind[{place}] == {number}:{self.emitter.note(events[number].name)}")
                with out.indented():
                    ahead.emit(out, several, self.cutter)
                word = "elif"

    def event(self, out: Source) -> None:
        """Run event i, or undo it. Where something is full, nothing of it has happened, and the function ends."""
        out.line("j = np.uint64(pos[i])")
        out.line("c = 0")
        out.line("nu = 0")
        out.line("nt = 0")
        for t in range(len(self.plan.tables)):
            out.line(f"d{t}_before = d{t}")
        self.transactions(out)
        out.line("if c != 0:")
        with out.indented():
            for t in range(len(self.plan.tables)):
                out.line(f"d{t} = d{t}_before")
            self.undo(out)
            out.line(f"if c == {FULL}:{self.emitter.note('full')}")
            with out.indented():
                self.store_counts(out)
                out.line("return i")
        out.line("code[i] = c")

    def event_number(self, transaction: TransactionPlan) -> int:
        return self.plan.program.kind(transaction.event)

    def transactions(self, out: Source, first: str = "if", kind: str = "kind[i]") -> None:
        word = first
        for transaction in self.plan.transactions:
            number = self.event_number(transaction)
            out.line(f"{word} {kind} == {number}:  # {transaction.name}({transaction.event})")
            with out.indented():
                self.cutter.whole(out, partial(self.transaction, transaction=transaction, event=number))
            word = "elif"

    def transaction(self, out: Source, transaction: TransactionPlan, event: int) -> None:
        def run(given: list[tuple[str, int]]) -> None:
            self.emitter.block(out, transaction.block, event, given)
            checks.checks(self.emitter, out, transaction.block)

        one_turn(out, self.plan, self.cutter, event, transaction.block.walk(), run)

    def undo(self, out: Source, mark: str = "0") -> None:
        """Take back, newest first, what the log says; down to a mark."""
        entries = self.emitter.undo_codes
        if not entries:
            return
        out.line(f"while nu > {mark}:")
        with out.indented():
            out.line("nu -= 1")
            out.line("what = undo_what[nu]")
            out.line("at = np.uint64(undo_at[nu])")
            out.line("old = undo_old[nu]")
            self.cutter.run(out, list(enumerate(entries)), self.undo_some)

    def undo_some(self, out: Source, entries: Sequence[tuple[int, tuple[str, str]]]) -> None:
        word = "if"
        for code, (table, part) in entries:
            note = self.emitter.note(undo.meaning(self.emitter, table, part))
            out.line(f"{word} what == {code}:{note}")
            with out.indented():
                undo.undo_one(self.emitter, out, table, part)
            word = "elif"

    def store_counts(self, out: Source) -> None:
        for t in range(len(self.plan.tables)):
            for name, place, _ in COUNTS:
                out.line(f"t{t}_meta[{place}] = {name}{t}")
