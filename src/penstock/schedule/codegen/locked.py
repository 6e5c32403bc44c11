"""Plan -> numba source of one thread's share of a batch under locks.

    locked   for each of the thread's events: take its locks, run it on the tables as the serial kernel does, give
             them back. Where the undo log is full it gives the event's number, still holding that event's locks;
             where another thread has failed it ends

It takes the locks, the thread's number, and the serial kernel's arguments. `start` is the thread's next event; the
undo log, the counts in meta, dirty and tombstones are the thread's own.
"""

from __future__ import annotations

from penstock.execute.codegen.layout import Layout
from penstock.execute.codegen.program import DECORATOR, InPlace, head
from penstock.execute.codegen.source import Source
from penstock.execute.codegen.subroutines import Cutter, cut_if_long
from penstock.plan.ir import Plan

_MORE = """
from penstock.schedule import locks as l_
from penstock.state.jit import borrowed
"""


def generate_locked(plan: Plan, layout: Layout) -> str:
    """The module's source."""
    return cut_if_long(lambda cutter: _module(plan, layout, cutter))


def _module(plan: Plan, layout: Layout, cutter: Cutter) -> str:
    events = InPlace(plan, cutter)
    events.emitter.know(layout)
    body, names = Source(1), ("s", "me", *layout.names)
    _function(body, events)
    out = head(plan, _MORE)
    out.text(cutter.functions(names, body))
    out.line("")
    out.line("")
    out.line(DECORATOR)
    out.line(f"def locked({', '.join(names)}):")
    return str(out) + str(body)


def _function(out: Source, events: InPlace) -> None:
    out.line("s = borrowed(s)")
    events.begin(out)
    out.line("for i in range(start, stop, s.threads):")
    with out.indented():
        out.line("begun = l_.acquire(s, me, i)")
        out.line("if begun < 0:")
        with out.indented():
            out.line("break")
        events.event(out)
        out.line("l_.release(s, me, i, c, begun)")
    events.store_counts(out)
    out.line("return stop")
