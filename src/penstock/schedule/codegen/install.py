"""The source of `install`: the last versions of a range of entries, to the tables.

Threads install ranges of their own. What a thread wrote goes to a list of its own first, so that it takes its places
in a table's shared list all at once.
"""

from __future__ import annotations

from penstock.declare.model import TableDef
from penstock.execute.codegen import records
from penstock.execute.codegen.source import Source
from penstock.plan.ir import Plan
from penstock.schedule.codegen import versions


def install(out: Source, plan: Plan) -> None:
    tables = range(len(plan.program.tables))
    if not tables:
        return  # and so no entries
    out.line("g = borrowed(g)")
    for t in tables:
        records.mask(out, f"t{t}")
    out.line("start, stop = h_.share(g.record.size, me, threads)")
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
        for n, table in reversed(list(enumerate(plan.program.tables))):
            out.line(f"{word} g.record[e] >= rows[{n}]:")
            with out.indented():
                _install_one(out, n, table)
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


def _install_one(out: Source, n: int, table: TableDef) -> None:
    out.line(f"x = np.uint64(g.record[e] - rows[{n}])")
    for k in range(len(table.lanes)):
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
                out.line(f"t{n}_tombstones[a_.add(t{n}_meta, 3, 1)] = np.int64(x)")
            out.line(f"t{n}_flags[x] = np.uint8(2)")
