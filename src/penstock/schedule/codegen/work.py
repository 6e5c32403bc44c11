"""The source of `work`: one thread's share of the exploration. Of the task that it takes (schedule/explore.py) it runs

    each event, or fragment of one:
        load     what it sees of each record, to its own entries
        run      its operations, on those (versions.py); an abort loads again what it wrote
        finish   tell those who wait for it

until there is no task left.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from penstock.execute.codegen import checks
from penstock.execute.codegen.emitter import Emitter
from penstock.execute.codegen.layout import Layout
from penstock.execute.codegen.program import one_turn, used_fields
from penstock.execute.codegen.source import Source
from penstock.execute.codegen.subroutines import Cutter
from penstock.plan.foresee import AccessSet, Site
from penstock.plan.ir import Plan, TransactionPlan
from penstock.plan.split import Fragment, Split
from penstock.schedule.codegen import versions
from penstock.schedule.codegen.entries import base, count, foreseen, place, turns
from penstock.schedule.codegen.fragments import VERDICT_BITS, FragmentEmitter, splits

# Every so many tasks a thread looks at its clock.
SAMPLE = 16


class Work:
    def __init__(self, plan: Plan, layout: Layout, cutter: Cutter, *, cut: bool) -> None:
        self.plan, self.cutter = plan, cutter
        self.emitter = Emitter(plan, cutter, versions)
        self.emitter.know(layout)
        self.fragments = FragmentEmitter(plan, cutter, versions)
        self.fragments.know(layout)
        self.splits = splits(plan) if cut else {}
        self.tables = {t.name: n for n, t in enumerate(plan.program.tables)}
        self.foreseen = foreseen(plan)

    def function(self, out: Source) -> None:
        out.line("g, p, s = borrowed(g), borrowed(p), borrowed(s)")
        out.line("begin, canon, record = g.first, g.canon, g.record")
        out.line("own, rest = h_.share(touched.size, me, threads)")
        out.line("touched = touched[own:rest]")
        for number, event in enumerate(self.plan.program.events):
            for field in sorted(used_fields(self.plan)[event.name]):
                out.line(f"any_ok{number}_{field} = ok{number}_{field}.size > 0")
        out.line("entered = a_.cycles()")
        out.line("hint = -1")
        out.line("ran = 0")
        out.line("while True:")
        with out.indented():
            out.line("task = x_.take(s, me, hint)")
            out.line("if task < 0:")
            with out.indented():
                out.line("break")
            out.line("hint = -1")
            out.line("turn, turns = 0, 1")
            out.line("if s.task.size:")
            with out.indented():
                out.line("turn, turns = s.members[task], s.members[task + 1]")
            out.line("while turn < turns:")
            with out.indented():
                out.line("fragment = s.run[turn] if s.task.size else task")
                out.line("turn += 1")
                out.line("i = p.owner[fragment]")
                out.line("j = np.uint64(pos[i])")
                out.line("at = begin[i]")
                out.line("c = 0")
                out.line("nt = 0")
                out.line(f"begun = a_.cycles() if ran % {SAMPLE} == 0 else 0")
                self.transactions(out)
                out.line(f"if ran % {SAMPLE} == 0:")
                with out.indented():
                    out.line("s.own[me * x_.OWN + (x_.ABORTING if c else x_.USEFUL)] += a_.cycles() - begun")
                out.line("ran += 1")
                out.line("hint = x_.finish(g, p, s, me, fragment, hint)")
            out.line("s.own[me * x_.OWN + x_.COUNT] += 1")
        out.line("s.own[me * x_.OWN + x_.ALL] = a_.cycles() - entered")

    def transactions(self, out: Source) -> None:
        for k, (transaction, event, foresight) in enumerate(self.foreseen):
            out.line(f"{'elif' if k else 'if'} kind[i] == {event}:  # {transaction.name}({transaction.event})")
            with out.indented():
                whole = partial(self.whole, transaction=transaction, event=event, foresight=foresight)
                cut = self.splits.get(transaction.name)
                if cut is None:
                    self.cutter.whole(out, whole)
                    continue
                out.line("part = fragment - p.first[i] if p.shape[i] else -1")
                for number, fragment in enumerate(cut.fragments):
                    out.line(f"{'elif' if number else 'if'} part == {number}:")
                    with out.indented():
                        own = (transaction, event, foresight, cut, number, fragment)
                        self.cutter.whole(out, partial(self.part, own=own), always=True)
                out.line("else:")
                with out.indented():
                    self.cutter.whole(out, whole)

    def part(self, out: Source, own: tuple[TransactionPlan, int, AccessSet, Split, int, Fragment]) -> None:
        """One fragment of an event. Where it stops the event, it says at which place of the program."""
        transaction, event, foresight, cut, number, fragment = own
        sites = [foresight.sites[n] for n in fragment.sites]
        for site in sites:
            self.load_one(out, event, foresight, site)
        out.line("stop = 0")
        self.fragments.foresight = foresight
        one_turn(
            out,
            self.plan,
            self.cutter,
            event,
            fragment.ops,
            lambda given: self.fragments.fragment(out, transaction.block, cut, number, event, given),
        )
        out.line("if c != 0:")
        with out.indented():
            for site in sites:
                if site.writes:
                    self.load_one(out, event, foresight, site)
            out.line(f"a_.lower(g.verdict, i, stop << {VERDICT_BITS} | c)")

    def whole(self, out: Source, transaction: TransactionPlan, event: int, foresight: AccessSet) -> None:
        above = [f"at + {len(foresight.straight())}"]
        for loop in foresight.loops:
            out.line(f"{count(event, loop)} = {turns(transaction, foresight, event, loop)}")
            out.line(f"{base(event, loop)} = {' + '.join(above)}")
            above.append(f"{count(event, loop)} * {len(foresight.of_loop(loop))}")
        self.load(out, event, foresight, again=False)
        self.emitter.foresight = foresight

        def run(given: list[tuple[str, int]]) -> None:
            self.emitter.block(out, transaction.block, event, given)
            checks.checks(self.emitter, out, transaction.block)

        one_turn(out, self.plan, self.cutter, event, transaction.block.walk(), run)
        out.line("code[i] = c")
        if any(s.writes for s in foresight.sites):
            out.line("if c != 0:")
            with out.indented():
                self.load(out, event, foresight, again=True)

    def load(self, out: Source, event: int, foresight: AccessSet, *, again: bool) -> None:
        """What the event sees of each record, to its own entry; again: of all that it may have written, where the
        version may lie at the entry of a site that only reads, if that led to the same record first."""
        written = {site.table for site in foresight.sites if site.writes}
        wanted = [site for site in foresight.sites if not again or site.table in written]

        def write(out: Source, several: Sequence[Site | tuple[int, ...]]) -> None:
            for one in several:
                if isinstance(one, Site):
                    self.load_one(out, event, foresight, one)
                    continue
                out.line(f"for q in range({count(event, one)}):")
                with out.indented():
                    for site in wanted:
                        if site.loop == one:
                            self.load_one(out, event, foresight, site)
                    out.line("pass")

        items: list[Site | tuple[int, ...]] = [*(site for site in wanted if not site.loop), *foresight.loops]
        self.cutter.run(out, items, write)

    def load_one(self, out: Source, event: int, foresight: AccessSet, site: Site) -> None:
        n = self.tables[site.table]
        where = place(foresight, event, site, "q")
        out.line(f"load{n}(g, np.uint64({where}), {', '.join(_load_arguments(self.plan, n))})")


def _load_arguments(plan: Plan, n: int) -> list[str]:
    columns = range(len(plan.program.tables[n].lanes))
    return ["mark", "rows", f"t{n}_flags", *(f"t{n}_c{k}" for k in columns), *(f"w{n}_{k}" for k in columns)]


def loaders(plan: Plan, *, inlined: bool) -> str:
    """The functions that `work` loads records by, one a table; inlined: where there are not too many calls for it."""
    out = Source()
    for n in range(len(plan.program.tables)):
        _loader(out, plan, n, inlined=inlined)
    return str(out)


def _loader(out: Source, plan: Plan, n: int, *, inlined: bool) -> None:
    """What an event sees of a record of one table, to the event's entry.

    A function of its own, since numba's work grows with the square of a function's length; LLVM puts it in place.
    """
    columns = range(len(plan.program.tables[n].lanes))
    option = ", forceinline=True" if inlined else ""
    out.text(f"\n\n@nb.njit(nogil=True{option})\ndef load{n}(g, e, {', '.join(_load_arguments(plan, n))}):")
    with out.indented():
        out.line("if g.canon[e] != np.int64(e):")
        with out.indented():
            out.line("return")
        out.line("w = g_.visible(g, e)")
        out.line("g.source[e] = w")
        out.line("if w >= 0:")
        with out.indented():
            out.line("x = np.uint64(w)")
            out.line(f"mark[e] = mark[x] & np.uint8({versions.ALIVE | versions.WROTE})")
            for k in columns:
                out.line(f"w{n}_{k}[e] = w{n}_{k}[x]")
        out.line("elif g.record[e] >= 0:")
        with out.indented():
            out.line(f"x = np.uint64(g.record[e] - rows[{n}])")
            out.line(f"mark[e] = t{n}_flags[x] & np.uint8({versions.ALIVE})")
            for k in columns:
                out.line(f"w{n}_{k}[e] = t{n}_c{k}[x]")
        out.line("else:")
        with out.indented():
            out.line("mark[e] = 0")
