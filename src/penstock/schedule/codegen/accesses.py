"""The source of `accesses`: the entries of a range of events, and which record each means.

The keys are the event's fields, or made of them (keys.py). It goes over the events up to three times:

    COUNT   how many entries each event has, where lists make that differ
    FIND    the row of each entry's key, from the index; it may be MISSING, or NEVER there in this batch
    PLACE   a dead record for each key that is MISSING, once the tables have room
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.execute.codegen import prefetch as ahead
from penstock.execute.codegen import records
from penstock.execute.codegen.layout import Layout
from penstock.execute.codegen.source import Source
from penstock.execute.codegen.subroutines import Cutter
from penstock.plan.foresee import AccessSet, Site, growing
from penstock.plan.ir import Plan, TransactionPlan
from penstock.schedule.codegen.entries import count, foreseen, turns
from penstock.schedule.codegen.keys import KeyEmitter, Keys

COUNT, FIND, PLACE = range(3)
# A record that a growing table does not have yet; one that a table will not have in this batch.
MISSING, NEVER = -2, -1


class Accesses:
    def __init__(self, plan: Plan, layout: Layout, cutter: Cutter) -> None:
        self.plan, self.cutter = plan, cutter
        self.emitter = KeyEmitter(plan, cutter)
        self.emitter.know(layout)
        self.tables = {t.name: n for n, t in enumerate(plan.program.tables)}
        self.grows = growing(plan)
        self.foreseen = foreseen(plan)

    def function(self, out: Source) -> None:
        out.line("g = borrowed(g)")
        out.line("begin, record, writes = g.first, g.record, g.writes")
        for n in self.tables.values():
            records.mask(out, f"t{n}")
        out.line("start, stop = h_.share(begin.size - 1, me, threads)")
        out.line(f"if mode == {FIND}:")
        with out.indented():
            out.line("g_.owners(g, start, stop)")
        out.line("for block in range(start, stop, BLOCK):")
        with out.indented():
            out.line("end = min(block + BLOCK, stop)")
            self.ask(out)
            out.line("for i in range(block, end):")
            with out.indented():
                out.line("j = np.uint64(pos[i])")
                out.line(f"if mode == {COUNT}:")
                with out.indented():
                    out.line("begin[i + 1] = 0")
                out.line("at = begin[i]")
                for k, (transaction, event, foresight) in enumerate(self.foreseen):
                    out.line(f"{'elif' if k else 'if'} kind[i] == {event}:  # {transaction.name}")
                    with out.indented():
                        self.sites(out, transaction, event, foresight)

    def ask(self, out: Source) -> None:
        out.line(f"if mode != {COUNT}:")
        with out.indented():
            out.line("for i in range(block, end):")
            with out.indented():
                out.line("j = np.uint64(pos[i])")
                for k, (transaction, event, _) in enumerate(self.foreseen):
                    out.line(f"{'elif' if k else 'if'} kind[i] == {event}:")
                    with out.indented():
                        ahead.emit(out, ahead.foreseen(self.plan, transaction, event), self.cutter)
                if not self.foreseen:
                    out.line("pass")

    def sites(self, out: Source, transaction: TransactionPlan, event: int, foresight: AccessSet) -> None:
        keys = Keys(self.emitter, transaction.block, event, foresight)
        straight = foresight.straight()
        counts = [str(len(straight))]
        for loop in foresight.loops:
            out.line(f"{count(event, loop)} = {turns(transaction, foresight, event, loop)}")
            counts.append(f"{count(event, loop)} * {len(foresight.of_loop(loop))}")
        out.line(f"if mode == {COUNT}:")
        with out.indented():
            out.line(f"begin[i + 1] = {' + '.join(counts)}")
            out.line("continue")

        def write(out: Source, several: Sequence[Site | tuple[int, ...]]) -> None:
            for one in several:
                if isinstance(one, Site):
                    self.site(out, keys, event, one)
                    continue
                out.line(f"for q in range({count(event, one)}):")
                with out.indented():
                    for site in foresight.of_loop(one):
                        self.site(out, keys, event, site)

        items: list[Site | tuple[int, ...]] = [*straight, *foresight.loops]
        self.cutter.run(out, items, write)

    def site(self, out: Source, made: Keys, event: int, site: Site) -> None:
        n = self.tables[site.table]
        name = f"s{event}_{min(site.rows)}"
        grows = site.table in self.grows
        if grows:
            out.line(f"if mode == {FIND} or record[at] == {MISSING}:")
        else:
            out.line(f"if mode == {FIND}:")
        with out.indented():
            keys = made.write(out, site, name)
            records.probe(out, f"t{n}", name, keys)
            out.line(f"if {name}_r <= -2:")
            with out.indented():
                out.line(f"{name}_r = -2 - {name}_r")
            out.line(f"if {name}_r == -1:")
            with out.indented():
                if grows:
                    self.place(out, site.table, name, keys)
                else:
                    out.line(f"record[at] = {NEVER}")
            out.line("else:")
            with out.indented():
                out.line(f"record[at] = rows[{n}] + {name}_r")
            out.line(f"writes[at] = {int(site.writes)}")
        out.line("at += 1")

    def place(self, out: Source, table: str, name: str, keys: list[str]) -> None:
        """A dead record, so that the key has a row that its chain can be known by."""
        n = self.tables[table]
        out.line(f"if mode == {FIND}:")
        with out.indented():
            out.line(f"record[at] = {MISSING}")
            out.line(f"a_.add(info, {n}, 1)")
        out.line("else:")
        with out.indented():
            out.line(
                f"{name}_new = s_.lay(t{n}_slots, t{n}_flags, t{n}_tombstones, t{n}_free, t{n}_meta, "
                f"{name}_h, {name}_tag)"
            )
            for k, key in enumerate(keys):
                out.line(f"t{n}_k{k}[{name}_new] = {key}")
            out.line(f"record[at] = rows[{n}] + {name}_new")
