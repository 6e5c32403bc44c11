"""Plan -> numba source of what a graph of a batch needs.

    accesses   the entries of a range of events: which record each site means; counting, finding, or making place
    work       one thread's share of the exploration: take a task, load what its events see, run them, tell others
    install    the last versions of a range of entries, to the tables

All three take the same arguments: the graph's, then those of the serial kernel (layout.py), then the versions'.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.declare.model import TableDef
from penstock.execute.codegen import ahead, checks, records, versions
from penstock.execute.codegen.emitter import Emitter
from penstock.execute.codegen.layout import FIXED, Argument, Layout, event_arguments, out_arguments, table_arguments
from penstock.execute.codegen.pieces import LANES, VERDICT_BITS, PieceEmitter, cuts
from penstock.execute.codegen.program import DECORATOR, head, one_turn, used_fields
from penstock.execute.codegen.source import Source
from penstock.plan.foresee import Foresight, Site, foresee, growing
from penstock.plan.ir import Op, Plan, TransactionPlan
from penstock.plan.pieces import Cut, Piece

_MORE = """
from penstock.schedule import atomics as a_
from penstock.schedule import explore as x_
from penstock.schedule import graph as g_
from penstock.state.jit import borrowed
"""
# A record that a growing table does not have yet; one that a table will not have in this batch.
MISSING, NEVER = -2, -1
COUNT, FIND, PLACE = range(3)
# Every so many tasks a thread looks at its clock.
SAMPLE = 16


def generate_state(plan: Plan, layout: Layout) -> str:
    """The source of `accesses` and `install`."""
    writer = _Writer(plan, layout)
    return _module(
        plan, (("accesses", "g, mode, start, stop", writer.accesses), ("install", "g, start, stop", writer.install))
    )


def generate_work(plan: Plan, layout: Layout, *, cut: bool) -> str:
    """The source of `work`; with `cut`, for pieces of events too."""
    writer = _Writer(plan, layout, cut=cut)
    loaders = Source()
    for n in range(len(plan.program.tables)):
        _loader(loaders, plan, n)
    return _module(plan, (("work", "g, p, s, me", writer.work),), str(loaders))


def _module(plan: Plan, functions: tuple[tuple[str, str, Callable[[Source], None]], ...], helpers: str = "") -> str:
    names = ", ".join(a.name for a in parallel_arguments(plan))
    out = head(plan, _MORE)
    out.text(helpers)
    for function, more, write in functions:
        out.line("")
        out.line("")
        out.line(DECORATOR)
        out.line(f"def {function}({more}, {names}):")
        with out.indented():
            write(out)
    return str(out)


def parallel_arguments(plan: Plan) -> tuple[Argument, ...]:
    used = used_fields(plan)
    out = [a for a in FIXED if a.owner != "log" and a.name not in ("start", "stop")]
    out.append(Argument("touched", "log", part="touched"))
    for number, table in enumerate(plan.program.tables):
        out += table_arguments(plan, number)
        for k, column in enumerate(table.values):
            out.append(Argument(f"w{number}_{k}", "version", table.name, f"column{k}", column.type))
    for number, event in enumerate(plan.program.events):
        out += event_arguments(plan, number, used[event.name])
    out += [Argument("mark", "version", part="flags"), Argument("rows", "version", part="rows")]
    out += [Argument(name, "handed", part=name) for name in LANES.values()]
    return (*out, *out_arguments(plan))


class _Writer:
    def __init__(self, plan: Plan, layout: Layout, *, cut: bool = False) -> None:
        self.plan = plan
        self.emitter = Emitter(plan, versions)
        self.emitter.know(layout)
        self.pieces = PieceEmitter(plan, versions)
        self.pieces.know(layout)
        self.cuts = cuts(plan) if cut else {}
        self.tables = {t.name: n for n, t in enumerate(plan.program.tables)}
        self.events = {e.name: n for n, e in enumerate(plan.program.events)}
        self.grows = growing(plan)
        self.foreseen = [(t, self.events[t.event], f) for t in plan.transactions if (f := foresee(t)) is not None]

    # -- accesses ---------------------------------------------------------------------------

    def accesses(self, out: Source) -> None:
        out.line("g = borrowed(g)")
        out.line("begin, record, writes = g.first, g.record, g.writes")
        self.masks(out)
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

    def masks(self, out: Source) -> None:
        for n in self.tables.values():
            out.line(f"t{n}_mask = np.uint64(t{n}_slots.size - 1)")

    def ask(self, out: Source) -> None:
        out.line(f"if mode != {COUNT}:")
        with out.indented():
            out.line("for i in range(block, end):")
            with out.indented():
                out.line("j = np.uint64(pos[i])")
                for k, (transaction, event, _) in enumerate(self.foreseen):
                    out.line(f"{'elif' if k else 'if'} kind[i] == {event}:")
                    with out.indented():
                        ahead.emit(out, ahead.foreseen(self.plan, transaction, event))
                if not self.foreseen:
                    out.line("pass")

    def sites(self, out: Source, transaction: TransactionPlan, event: int, foresight: Foresight) -> None:
        ops = {op.id: op for op in transaction.block.walk()}
        straight = foresight.straight()
        counts = [str(len(straight))]
        for loop in foresight.loops:
            out.line(f"m{event}_{loop} = {turns(ops, event, loop)}")
            counts.append(f"m{event}_{loop} * {len(foresight.of_loop(loop))}")
        out.line(f"if mode == {COUNT}:")
        with out.indented():
            out.line(f"begin[i + 1] = {' + '.join(counts)}")
            out.line("continue")
        for site in straight:
            self.site(out, ops, event, site, "")
        for loop in foresight.loops:
            out.line(f"for q in range(m{event}_{loop}):")
            with out.indented():
                for site in foresight.of_loop(loop):
                    self.site(out, ops, event, site, "q")

    def site(self, out: Source, ops: dict[int, Op], event: int, site: Site, turn: str) -> None:
        n = self.tables[site.table]
        name = f"s{event}_{min(site.rows)}"
        keys = [self.key(ops, event, site, k, turn) for k in site.keys]
        grows = site.table in self.grows
        if grows:
            out.line(f"if mode == {FIND} or record[at] == {MISSING}:")
        else:
            out.line(f"if mode == {FIND}:")
        with out.indented():
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
                f"{name}_new = s_.lay(t{n}_slots, t{n}_flags, t{n}_graves, t{n}_free, t{n}_meta, {name}_h, {name}_tag)"
            )
            for k, key in enumerate(keys):
                out.line(f"t{n}_k{k}[{name}_new] = {key}")
            out.line(f"record[at] = rows[{n}] + {name}_new")

    def key(self, ops: dict[int, Op], event: int, site: Site, value: int, turn: str) -> str:
        op = ops[value]
        if op.code == "field":
            return f"e{event}_{op.name}[j]"
        if op.code == "const":
            assert op.type is not None
            return self.emitter.constant(op.const, op.type)
        assert site.loop is not None
        name = f"{event}_{ops[ops[site.loop].args[op.const]].name}"
        return f"e{name}[at{name}[j] + {turn}]"

    # -- work -------------------------------------------------------------------------------

    def work(self, out: Source) -> None:
        out.line("g, p, s = borrowed(g), borrowed(p), borrowed(s)")
        out.line("begin, canon, record = g.first, g.canon, g.record")
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
                out.line("piece = s.run[turn] if s.task.size else task")
                out.line("turn += 1")
                out.line("i = p.owner[piece]")
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
                out.line("hint = x_.finish(g, p, s, me, piece, hint)")
            out.line("s.own[me * x_.OWN + x_.COUNT] += 1")
        out.line("s.own[me * x_.OWN + x_.ALL] = a_.cycles() - entered")

    def transactions(self, out: Source) -> None:
        for k, (transaction, event, foresight) in enumerate(self.foreseen):
            out.line(f"{'elif' if k else 'if'} kind[i] == {event}:  # {transaction.name}({transaction.event})")
            with out.indented():
                cut = self.cuts.get(transaction.name)
                if cut is None:
                    self.whole(out, transaction, event, foresight)
                    continue
                out.line("part = piece - p.first[i] if p.shape[i] else -1")
                for number, piece in enumerate(cut.pieces):
                    out.line(f"{'elif' if number else 'if'} part == {number}:")
                    with out.indented():
                        self.part(out, transaction, event, foresight, cut, number, piece)
                out.line("else:")
                with out.indented():
                    self.whole(out, transaction, event, foresight)

    def part(
        self,
        out: Source,
        transaction: TransactionPlan,
        event: int,
        foresight: Foresight,
        cut: Cut,
        number: int,
        piece: Piece,
    ) -> None:
        """One piece of an event. Where it stops the event, it says at which place of the program."""
        sites = [(f"at + {n}", foresight.sites[n]) for n in piece.sites]
        for where, site in sites:
            self.load_one(out, site, where)
        out.line("stop = 0")
        self.pieces.foresight = foresight
        one_turn(
            out,
            self.plan,
            event,
            piece.ops,
            lambda given: self.pieces.piece(out, transaction.block, cut, number, event, given),
        )
        out.line("if c != 0:")
        with out.indented():
            for where, site in sites:
                if site.writes:
                    self.load_one(out, site, where)
            out.line(f"a_.lower(g.verdict, i, stop << {VERDICT_BITS} | c)")

    def whole(self, out: Source, transaction: TransactionPlan, event: int, foresight: Foresight) -> None:
        ops = {op.id: op for op in transaction.block.walk()}
        above = [f"at + {len(foresight.straight())}"]
        for loop in foresight.loops:
            out.line(f"m{event}_{loop} = {turns(ops, event, loop)}")
            out.line(f"{versions.base(event, loop)} = {' + '.join(above)}")
            above.append(f"m{event}_{loop} * {len(foresight.of_loop(loop))}")
        self.load(out, event, foresight, again=False)
        self.emitter.foresight = foresight

        def run(given: list[tuple[str, int]]) -> None:
            self.emitter.block(out, transaction.block, event, given)
            checks.checks(self.emitter, out, transaction.block)

        one_turn(out, self.plan, event, transaction.block.walk(), run)
        out.line("code[i] = c")
        if any(s.writes for s in foresight.sites):
            out.line("if c != 0:")
            with out.indented():
                self.load(out, event, foresight, again=True)

    def load(self, out: Source, event: int, foresight: Foresight, *, again: bool) -> None:
        """What the event sees of each record, to its own entry."""
        for number, site in enumerate(foresight.straight()):
            if site.writes or not again:
                self.load_one(out, site, f"at + {number}")
        for loop in foresight.loops:
            own = foresight.of_loop(loop)
            out.line(f"for q in range(m{event}_{loop}):")
            with out.indented():
                for number, site in enumerate(own):
                    if site.writes or not again:
                        self.load_one(out, site, f"{versions.base(event, loop)} + q * {len(own)} + {number}")
                out.line("pass")

    def load_one(self, out: Source, site: Site, where: str) -> None:
        n = self.tables[site.table]
        out.line(f"load{n}(g, np.uint64({where}), {', '.join(_load_arguments(self.plan, n))})")

    # -- install ----------------------------------------------------------------------------

    def install(self, out: Source) -> None:
        out.line("g = borrowed(g)")
        self.masks(out)
        tables = range(len(self.plan.program.tables))
        # Chains are done with: their links make room for a list of what was written.
        out.line("fresh, n = g.next, start")
        for t in tables:
            out.line(f"n{t} = 0")
        out.line("for e in range(start, stop):")
        with out.indented():
            out.line("if not g.last[e] or g.record[e] < 0:")
            with out.indented():
                out.line("continue")
            out.line("w = g_.standing(g, e)")
            out.line(f"if w < 0 or mark[w] & np.uint8({versions.WROTE}) == 0:")
            with out.indented():
                out.line("continue")
            word = "if"
            for n, table in reversed(list(enumerate(self.plan.program.tables))):
                out.line(f"{word} g.record[e] >= rows[{n}]:")
                with out.indented():
                    self.install_one(out, n, table)
                word = "elif"
        for t in tables:
            out.line(f"d{t} = a_.add(t{t}_meta, 2, n{t})")
        out.line("for k in range(start, n):")
        with out.indented():
            word = "if"
            for t in reversed(tables):
                out.line(f"{word} fresh[k] >= rows[{t}]:")
                with out.indented():
                    out.line(f"t{t}_dirty[d{t}] = fresh[k] - rows[{t}]")
                    out.line(f"d{t} += 1")
                word = "elif"

    def install_one(self, out: Source, n: int, table: TableDef) -> None:
        out.line(f"x = np.uint64(g.record[e] - rows[{n}])")
        for k in range(len(table.values)):
            out.line(f"t{n}_c{k}[x] = w{n}_{k}[w]")
        out.line(f"if t{n}_written[x] != batch:")
        with out.indented():
            out.line(f"t{n}_written[x] = batch")
            out.line("fresh[n] = g.record[e]")
            out.line("n += 1")
            out.line(f"n{n} += 1")
        out.line(f"lives = mark[w] & np.uint8({versions.ALIVE})")
        out.line(f"if lives != t{n}_flags[x] & np.uint8(1):")
        with out.indented():
            records.probe(out, f"t{n}", f"i{n}", [f"t{n}_k{k}[x]" for k in range(len(table.keys))])
            out.line("if lives:")
            with out.indented():
                out.line(f"t{n}_slots[i{n}_h + ONE] = np.int64(x)")
                out.line(f"t{n}_flags[x] |= np.uint8(1)")
            out.line("else:")
            with out.indented():
                out.line(f"t{n}_slots[i{n}_h + ONE] = -2 - np.int64(x)")
                out.line(f"if t{n}_flags[x] & np.uint8(2) == 0:")
                with out.indented():
                    out.line(f"t{n}_graves[a_.add(t{n}_meta, 3, 1)] = np.int64(x)")
                out.line(f"t{n}_flags[x] = np.uint8(2)")


def _load_arguments(plan: Plan, n: int) -> list[str]:
    columns = range(len(plan.program.tables[n].values))
    return ["mark", "rows", f"t{n}_flags", *(f"t{n}_c{k}" for k in columns), *(f"w{n}_{k}" for k in columns)]


def _loader(out: Source, plan: Plan, n: int) -> None:
    """What an event sees of a record of one table, to the event's entry.

    A function of its own, since numba's work grows with the square of a function's length; LLVM puts it in place.
    """
    columns = range(len(plan.program.tables[n].values))
    out.text(f"\n\n@nb.njit(nogil=True, forceinline=True)\ndef load{n}(g, e, {', '.join(_load_arguments(plan, n))}):")
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


def turns(ops: dict[int, Op], event: int, loop: int) -> str:
    """How often a loop over lists runs, from the event alone."""
    names = [f"at{event}_{ops[a].name}" for a in ops[loop].args]
    lengths = [f"np.int64({n}[j + ONE] - {n}[j])" for n in names]
    return lengths[0] if len(lengths) == 1 else f"min({', '.join(lengths)})"
