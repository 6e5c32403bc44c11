"""The serial kernel's source for people: the user's own lines above what was made of them, reasons and columns by name.

It is the source that runs, written with comments, and with long lines broken. It is not compiled itself: machine code
and logs of input are known by their source, and a comment that a user changed must not make them others.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.declare.model import TableDef
from penstock.execute.codegen.generate import generate
from penstock.execute.codegen.layout import Layout, scanned_tables
from penstock.execute.codegen.program import COUNTS
from penstock.execute.codegen.source import code_of, one_line
from penstock.plan.inline import Member, inline
from penstock.plan.ir import Plan

WIDTH = 120


def annotated(plan: Plan) -> str:
    inlined = inline(plan)
    plan = plan if isinstance(inlined, str) else inlined.plan
    groups = () if isinstance(inlined, str) else inlined.groups
    text, layout = generate(plan, notes=True)
    lines = [*_legend(plan, layout), *_members(groups), "", *text.splitlines()]
    return "\n".join(piece for line in lines for piece in _wrapped(line)) + "\n"


def _legend(plan: Plan, layout: Layout) -> Iterator[str]:
    """What the names stand for."""
    program = plan.program
    yield f"# The serial kernel of app {program.name!r}: one function runs a batch, event after event."
    yield "# pK_vN is the value %N of event K's transaction (`explain()` prints it), pK_xN a row as an index."
    yield "# c is 0, or why the transaction ends: the number of a reason."
    for n, table in enumerate(plan.tables):
        yield f"# t{n}: {_table(table)}; {', '.join(f'{name}{n} {meaning}' for name, _, meaning in COUNTS)}"
    if scanned_tables(plan):
        yield "# scanned: the rows that scans collect; pK_mN: where those of scan %N end, pK_yN: the row of a turn"
    for n, event in enumerate(program.events):
        yield f"# e{n}_, ok{n}_, at{n}_: {event.name}'s fields, whether they are given, where each list begins"
    if program.flow is not None:
        yield "# b is the event that arrived, k the kind of event that runs, j its row, i its row of the outcomes."
        if any(t.several for t in program.transactions):
            yield "# more: how many events its transaction takes besides, which are those before it."
        for name in program.flow.emitted:
            n = program.kind(name)
            yield f"# q{n}_n, q{n}_head: how many {name} the queue holds, and how many of them have run"
    for k, (name, _) in enumerate(program.lanes):
        yield f"# o{k}, h{k}: {one_line(name)}, which is returned, and whether it is"
    for k, literal in enumerate(layout.literals):
        yield f"# literals[{k}]: {literal!r}"


def _members(groups: tuple[tuple[str, tuple[Member, ...]], ...]) -> Iterator[str]:
    """What the lanes of groups are."""
    for event, members in groups:
        for member in members:
            told = [f"o{lane} {one_line(name)}" for name, lane in member.fields]
            told += [f"o{sent.times} how many {sent.event} it sends out" for sent in member.sent]
            if member.times is not None:
                told.insert(0, f"o{member.times} how often it runs")
            yield f"# of {event}, {member.event}: {', '.join(told) or 'nothing'}"


def _table(table: TableDef) -> str:
    keys = [f"k{k} {column.name}" for k, column in enumerate(table.keys)]
    values = [f"c{k} {column.name}" for k, column in enumerate(table.lanes)]
    return f"{table.name} ({', '.join([*keys, *values])})"


def _wrapped(line: str) -> Iterator[str]:
    """A line; one that is too long with its comment above it, and what it calls or defines taking a line for each few
    arguments. It means the same: brackets go on from line to line."""
    if len(line) <= WIDTH:
        yield line
        return
    code, indent = code_of(line), line[: len(line) - len(line.lstrip())]
    comment = line.strip()[len(code) :].strip()
    if comment:
        yield from _filled(comment.removeprefix("# ").split(" "), f"{indent}# ", " ")
    opened = _opening(code)
    if len(indent + code) <= WIDTH or opened < 0:
        if code:
            yield indent + code
        return
    close = code.rindex(")")
    yield indent + code[: opened + 1]
    yield from _filled(code[opened + 1 : close].split(", "), f"{indent}    ", ", ", end=",")
    yield indent + code[close:]


def _filled(words: list[str], indent: str, between: str, end: str = "") -> Iterator[str]:
    line = words[0]
    for word in words[1:]:
        if len(indent + line + between + word + end) > WIDTH:
            yield indent + line + end
            line = word
        else:
            line += between + word
    yield indent + line + end


def _opening(code: str) -> int:
    """Where the bracket opens that the line ends with, or -1."""
    depth = 0
    for at in range(len(code.rstrip(":")) - 1, -1, -1):
        depth += (code[at] == ")") - (code[at] == "(")
        if depth == 0:
            return at if code[at] == "(" else -1
    return -1
