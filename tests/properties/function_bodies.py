"""Random functions marked @ps.function, and calls of them; and what is asked of a list of the event."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from penstock.declare.types import BOOL, FLOAT, INT, TIMEDELTA, Type

if TYPE_CHECKING:
    from bodies import Record, Writer

# How often a program has functions; how many of an event's; how often an expression calls one, or asks a list.
FUNCTIONS, MOST, CALLED, LISTED = 0.4, 2, 0.15, 0.06
PLACES = ("0", "0", "-1", "1", "SMALL", "e.i1 % 3")


@dataclass
class FunctionShape:
    name: str
    event: bool  # whether it takes the event first
    parameters: list[tuple[str, Type]]
    default: str  # of the last one; "": none
    record: Record | None  # what its parameter `rp` stands for
    returns: Type


def declaration(writer: Writer, name: str, event: bool, record: Record | None) -> tuple[FunctionShape, list[str]]:
    """A function, written by a writer of its own."""
    rng = writer.rng
    types = [writer.any_type() for _ in range(rng.choice((1, 2, 2)))]
    shape = FunctionShape(name, event, [(f"p{n}", t) for n, t in enumerate(types)], "", record, writer.any_type())
    if shape.parameters[-1][1].kind in ("int", "float", "str", "bool", "decimal") and rng.random() < 0.4:
        shape.default = writer.literal(shape.parameters[-1][1])
    for parameter, type_ in shape.parameters:
        writer.scope.names[parameter] = writer.types[parameter] = type_
    if record is not None:
        writer.scope.records["rp"] = writer.kinds["rp"] = record
    writer.returns, writer.budget = shape.returns, rng.choice((1, 2, 3))
    lines, leaves = writer.block(2, writer.budget)
    if not leaves:
        lines.append(writer.returning())
    names = [*(["e"] if event else []), *(["rp"] if record else []), *(n for n, _ in shape.parameters)]
    head = ", ".join(names) + (f"={shape.default}" if shape.default else "")
    return shape, ["", "", "@ps.function", f"def {name}({head}):", *("    " + line for line in lines)]


def call(writer: Writer, shape: FunctionShape, depth: int) -> str:
    rng = writer.rng
    parts = ["e"] if shape.event else []
    if shape.record is not None:
        known = [n for n, r in writer.scope.records.items() if r == shape.record]
        table = shape.record.table
        get = f"{table.name}.get({{}})" if shape.record.optional else f"{table.name}[{{}}]"
        parts.append(rng.choice(known) if known else get.format(writer.key(table, depth - 1)))
    given = shape.parameters[:-1] if shape.default and rng.random() < 0.5 else shape.parameters
    named = rng.random() < 0.3
    parts += [f"{n}={writer.expr(t, depth - 1)}" if named else writer.expr(t, depth - 1) for n, t in given]
    return f"{shape.name}({', '.join(parts)})"


def of_list(writer: Writer, type_: Type, depth: int) -> str:
    """An item, a sum, an extreme, a test or a length of a list; nothing where there is none that fits."""
    rng = writer.rng
    lists = [(n, t.item) for n, t in writer.fields if t.item is not None]
    fit = [n for n, t in lists if t.kind == type_.kind and t.scale == type_.scale]
    if type_ == INT and lists and rng.random() < 0.3:
        return f"len({_part(writer, rng.choice(lists)[0])})"
    if type_ == BOOL and lists and rng.random() < 0.7:
        truths = [n for n, t in lists if t.kind in ("int", "float", "bool", "str", "decimal", "timedelta")]
        return f"{rng.choice(('any', 'all'))}({_part(writer, rng.choice(truths))})" if truths else ""
    if not fit:
        return ""
    name = rng.choice(fit)
    if rng.random() < 0.2:
        return f"(e.{name}[{rng.choice(PLACES)}] if len(e.{name}) > {rng.choice('0123')} else {writer.atom(type_)})"
    zeros = {"int": "0", "float": "0.0", "timedelta": "datetime.timedelta()"}
    zero = zeros.get(type_.kind) or f'Decimal("{0:.{type_.scale}f}")'
    turns = f"y if {writer.condition(1)} else y for y in {_part(writer, name)}"
    over = f"({turns})" if rng.random() < 0.4 else _part(writer, name)
    if type_ in (INT, FLOAT, TIMEDELTA) or type_.kind == "decimal":
        if rng.random() < 0.5:
            return f"sum({over}, {zero})"
    if type_ == BOOL:
        return ""
    default = "" if rng.random() < 0.1 else f", default={writer.atom(type_)}"
    return f"{rng.choice(('min', 'max'))}({over}{default})"


def _part(writer: Writer, name: str) -> str:
    rng: Random = writer.rng
    if rng.random() < 0.6:
        return f"e.{name}"
    ends = [rng.choice(("", "", "1", "-1", "SMALL", "BIG", "e.i1", "-2")) for _ in range(2)]
    return f"e.{name}[{':'.join(ends)}]"


def converted(writer: Writer, type_: Type, depth: int) -> str:
    """An int or a float of another kind, or a power."""
    rng = writer.rng
    if type_ == INT and rng.random() < 0.3:
        return f"({writer.expr(INT, depth - 1)} ** {rng.choice('01223')})"
    others = [BOOL, FLOAT if type_ == INT else INT, *(Type("decimal", 18, s) for s in (0, 2, 4))]
    return f"{'int' if type_ == INT else 'float'}({writer.expr(rng.choice(others), depth - 1)})"


def two(writer: Writer) -> list[str]:
    """Both of a division."""
    type_ = writer.rng.choice((INT, INT, FLOAT))
    a, b = (f"v{next(writer.fresh)}" for _ in range(2))
    lines = [f"{a}, {b} = divmod({writer.expr(type_, 2)}, {writer.expr(type_, 1)})"]
    for name in (a, b):
        writer.scope.names[name] = writer.types[name] = type_
    return lines
