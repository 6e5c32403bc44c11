"""Plan -> numba source for an app whose transactions emit events: a round after the other.

    for each event that has arrived:
        a step: by its kind, the transaction's operations, as in program.py; then its row of the outcomes
        the next step: a nested event that was emitted, of the least rank; without one the group has committed, and it
        is another event that was emitted, of the least rank; without one the round is over

What is emitted goes to a queue for each type of event. Who emits has run before who is emitted, so the queues in order
of rank are the order of the round. The undo log lasts a round: an abort takes back what its group did, and where
something is full the whole round is undone, and runs again.

Names besides those of program.py: b the event that has arrived, i a row of the outcomes, k a kind of event, j its row;
q3_n and q3_head: how many event 3's queue holds, and how many of them have run; round and group: the row that it began
with; log_group, emits_group, d0_group, q3_group: how things stood when the group began, …_round: when the round did.
Where a transaction takes several events, members.py has more.
"""

from __future__ import annotations

from penstock.execute.codegen.layout import (
    FIXED,
    FULL,
    FULL_ROWS,
    ROUNDS,
    Argument,
    clock_arguments,
    event_arguments,
    out_arguments,
    queue_arguments,
    scan_arguments,
    table_arguments,
    text_arguments,
)
from penstock.execute.codegen.members import Several
from penstock.execute.codegen.program import InPlace
from penstock.execute.codegen.source import Source
from penstock.execute.codegen.subroutines import Cutter
from penstock.plan.ir import Plan


class Rounds(InPlace):
    def __init__(self, plan: Plan, cutter: Cutter, *, notes: bool = False) -> None:
        super().__init__(plan, cutter, notes=notes)
        program = plan.program
        assert program.flow is not None
        outputs = program.outputs()
        self.used |= {event.name: {f.name for f in event.fields} for event in outputs}
        self.emitter.in_round, self.emitter.place, self.emitter.clock = True, "b", "now"
        self.emitter.queued = {name: self.used[name] for name in program.flow.emitted}
        self.outputs = [program.kind(event.name) for event in outputs]
        taken = [name for name in program.flow.ranked if name in program.flow.emitted]
        self.nested = [program.kind(name) for name in taken if program.is_nested(name)]
        self.others = [program.kind(name) for name in taken if not program.is_nested(name)]
        self.tables = range(len(plan.tables))
        self.root = "b"  # what a row of the outcomes says of it
        self.several = Several(plan)

    def arguments(self) -> tuple[Argument, ...]:
        return (*FIXED, *ROUNDS, *self.several.arguments, *self.own_arguments())

    def own_arguments(self) -> list[Argument]:
        program = self.plan.program
        out = [argument for number in self.tables for argument in table_arguments(self.plan, number)]
        for number, event in enumerate(program.events):
            arguments = queue_arguments if event.name in self.emitter.queued else event_arguments
            out += arguments(self.plan, number, self.used[event.name])
        return [
            *out,
            *clock_arguments(self.plan),
            *out_arguments(self.plan),
            *scan_arguments(self.plan),
            *text_arguments(self.plan),
        ]

    def kernel(self, out: Source) -> None:
        self.begin(out)
        out.line("i = used[0]")
        for k in self.outputs:
            out.line(f"q{k}_n = used[{k + 1}]")
        out.line("for block in range(start, stop, BLOCK):")
        with out.indented():
            out.line("end = min(block + BLOCK, stop)")
            self.ahead(out, "b")
            out.line("for b in range(block, end):")
            with out.indented():
                self.round(out)
        self.store_counts(out)
        out.line("return stop")

    def round(self, out: Source) -> None:
        """Run event b and all that it causes. Where something is full, nothing has happened, and the function ends."""
        self.several.skip(out)
        self.one_round(out)

    def one_round(self, out: Source) -> None:
        self.begin_round(out)
        self.begin_group(out)
        out.line("while True:")
        with out.indented():
            self.step(out)

    def begin_round(self, out: Source) -> None:
        self.begin_root(out)
        out.line("round = i")
        out.line("nu = 0")
        out.line("emits = 0")
        for k in (*self.nested, *self.others):
            out.line(f"q{k}_n = 0")
            out.line(f"q{k}_head = 0")
        for t in self.tables:
            out.line(f"d{t}_round = d{t}")
        for k in self.outputs:
            out.line(f"q{k}_round = q{k}_n")

    def begin_root(self, out: Source) -> None:
        """The event that has arrived."""
        out.line("k = np.int64(kind[b])")
        out.line("j = np.uint64(pos[b])")
        self.several.begin(out)
        if self.plan.uses_clock:
            out.line("now = clock[b]")

    def begin_group(self, out: Source) -> None:
        out.line("group = i")
        out.line("log_group = nu")
        out.line("emits_group = emits")
        for t in self.tables:
            out.line(f"d{t}_group = d{t}")
        for k in (*self.nested, *self.others, *self.outputs):
            out.line(f"q{k}_group = q{k}_n")

    def step(self, out: Source) -> None:
        out.line("c = 0")
        out.line("nt = 0")
        self.several.step(out)
        out.line("if i >= room[0]:")
        with out.indented():
            out.line(f"info[0] = {FULL_ROWS}")
            out.line(f"c = {FULL}{self.emitter.note('no room for another row: it is made, and the round runs again')}")
        self.transactions(out, first="elif", kind="k")
        out.line("if c != 0:")
        with out.indented():
            self.abort(out)
        out.line("code[i] = c")
        out.line("row_kind[i] = k")
        out.line(f"row_root[i] = {self.root}")
        out.line("row_step[i] = i - round")
        self.several.rows(out, self.root)
        out.line("i += 1")
        self.next_of(out, self.nested)
        self.begin_group(out)
        self.next_of(out, self.others)
        out.line("break")

    def abort(self, out: Source) -> None:
        """Undo the group; where something is full, the round."""
        out.line(f"mark = 0 if c == {FULL} else log_group")
        self.undo(out, "mark")
        out.line(f"if c == {FULL}:{self.emitter.note('full')}")
        with out.indented():
            self.abort_round(out)
            self.store_counts(out)
            out.line("return b")
        self.abort_group(out)

    def abort_round(self, out: Source) -> None:
        for t in self.tables:
            out.line(f"d{t} = d{t}_round")
        for k in self.outputs:
            out.line(f"q{k}_n = q{k}_round")
        out.line("i = round")

    def abort_group(self, out: Source) -> None:
        for t in self.tables:
            out.line(f"d{t} = d{t}_group")
        for k in (*self.nested, *self.others, *self.outputs):
            out.line(f"q{k}_n = q{k}_group")
        for k in self.nested:
            out.line(f"q{k}_head = q{k}_n")
        out.line("emits = emits_group")
        out.line("for row in range(group, i):")
        with out.indented():
            out.line("code[row] = c")

    def next_of(self, out: Source, several: list[int]) -> None:
        """Go on with the first event of the first of these queues that has one."""
        for k in several:
            out.line(f"if q{k}_head < q{k}_n:{self.emitter.note(self.plan.program.events[k].name)}")
            with out.indented():
                out.line(f"k = {k}")
                self.several.next_of(out, k)
                out.line("continue")

    def store_counts(self, out: Source) -> None:
        super().store_counts(out)
        out.line("used[0] = i")
        for k in self.outputs:
            out.line(f"used[{k + 1}] = q{k}_n")
