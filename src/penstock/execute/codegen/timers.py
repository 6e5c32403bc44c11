"""The source of an emit with at=: a record in the event's table of timers, which is undone with its group; and an entry
behind the end of the heap, which the group's abort forgets. When such a timer runs, and what the names are, is in
timed_rounds.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.declare.limits import INT_MAX
from penstock.declare.model import AT, ID, NAMED
from penstock.execute.codegen import records, undo
from penstock.execute.codegen.layout import FULL, FULL_TIMERS
from penstock.execute.codegen.source import Source
from penstock.plan import flow
from penstock.plan.ir import Op

if TYPE_CHECKING:
    from penstock.execute.codegen.emitter import Emitter


def set_timer(em: Emitter, out: Source, op: Op) -> None:
    """Let an event wait for its time."""
    program = em.plan.program
    table, t, v = em.plan.table(op.table), f"t{em.numbers[op.table]}", em.val(op.id)
    ts = program.order_type()
    assert ts is not None
    last = ts.traits.limits[1] if ts.traits.limits else INT_MAX
    undo.room(em, out, op)
    em.abort(out, f"emits >= {flow.MOST_EMITS}", flow.TOO_MANY)
    em.need_clock(out)
    when = f"{v}_when"
    out.line(f"{when} = {em.val(op.args[-1])}")
    out.line(f"if {when} <= now:")
    with out.indented():
        em.abort(out, f"now >= {last}", "overflow")
        out.line(f"{when} = now + 1{em.note('the next tick')}")
    out.line(f"if {when} <= until:{em.note('it runs before the next event')}")
    with out.indented():
        em.abort(out, f"chained >= {flow.MOST_EMITS}", flow.TOO_MANY)
    out.line("if heap_n + set_n >= heap_at.size:")
    with out.indented():
        out.line(f"info[0] = {FULL_TIMERS}")
        em.end(out, FULL, "the heap is full: it grows, and the round runs again")
    records.probe(out, t, v, ["number"])
    root = {AT: when, ID: "root_id", NAMED: "root_named"}
    fields = dict(zip((f.name for f in program.events[program.kind(op.name)].lanes), op.args, strict=False))
    values = [root[c.name] if c.name in root else em.val(fields[c.name]) for c in table.lanes]
    records.place(em, out, op, table, t, ["number"], values)
    out.line(f"{v}_n = np.uint64(heap_n + set_n)")
    kind = program.kind(op.name)
    for part, value in (("at", when), ("number", "number"), ("kind", kind), ("row", v)):
        out.line(f"heap_{part}[{v}_n] = {value}")
    out.line("set_n += 1")
    out.line("number += 1")
    out.line("emits += 1")
    out.line(f"chained += {when} <= until")
