"""Plan -> numba source for an app that sets timers: before each event's round, the rounds of those that are due.

    waiting   the heap: (at, number) -> which event, which row of its table of timers. Between rounds, all that wait
    before event b, as long as the first of the heap is due by b's clock: a round whose root is that timer. It is copied
              into its event's queue; at the round's end it leaves heap and table, whether it aborted or not
    at the end of any round: the timers that it set join the heap (timers.py puts them behind its end)

Nothing of that is undone: where something is full, the round has not ended, and it runs again.

Names besides those of rounds.py: until: the clock of b, up to which timers run; timer: whether the root is one, x: its
row; root: what a row of the outcomes says of it, b or -1 minus which of the batch's timers it is; root_id, root_named:
its id, and whether it has one; heap_n: how many wait, set_n: how many entries lie behind them; number: the next
emission's; chained: how many timers were set on the way to b that run before it.
"""

from __future__ import annotations

from penstock.declare.model import ID, NAMED, is_none, timers_of
from penstock.execute.codegen import records
from penstock.execute.codegen.layout import FULL_FIRED, NOBODY, TIMERS, TIMERS_IDS, Argument
from penstock.execute.codegen.rounds import Rounds
from penstock.execute.codegen.source import Source
from penstock.execute.codegen.subroutines import Cutter
from penstock.plan.ir import Plan

# How many wait, the next number; and of the batch how many have run, and were set on the way to an event.
_COUNTS = (("heap_n", "timers[0]"), ("number", "timers[1]"), ("fired_n", "fired[0]"), ("chained", "fired[1]"))


class TimedRounds(Rounds):
    def __init__(self, plan: Plan, cutter: Cutter, *, notes: bool = False) -> None:
        super().__init__(plan, cutter, notes=notes)
        program = plan.program
        assert program.flow is not None
        self.root = "root"
        self.timed = [program.kind(name) for name in program.flow.timed]
        self.has_ids = program.id_type() is not None

    def own_arguments(self) -> list[Argument]:
        return [*super().own_arguments(), *TIMERS, *(TIMERS_IDS if self.has_ids else ())]

    def begin(self, out: Source) -> None:
        super().begin(out)
        for name, place in _COUNTS:
            out.line(f"{name} = {place}")

    def store_counts(self, out: Source) -> None:
        super().store_counts(out)
        for name, place in _COUNTS:
            out.line(f"{place} = {name}")

    def round(self, out: Source) -> None:
        """Run the timers that are due, and then event b."""
        self.several.skip(out)
        out.line("until = clock[b]")
        out.line("while True:")
        with out.indented():
            out.line("timer = heap_n > 0 and heap_at[0] <= until")
            out.line(f"if not timer and kind[b] == {NOBODY}:{self.emitter.note('timers alone run up to here')}")
            with out.indented():
                out.line("break")
            self.one_round(out)
            out.line("for s in range(set_n):")
            with out.indented():
                out.line("s_.rise(heap_at, heap_number, heap_kind, heap_row, heap_n)")
                out.line("heap_n += 1")
            out.line("if not timer:")
            with out.indented():
                out.line("break")
            self.retire(out)
        out.line("chained = 0")

    def begin_round(self, out: Source) -> None:
        out.line("set_n = 0")
        out.line("number_round = number")
        out.line("chained_round = chained")
        super().begin_round(out)
        for kind in self.timed:
            out.line(f"if timer and k == {kind}:")
            with out.indented():
                out.line(f"q{kind}_n = 1")
                out.line(f"q{kind}_head = 1")

    def begin_root(self, out: Source) -> None:
        """An event of the batch, or the first timer: into its event's queue."""
        out.line("if timer:")
        with out.indented():
            out.line("if fired_n >= fired_at.size:")
            with out.indented():
                out.line(f"info[0] = {FULL_FIRED}")
                self.store_counts(out)
                out.line("return b")
            out.line("k = heap_kind[0]")
            out.line("j = np.uint64(0)")
            out.line("x = np.uint64(heap_row[0])")
            out.line("now = heap_at[0]")
            out.line("root = -1 - fired_n")
            self.several.begin(out, timer=True)
            word = "if"
            for kind in self.timed:
                out.line(f"{word} k == {kind}:{self.emitter.note(self.plan.program.events[kind].name)}")
                with out.indented():
                    self.copy(out, kind)
                word = "elif"
        out.line("else:")
        with out.indented():
            out.line("k = np.int64(kind[b])")
            out.line("j = np.uint64(pos[b])")
            out.line("x = np.uint64(0)")
            out.line("now = until")
            out.line("root = np.int64(b)")
            self.several.begin(out)
            if self.has_ids:
                out.line("root_id = ids[b]")
                out.line("root_named = named[b]")

    def copy(self, out: Source, kind: int) -> None:
        """The timer's fields, to the first place of its event's queue."""
        event = self.plan.program.events[kind]
        table = self.plan.table(timers_of(event.name))
        n = self.emitter.numbers[table.name]
        columns = {c.name: f"t{n}_c{k}[x]" for k, c in enumerate(table.lanes)}
        empty = len(out.lines)
        for field in event.fields:
            if field.name in self.used[event.name]:
                out.line(f"e{kind}_{field.name}[0] = {columns[field.name]}")
                if field.nullable:
                    out.line(f"ok{kind}_{field.name}[0] = not {columns[is_none(field.name)]}")
        if self.has_ids:
            out.line(f"root_id = {columns[ID]}")
            out.line(f"root_named = {columns[NAMED]}")
        if len(out.lines) == empty:
            out.line("pass")

    def retire(self, out: Source) -> None:
        """The first timer has run."""
        out.line("fired_at[fired_n] = now")
        if self.has_ids:
            out.line("fired_id[fired_n] = root_id")
            out.line("fired_named[fired_n] = root_named")
        out.line("fired_n += 1")
        word = "if"
        for kind in self.timed:
            n = self.emitter.numbers[timers_of(self.plan.program.events[kind].name)]
            out.line(f"{word} heap_kind[0] == {kind}:")
            with out.indented():
                out.line(f"t{n}_slots[s_.seek(t{n}_slots, heap_number[0]) + ONE] = -2 - heap_row[0]")
                records.bury(out, f"t{n}", "x")
                out.line(f"d{n} = s_.touch(t{n}_written, t{n}_dirty, d{n}, x, batch)")
            word = "elif"
        out.line("heap_n -= 1")
        out.line("s_.sink(heap_at, heap_number, heap_kind, heap_row, heap_n)")

    def begin_group(self, out: Source) -> None:
        super().begin_group(out)
        out.line("set_group = set_n")
        out.line("chained_group = chained")

    def abort_round(self, out: Source) -> None:
        super().abort_round(out)
        out.line("number = number_round")
        out.line("chained = chained_round")

    def abort_group(self, out: Source) -> None:
        super().abort_group(out)
        out.line("set_n = set_group")
        out.line("chained = chained_group")
