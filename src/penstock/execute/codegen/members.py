"""Plan -> numba source of a round whose transactions may take several events, besides what rounds.py has.

The members of a batch lie side by side: those of events from outside were put so (atomic_batches.py), and of what a
round emits all that is in the queue is one batch. So the last member's row, and how many there are before it, are all
of them. Each member has a row of the outcomes, in order; the transaction runs at the last one's, and the others take
over what became of it.

Names: more, how many members there are besides j; members and before, as they stand in order.py.
"""

from __future__ import annotations

from penstock.execute.codegen.layout import Argument
from penstock.execute.codegen.source import Source
from penstock.plan.ir import Plan

# What the kernel takes besides where events from outside are several.
ARGUMENTS = (Argument("members", "batch", part="members"), Argument("before", "batch", part="before"))


class Several:
    """The lines where some transaction of the app takes several events; none where all take one."""

    def __init__(self, plan: Plan) -> None:
        program = plan.program
        self.any = any(t.several for t in program.transactions)
        self.arrive = bool(program.batches)
        self.queued = {program.kind(t.event.name) for t in program.transactions if t.several and t.batch is None}
        self.returns = range(len(program.lanes))

    @property
    def arguments(self) -> tuple[Argument, ...]:
        return ARGUMENTS if self.arrive else ()

    def skip(self, out: Source) -> None:
        """A member that is not the last of its batch runs with that one."""
        if self.arrive:
            out.line("if members[b] == 0:")
            with out.indented():
                out.line("continue")

    def begin(self, out: Source, timer: bool = False) -> None:
        """What the event at the root of a round brings with it; a timer comes alone."""
        if self.any:
            out.line("more = members[b] - 1" if self.arrive and not timer else "more = 0")

    def step(self, out: Source) -> None:
        if self.any:
            out.line("i += more")

    def rows(self, out: Source, root: str) -> None:
        """The rows of the members before the last. root: what the last one's says of its root."""
        if not self.any:
            return
        out.line(f"at = {root}")
        out.line("for row in range(i - 1, i - 1 - more, -1):")
        with out.indented():
            if self.arrive:
                out.line("if i - more == round:")
                with out.indented():
                    out.line("at = before[at]")
            out.line("code[row] = c")
            out.line("row_kind[row] = k")
            out.line("row_root[row] = at")
            out.line("row_step[row] = row - round")
            for k in self.returns:
                out.line(f"o{k}[row] = o{k}[i]")
                out.line(f"h{k}[row] = h{k}[i]")

    def next_of(self, out: Source, k: int) -> None:
        """Take the next event out of queue k, or all of them."""
        if k in self.queued:
            out.line(f"j = np.uint64(q{k}_n - 1)")
            out.line(f"more = q{k}_n - 1 - q{k}_head")
            out.line(f"q{k}_head = q{k}_n")
            return
        out.line(f"j = np.uint64(q{k}_head)")
        out.line(f"q{k}_head += 1")
        if self.any:
            out.line("more = 0")
