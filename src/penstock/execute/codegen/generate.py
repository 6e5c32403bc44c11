"""Plan -> the source of its serial kernel, and what that takes."""

from __future__ import annotations

from penstock.execute.codegen.layout import ENGINE_REASONS, Layout, indexed
from penstock.execute.codegen.program import DECORATOR, InPlace, head
from penstock.execute.codegen.rounds import Rounds
from penstock.execute.codegen.source import Source
from penstock.execute.codegen.subroutines import Cutter, cut_if_long
from penstock.execute.codegen.timed_rounds import TimedRounds
from penstock.plan.ir import Plan


def generate(plan: Plan, *, notes: bool = False) -> tuple[str, Layout]:
    """The module's source and what its `kernel` takes. notes: with comments, for people: nothing else differs."""
    layouts: list[Layout] = []

    def write(cutter: Cutter) -> str:
        program = _writer(plan)(plan, cutter, notes=notes)
        program.emitter.posted = set(indexed(plan))
        body = Source(1)
        program.kernel(body)
        layout = Layout(
            program.arguments(), (*ENGINE_REASONS, *program.emitter.reasons), tuple(program.emitter.literals)
        )
        layouts.append(layout)
        out = head(plan)
        out.text(cutter.functions(layout.names, body))
        out.line("")
        out.line(DECORATOR)
        out.line(f"def kernel({', '.join(layout.names)}):")
        return str(out) + str(body)

    return cut_if_long(write), layouts[-1]


def _writer(plan: Plan) -> type[InPlace]:
    if plan.program.timers:
        return TimedRounds
    return InPlace if plan.program.flow is None else Rounds
