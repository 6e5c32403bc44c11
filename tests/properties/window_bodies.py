"""Windows in random programs: their declarations, what bodies do with them, and their triggers.

Each window belongs to one transaction. A trigger may add to windows that stand behind its own, so that there is no
cycle.
"""

from dataclasses import dataclass
from random import Random
from typing import Any

from penstock.declare.types import DATE, FLOAT, INT, STR, Type

SIZES = (
    *("rows=1", "rows=3", "rows=2, slide=2", "rows=5, slide=2", "rows=7, slide=4"),
    *("time=1", "time=6", "time=4, slide=4", "time=10, slide=3", "time=9223372036854775807"),
)
TRIGGERED = 0.6


@dataclass(frozen=True)
class WindowShape:
    name: str
    size: str
    of: Any  # the table whose key it has, so that events have keys for it; None: it has none
    columns: tuple[tuple[str, Type], ...]

    def column(self, *kinds: str) -> tuple[str, Type] | None:
        return next((one for one in self.columns if one[1].kind in kinds), None)


def shapes(rng: Random, tables: list[Any]) -> list[WindowShape]:
    types = [INT, FLOAT, STR, Type("decimal", 18, 2), Type("decimal", 9, 4), DATE, INT]
    out = []
    for number in range(rng.choice((1, 2, 2, 3))):
        columns = tuple((f"c{k}", t) for k, t in enumerate(rng.sample(types, rng.choice((1, 2, 3)))))
        of = rng.choice(tables) if tables and rng.random() < 0.7 else None
        out.append(WindowShape(f"W{number + 1}", rng.choice(SIZES), of, columns))
    return out


def declaration(window: WindowShape, written: Any) -> list[str]:
    keys = window.of.keys if window.of is not None else []
    return [
        *("", "", f"@app.window({window.size})", f"class {window.name}:"),
        *(f"    {name}: {written(type_)} = ps.key()" for name, type_ in keys),
        *(f"    {name}: {written(type_)}" for name, type_ in window.columns),
    ]


def named(writer: Any, window: WindowShape) -> str:
    return window.name if window.of is None else f"{window.name}[{writer.key(window.of, 1)}]"


def add(writer: Any) -> list[str]:
    several = [w for w in writer.windows if w.name not in writer.looped]
    if not several:
        return list(writer.assign())
    window = writer.rng.choice(several)
    given = [f"{name}={writer.stored(type_, 2)}" for name, type_ in window.columns]
    writer.rng.shuffle(given)
    return [f"{named(writer, window)}.add({', '.join(given)})"]


def read(writer: Any) -> list[str]:
    text, type_ = asked(writer, named(writer, writer.rng.choice(writer.windows)))
    name = writer.name(type_)
    writer.scope.names[name] = type_
    return [f"{name} = {text}"]


def asked(writer: Any, window: str) -> tuple[str, Type]:
    """What a body asks of a window, and of which type that is."""
    shape = next(w for w in writer.windows if window.startswith(w.name))
    name, type_ = writer.rng.choice(shape.columns)
    if writer.chance(0.25):
        return f"len({window})", INT
    if type_.traits.number and writer.chance(0.6):
        if writer.chance(0.7):
            return f"{window}.{name}.sum()", _in_body(type_)
        mean = Type("decimal", 18, 6) if type_.kind == "decimal" else FLOAT
        return f"({window}.{name}.mean() if len({window}) > 0 else {writer.literal(mean)})", mean
    best = f"{window}.{name}.{writer.rng.choice(('min', 'max'))}()"
    if writer.chance(0.1):
        return best, _in_body(type_)
    return f"({best} if len({window}) > 0 else {writer.literal(_in_body(type_))})", _in_body(type_)


def loop(writer: Any, depth: int) -> list[str]:
    window = writer.rng.choice(writer.windows)
    row, name = f"q{next(writer.fresh)}", f"x{next(writer.fresh)}"
    column, type_ = writer.rng.choice(window.columns)
    lines = [f"for {row} in {named(writer, window)}:", f"    {name} = {row}.{column}"]
    before, looped = writer.scope, writer.looped
    writer.scope, writer.looped = before.copy(), looped | {window.name}
    writer.scope.names[name] = writer.types[name] = _in_body(type_)
    writer.loops += 1
    body, _ = writer.block(depth - 1, writer.rng.choice((1, 2)))
    writer.loops -= 1
    writer.scope, writer.looped = before, looped
    return [*lines, *("    " + line for line in body)]


def trigger(writer: Any, window: WindowShape, number: int) -> list[str]:
    """A trigger of the window; what it knows beforehand is in names of its own."""
    lines = ["v1 = len(w.entered)", "v2 = len(w.expired)"]
    writer.scope.names |= {"v1": INT, "v2": INT}
    for part, name in (("entered", "v3"), ("expired", "v4")):
        found = window.column("int", "decimal", "float")
        if found is not None and writer.chance(0.7):
            lines.append(f"{name} = w.{part}.{found[0]}.sum()")
            writer.scope.names[name] = _in_body(found[1])
    numbers = window.column("int")
    if numbers is not None:
        lines += ["v5 = 0", "for q in w.expired:", f"    v5 = max(v5, q.{numbers[0]})"]
        lines += ["for q in w:", f"    v5 = min(v5, q.{numbers[0]})"]
        writer.scope.names["v5"] = INT
    writer.types |= writer.scope.names
    for _ in range(5):
        next(writer.fresh)
    # There is no event, and nothing to return.
    writer.require = lambda: [f'ps.require({writer.condition(2)} or v1 < 4, "trigger {number}")']
    writer.from_event = lambda type_, hot: writer.rng.choice(hot)
    writer.returning = lambda partial=False: "return"
    body, _ = writer.block(2, writer.rng.choice((1, 2, 3)))
    head = ["", "", "@app.trigger", f"def r{number}(w: {window.name}):"]
    return [*head, *("    " + line for line in [*lines, *body])]


def _in_body(type_: Type) -> Type:
    return Type("decimal", 18, type_.scale) if type_.kind == "decimal" else type_
