"""Plan -> numba source of what a graph of a batch needs.

    accesses   the entries of a range of events: which record each site means            (accesses.py)
    work       one thread's share of the exploration: take a task, run it, tell others   (work.py)
    install    the last versions of a range of entries, to the tables                    (install.py)

All three take the same arguments: the graph's, then those of the serial kernel (layout.py), then the versions'.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.declare.types import Type
from penstock.execute.codegen.layout import (
    FIXED,
    Argument,
    Layout,
    clock_arguments,
    event_arguments,
    out_arguments,
    table_arguments,
)
from penstock.execute.codegen.program import DECORATOR, head, used_fields
from penstock.execute.codegen.source import Source
from penstock.execute.codegen.subroutines import Cutter, cut_if_long
from penstock.plan.ir import Plan
from penstock.schedule.codegen.accesses import Accesses
from penstock.schedule.codegen.fragments import LANES
from penstock.schedule.codegen.install import install
from penstock.schedule.codegen.work import Work, loaders

_MORE = """
from penstock.schedule import atomics as a_
from penstock.schedule import explore as x_
from penstock.schedule import graph as g_
from penstock.schedule import team as h_
from penstock.state.jit import borrowed
"""


def generate_state(plan: Plan, layout: Layout) -> str:
    """The source of `accesses` and `install`."""

    def write(cutter: Cutter) -> str:
        out = head(plan, _MORE)
        _function(out, plan, "accesses", "g, mode", Accesses(plan, layout, cutter).function, cutter)
        _function(out, plan, "install", "g", lambda out: install(out, plan), Cutter(cutting=False))
        return str(out)

    return cut_if_long(write)


def generate_work(plan: Plan, layout: Layout, *, cut: bool) -> str:
    """The source of `work`; with `cut`, for fragments of events too."""

    def write(cutter: Cutter) -> str:
        out = head(plan, _MORE)
        out.text(loaders(plan, inlined=not cutter.cutting))
        _function(out, plan, "work", "g, p, s", Work(plan, layout, cutter, cut=cut).function, cutter)
        return str(out)

    return cut_if_long(write)


def _function(out: Source, plan: Plan, name: str, more: str, write: Callable[[Source], None], cutter: Cutter) -> None:
    """A step that all threads of a team take."""
    names = ["box", "me", "threads", *more.split(", "), *(a.name for a in parallel_arguments(plan))]
    arguments, body = ", ".join(names), Source(1)
    body.line("if me == h_.ALL:")
    with body.indented():
        body.line(f"return h_.dispatch(box, threads, h_.entry_point(({arguments})))")
    write(body)
    body.line("return 0")
    out.text(cutter.functions(names, body))
    out.text(f"\n\n{DECORATOR}\ndef {name}({arguments}):")
    out.text(str(body))


def parallel_arguments(plan: Plan) -> tuple[Argument, ...]:
    used = used_fields(plan)
    out = [a for a in FIXED if a.owner != "log" and a.name not in ("start", "stop")]
    out.append(Argument("touched", "log", part="touched"))
    for number, table in enumerate(plan.program.tables):
        out += table_arguments(plan, number)
        for k, column in enumerate(table.lanes):
            out.append(Argument(f"w{number}_{k}", "version", table.name, f"column{k}", column.type))
    for number, event in enumerate(plan.program.events):
        out += event_arguments(plan, number, used[event.name])
    out += [Argument("mark", "version", part="flags"), Argument("rows", "version", part="rows")]
    out += [Argument(name, "handed", type=Type(kind)) for kind, name in LANES.items()]
    return (*out, *clock_arguments(plan), *out_arguments(plan))
