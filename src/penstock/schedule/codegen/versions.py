"""The source of operations on versions of records: what an event sees and makes of a record lies at its entry.

A lookup does not probe: the graph knows the entry of every site, and the entry was loaded with what is visible. So
a lookup asks whether the version is alive, a write stores to it, and neither needs undoing: an event that aborts
loads its entries again. A mark says of a version: ALIVE, WROTE (in this batch), NOTED (for this event's checks).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.declare.model import TableDef
from penstock.execute.codegen.source import Source
from penstock.plan.foresee import AccessSet
from penstock.plan.ir import Op
from penstock.plan.records import stored_default
from penstock.schedule.codegen.entries import joined, place

if TYPE_CHECKING:
    from penstock.execute.codegen.emitter import Emitter

ALIVE, WROTE, NOTED = 1, 2, 4


def record_op(em: Emitter, out: Source, op: Op) -> None:
    v = em.val(op.id)
    table = em.plan.table(op.table)
    if op.traits.of_column:
        _column_op(em, out, op, table)
        return
    x = em.row(op.id)
    out.line(f"{x} = {entry(em, op)}")
    match op.code:
        case "find":
            out.line(f"{v} = np.int64({x}) if {alive(em, op.table, x)} else -1")
        case "locate":
            em.abort(out, f"not ({alive(em, op.table, x)})", f"missing {op.table}")
            out.line(f"{v} = np.int64({x})")
        case "insert":
            em.abort(out, alive(em, op.table, x), f"exists {op.table}")
            _place(em, out, op, table, [em.val(a) for a in op.args[op.const :]])
            _note(em, out, op, x)
        case "ensure":
            out.line(f"if not ({alive(em, op.table, x)}):")
            with out.indented():
                _place(em, out, op, table, [em.constant(stored_default(c), c.type) for c in table.lanes])
            out.line(f"{v} = np.int64({x})")
            _note(em, out, op, x)
        case "delete":
            em.abort(out, f"not ({alive(em, op.table, x)})", f"missing {op.table}")
            out.line(f"mark[{x}] = np.uint8((mark[{x}] | {WROTE}) & ~{ALIVE})")
        case _:
            raise NotImplementedError(op.code)


def alive(em: Emitter, table: str, x: str) -> str:
    return f"mark[{x}] & np.uint8({ALIVE}) != 0"


def forget(out: Source, x: str) -> None:
    """That a record was noted for checks."""
    out.line(f"mark[{x}] &= np.uint8({ALIVE | WROTE})")


def entry(em: Emitter, op: Op) -> str:
    """Where the version of a lookup's record lies."""
    foresight: AccessSet = em.foresight
    site = foresight.site_of(op.id)
    turn = joined(foresight, site.loop, [_turn(em, foresight, loop) for loop in site.loop]) if site.loop else ""
    return f"np.uint64(canon[{place(foresight, em.event, site, turn)}])"


def _turn(em: Emitter, foresight: AccessSet, loop: int) -> str:
    """Which turn of a loop this is; a range counts down those that are left."""
    if loop not in foresight.turns:
        return f"{em.prefix}q{loop}"
    return f"({foresight.turns[loop] - 1} - np.int64({em.prefix}m{loop}))"


def _column_op(em: Emitter, out: Source, op: Op, table: TableDef) -> None:
    x, n = em.row(op.args[0]), em.numbers[op.table]
    keys = [c.name for c in table.keys]
    if op.name in keys:
        out.line(f"{em.val(op.id)} = t{n}_k{keys.index(op.name)}[np.uint64(record[{x}] - rows[{n}])]")
        return
    k = [c.name for c in table.lanes].index(op.name)
    if op.code == "write":
        out.line(f"w{n}_{k}[{x}] = {em.val(op.args[1])}")
        out.line(f"mark[{x}] |= np.uint8({WROTE})")
        _note(em, out, op, x)
    elif op.code == "read":
        out.line(f"{em.val(op.id)} = w{n}_{k}[{x}]")
    elif op.code == "read_or":
        default = em.constant(stored_default(table.lanes[k]), table.lanes[k].type)
        out.line(f"{em.val(op.id)} = w{n}_{k}[{x}] if {em.val(op.args[0])} >= 0 else {default}")
    else:
        raise NotImplementedError(op.code)


def _place(em: Emitter, out: Source, op: Op, table: TableDef, values: list[str]) -> None:
    x, n = em.row(op.id), em.numbers[op.table]
    out.line(f"mark[{x}] |= np.uint8({ALIVE | WROTE})")
    for k, value in enumerate(values):
        out.line(f"w{n}_{k}[{x}] = {value}")


def _note(em: Emitter, out: Source, op: Op, x: str) -> None:
    """Remember a written record for the checks at the end; once is enough, so there is room for every entry."""
    if em.logs_touched and em.plan.checks_of(op.table):
        out.line(f"if mark[{x}] & np.uint8({NOTED}) == 0:")
        with out.indented():
            out.line(f"mark[{x}] |= np.uint8({NOTED})")
            out.line(f"touched[nt] = {em.numbers[op.table]}")
            out.line(f"touched[nt + 1] = np.int64({x})")
            out.line("nt += 2")
