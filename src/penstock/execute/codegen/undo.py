"""The source of the undo log: what a write pushes, and how an abort takes it back.

An entry is (what, where, old value); `what` numbers a table's column, its `written`, or whether a record is there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.declare.kinds import BIT, REAL
from penstock.execute.codegen import records
from penstock.execute.codegen.layout import FULL, FULL_LOG, LOG_SIZE
from penstock.execute.codegen.source import Source
from penstock.plan.ir import Op, Plan

if TYPE_CHECKING:
    from penstock.execute.codegen.emitter import Emitter


def entries(plan: Plan, ops: Iterable[Op]) -> int:
    """How many entries of the log these operations may take, each done once."""
    return sum(_entries(plan, op) for op in ops if changes(plan, op))


def _entries(plan: Plan, op: Op) -> int:
    window = plan.window(op.table)
    row = 0 if window is None else len(window.definition.values) + 1
    return len(plan.table(op.table).lanes) + 4 + 3 * expires(plan, op) + row


def changes(plan: Plan, op: Op) -> bool:
    return bool(op.traits.writes) or expires(plan, op)


def expires(plan: Plan, op: Op) -> bool:
    """Whether it deletes a record that it finds behind its time."""
    return op.traits.takes == "key" and plan.table(op.table).ttl is not None


def room(em: Emitter, out: Source, op: Op) -> None:
    """A loop may fill the log: it leaves room for all that straight-line code writes."""
    if not em.in_loop or not changes(em.plan, op):
        return
    most = entries(em.plan, (op,)) + em.straight
    _room(em, out, f"nu + {most} > undo_what.size or nt + {2 + em.straight} > touched.size")


def room_for_all(em: Emitter, out: Source) -> None:
    """Straight-line code alone does not fill the log, unless there is very much of it, or a round has filled it."""
    if em.in_round and em.straight:
        _room(em, out, f"nu + {em.straight} > undo_what.size")
    elif em.straight > LOG_SIZE:
        _room(em, out, f"{em.straight} > touched.size")


def _room(em: Emitter, out: Source, full: str) -> None:
    out.line(f"if {full}:")
    with out.indented():
        out.line(f"info[0] = {FULL_LOG}")
        em.end(out, FULL, "the log is full: it grows, and the event runs again")


def push(em: Emitter, out: Source, table: str, part: str, at: str, old: str) -> None:
    if (table, part) not in em.undo_codes:
        em.undo_codes.append((table, part))
    code = em.undo_codes.index((table, part))
    out.line(f"nu = s_.push(undo_what, undo_at, undo_old, nu, {code}, {at}, {old}){em.note(meaning(em, table, part))}")


def meaning(em: Emitter, table: str, part: str) -> str:
    """What an entry of the log is about, for people."""
    window = em.plan.window(table)
    if window is not None:
        return f"undo: window {window.definition.name}"
    if not part.startswith("column"):
        what = {"written": f"{table} written", "exists": f"whether {table} is there", "at": f"when {table} was written"}
        return f"undo: {what[part]}"
    return f"undo: {table}.{em.plan.table(table).lanes[int(part.removeprefix('column'))].name}"


def undo_one(em: Emitter, out: Source, table: str, part: str) -> None:
    definition = em.plan.table(table)
    t = f"t{em.numbers[table]}"
    if part == "written":
        out.line(f"{t}_written[at] = old")
    elif part == "at":
        out.line(f"{t}_at[at] = old")
    elif part == "exists":
        out.line(f"{t}_r = {t}_slots[at + ONE]")
        out.line(f"{t}_slots[at + ONE] = -2 - {t}_r")
        out.line(f"if {t}_r >= 0:")
        with out.indented():
            records.bury(out, t, f"np.uint64({t}_r)")
        out.line("else:")
        with out.indented():
            out.line(f"{t}_flags[np.uint64(-2 - {t}_r)] |= np.uint8(1)")
    elif part == "time":
        out.line(f"{t}_times[at] = old")
    elif part.startswith("row"):
        window = em.plan.window(table)
        assert window is not None
        k = int(part.removeprefix("row"))
        lane = window.definition.values[k].type.lane
        out.line(f"{t}_{'rb' if lane is REAL else 'r'}{k}[at] = old{' != 0' if lane is BIT else ''}")
    else:
        k = int(part.removeprefix("column"))
        lane = definition.lanes[k].type.lane
        target = f"{t}_b{k}" if lane is REAL else f"{t}_c{k}"
        out.line(f"{target}[at] = old{' != 0' if lane is BIT else ''}")
