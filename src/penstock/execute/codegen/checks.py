"""The source of checks: at the end of a transaction, every record that it wrote and that is still there.

Straight-line code knows those records by name. Records written in a loop are listed as they are written; so are those
of a group that is one transaction, where each member has its checks at its own end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

from penstock.execute.codegen.source import Source
from penstock.plan.ir import Block, Op

if TYPE_CHECKING:
    from penstock.execute.codegen.emitter import Emitter


def note(em: Emitter, out: Source, op: Op, x: str) -> None:
    """Remember a written record for the checks at the end."""
    if em.logs_touched and em.plan.checks_of(op.table):
        out.line(f"touched[nt] = {em.numbers[op.table]}")
        out.line(f"touched[nt + 1] = np.int64({x})")
        out.line("nt += 2")


def checks(em: Emitter, out: Source, block: Block) -> None:
    """Every check of every record that the transaction wrote and that is still there."""
    if any(op.code == "checks" for op in block.walk()):
        return  # each member's stand where it ends
    if em.logs_touched:
        tables = {op.table for op in block.walk() if "column" in op.traits.writes}
        em.cutter.whole(out, lambda out: checks_of_touched(em, out, tables), always=True)
        return

    def write(out: Source, several: Sequence[Op]) -> None:
        for op in several:
            check_one(em, out, op, block)

    em.cutter.run(out, written(em, block), write)


def of_member(em: Emitter, out: Source, op: Op) -> None:
    """Those of all that was written since the checks before these."""
    kept = em.prefix
    em.prefix = f"{kept}m{op.id}_"
    em.cutter.whole(out, lambda out: checks_of_touched(em, out, op.const, again=True), always=True)
    em.prefix = kept
    out.line("nt = 0")


def written(em: Emitter, block: Block) -> list[Op]:
    """The writes of straight-line code whose records are to be checked; one for each record and guard."""
    found: list[Op] = []
    seen = set()
    for op in block.ops:
        if "column" not in op.traits.writes or not em.plan.checks_of(op.table):
            continue
        row_id = row_of(op)
        if (row_id, op.guard) not in seen and (row_id, None) not in seen:
            seen.add((row_id, op.guard))
            found.append(op)
    return found


def row_of(op: Op) -> int:
    return op.args[0] if op.traits.of_column else op.id


def check_one(em: Emitter, out: Source, op: Op, block: Block) -> None:
    x = em.row(row_of(op))
    tests = [em.val(op.guard)] if op.guard is not None else []
    if any(other.code == "delete" and other.table == op.table for other in block.walk()):
        tests.append(em.store.alive(em, op.table, x))
    if tests:
        out.line(f"if {' and '.join(tests)}:")
    with out.indented() if tests else nullcontext():
        checks_of_row(em, out, op.table, x)


def checks_of_touched(em: Emitter, out: Source, tables: Iterable[str], *, again: bool = False) -> None:
    """tables: those that were written; again: the transaction goes on, and what it writes then is checked once more."""
    w, x = f"{em.prefix}w", f"{em.prefix}xw"
    out.line(f"for {w} in range(0, nt, 2):")
    with out.indented():
        out.line(f"{x} = np.uint64(touched[{w} + 1])")
        if again:
            em.store.forget(out, x)
        for table in sorted(t for t in tables if em.plan.checks_of(t)):
            n = em.numbers[table]
            out.line(f"if touched[{w}] == {n} and {em.store.alive(em, table, x)}:")
            with out.indented():
                checks_of_row(em, out, table, x)
    out.line("if c != 0:")
    with out.indented():
        out.line("break")


def checks_of_row(em: Emitter, out: Source, table: str, x: str) -> None:
    kept = (em.prefix, em.text, em.types, em.lists, em.users, em.in_loop, em.fields, em.origin, em.turns)
    for check in em.plan.checks_of(table):
        em.checked += 1
        em.prefix, em.self_row, em.fields = f"w{em.checked}_", x, {}
        em.begin(check.block)
        out.line(f"{em.prefix}holds = False{em.note(f'check of {table}: {check.text}')}")
        out.quoted = ""  # each record's check says again what it is
        em.ops(out, check.block.ops)
        em.abort(out, f"not {em.prefix}holds", check.text)
    em.prefix, em.text, em.types, em.lists, em.users, em.in_loop, em.fields, em.origin, em.turns = kept
