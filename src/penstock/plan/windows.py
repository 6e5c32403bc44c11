"""Windows in a body: `Spend[e.card]`, `w.add(…)`, `len(w)`, `w.amount.sum()`, `for r in w`; and their triggers.

A window's rows lie outside the tables (state/window.py). What the plan knows of them is a record of a hidden table, one
for each key, which says where they begin and end: an `add` makes it where there is none, as `Table.get` does, and what
is seen begins with a lookup of it.

A trigger has no operations of its own: they stand behind each `add` to its window, under the guard that it slid.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from penstock.declare import body as bodies
from penstock.declare.model import Column, Program, TableDef, TriggerDef, WindowDef
from penstock.declare.objects import Window
from penstock.declare.types import BOOL, INT
from penstock.plan import names
from penstock.plan.ir import RANGE, ROW, WindowPlan, walk
from penstock.plan.numbers import arithmetic, to_type
from penstock.plan.values import Iterated, Val, WindowRef, WindowRow, in_body

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.plan.ir import Op
    from penstock.plan.lower import Lowering

# Each is compiled in its place: two adds in each of a chain of triggers double them with every window, and to compile
# sixty takes a minute.
TRIGGERS_MAX = 32
METHODS = ("sum", "mean", "min", "max", "count")
# What a window's record says: the numbers of the first row that is kept, of the first that is staged and of the next;
# where its rows lie; and up to which the log has them.
HEAD, ACTIVE, TAIL, BASE, SIZE, LOGGED = range(6)
_PLACES = ("$head", "$active", "$tail", "$base", "$size", "$logged")


def plans(program: Program, ops: Iterable[Op]) -> tuple[WindowPlan, ...]:
    """All windows of an app. A column that is summed has its sum kept, in two words."""
    summed = {(op.table, op.name) for op in ops if op.code == "window_sum" and op.const}
    out = []
    for window in program.windows:
        kept = tuple(
            k for k, c in enumerate(window.values) if (window.hidden, c.name) in summed and c.type.kind != "float"
        )
        keys = window.keys or (Column("$key", INT, key=True),)
        words = (*_PLACES, *(f"${half} {window.values[k].name}" for k in kept for half in ("high", "low")))
        table = TableDef(window.hidden, (*keys, *(Column(name, INT, default=0) for name in words)))
        out.append(WindowPlan(window, table, kept))
    return tuple(out)


# -- what names a window ------------------------------------------------------------------------


def ref(lo: Lowering, node: ast.expr) -> WindowRef | None:
    """The window that an expression names, or None where it names none."""
    match node:
        case ast.Name(id=name) if name in lo.env:
            found = lo.env[name]
            return found if isinstance(found, WindowRef) else None
        case ast.Subscript(value=base, slice=key) if (window := _named(lo, base)) is not None:
            return _of_key(lo, window, key, node)
        case ast.Attribute(value=base, attr=("entered" | "expired") as part) if (of := ref(lo, base)) is not None:
            if of.entered is None or of.expired is None:
                lo.body.refuse(node, f"only a trigger of window '{of.window.name}' knows what has {part}")
            return WindowRef(of.window, of.keys, rows=of.entered if part == "entered" else of.expired)
    window = _named(lo, node)
    if window is None:
        return None
    if window.keys:
        columns = ", ".join(c.name for c in window.keys)
        lo.body.refuse(node, f"window '{window.name}' has one window a key; name it: {window.name}[{columns}]")
    return WindowRef(window, ())


def _named(lo: Lowering, node: ast.expr) -> WindowDef | None:
    found = names.static(lo, node)
    if not isinstance(found, Window):
        return None
    window = found.definition
    if lo.program is None:
        lo.body.refuse(node, "a check looks at its own record alone")
    if window not in lo.program.windows:
        lo.body.refuse(node, f"window '{window.name}' is declared in another app; declare it in this one")
    lo.windows.setdefault(window.name, lo.line or getattr(node, "lineno", 0))
    return window


def _of_key(lo: Lowering, window: WindowDef, key: ast.expr, node: ast.AST) -> WindowRef:
    from penstock.plan.expressions import keys_of

    if not window.keys:
        lo.body.refuse(node, f"window '{window.name}' has no key; name it without one")
    given = keys_of(lo, key)
    if len(given) != len(window.keys):
        columns = ", ".join(c.name for c in window.keys)
        lo.body.refuse(
            node, f"window '{window.name}' has {len(window.keys)} key column(s) ({columns}), not {len(given)}"
        )
    keys = [
        to_type(lo, v, c.type, node, f"key '{c.name}' of window '{window.name}'")
        for v, c in zip(given, window.keys, strict=True)
    ]
    return WindowRef(window, tuple(keys))


# -- what is asked of one -----------------------------------------------------------------------


def call(lo: Lowering, node: ast.Call) -> Val | None:
    """`w.amount.sum()`; None where the call is of nothing of a window."""
    match node.func:
        case ast.Attribute(value=ast.Attribute(value=base, attr=column), attr=method):
            found = ref(lo, base)
            return None if found is None else _aggregate(lo, found, column, method, node)
        case ast.Attribute(value=base, attr=method):
            found = ref(lo, base)
            if found is not None and method == "add":
                lo.body.refuse(node, "add is a statement of its own")
            if found is not None:
                ways = "add, len(…), a column, or a loop over its rows"
                lo.body.refuse(node, f"window '{found.window.name}' has no method '{method}'; use {ways}")
    return None


def _aggregate(lo: Lowering, found: WindowRef, name: str, method: str, node: ast.Call) -> Val:
    column = _column(lo, found.window, name, node)
    if method not in METHODS:
        lo.body.refuse(node, f"'{name}' of a window has no method '{method}'; use {', '.join(METHODS)}")
    if node.args or node.keywords:
        lo.body.refuse(node, f"{name}.{method}() takes nothing")
    if column.key:
        lo.body.refuse(node, f"'{name}' is a key of window '{found.window.name}': all its rows have the same")
    if method in ("sum", "mean") and not column.type.traits.number:
        lo.body.refuse(
            node, f"{method}() takes int, float or decimal, and '{name}' is {column.type}; loop over the rows"
        )
    if method in ("min", "max") and not column.type.traits.ordered:
        lo.body.refuse(node, f"{column.type}s have no order; loop over the rows")
    rows = _rows(lo, found, node)
    count = lo.value("window_len", INT, rows, node=node)
    if method == "count":
        return count
    if method != "sum":
        empty = lo.value("eq", BOOL, count, lo.const(0, INT), node=node)
        lo.emit("abort", name=f"empty {found.window.name}", node=node, guard=lo.both(lo.path, empty.id))
    code = "window_sum" if method == "mean" else f"window_{method}"
    kept = code == "window_sum" and found.rows is None
    value = lo.value(
        code, in_body(column.type), rows, node=node, table=found.window.hidden, name=column.name, const=kept
    )
    return arithmetic(lo, ast.Div(), value, count, node) if method == "mean" else value


def length(lo: Lowering, node: ast.expr) -> Val | None:
    """len(w); None where that is no window."""
    found = ref(lo, node)
    return None if found is None else lo.value("window_len", INT, _rows(lo, found, node), node=node)


def _rows(lo: Lowering, found: WindowRef, node: ast.AST) -> Val:
    """The rows that are seen now, or that have entered or expired."""
    if found.rows is not None:
        return found.rows
    row = lo.value("find", ROW, *_key(lo, found), node=node, table=found.window.hidden)
    return lo.value("seen", RANGE, row, *_clock(lo, found.window, node), node=node, table=found.window.hidden)


def _key(lo: Lowering, found: WindowRef) -> tuple[Val, ...]:
    return found.keys or (lo.const(0, INT),)


def _clock(lo: Lowering, window: WindowDef, node: ast.AST) -> tuple[Val, ...]:
    """What a span of time is counted back from."""
    if window.rows is not None:
        return ()
    assert lo.program is not None and lo.event is not None
    order = lo.program.order_type()
    if order is None:
        lo.body.refuse(
            node, f"window '{window.name}' is of the clock, and no event with a ps.order() is declared before this"
        )
    return (lo.value("now", order, node=node, const=lo.event.order is None),)


def _column(lo: Lowering, window: WindowDef, name: str, node: ast.AST) -> Column:
    column = window.column(name)
    if column is None:
        known = ", ".join(c.name for c in window.columns)
        lo.body.refuse(node, f"window '{window.name}' has no column '{name}'; it has {known}")
    return column


# -- loops --------------------------------------------------------------------------------------


def iterated(lo: Lowering, node: ast.expr) -> Iterated | None:
    """The rows that an expression names; None where it names none."""
    found = ref(lo, node)
    if found is None and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        of = ref(lo, node.func.value)
        if of is not None:
            name = of.window.name
            lo.body.refuse(
                node, f"window '{name}' has no '{node.func.attr}'; loop over the window, with an if in the loop"
            )
    return None if found is None else Iterated("rows", (_rows(lo, found, node),), (RANGE,), None, window=found)


def row(lo: Lowering, of: WindowRef, node: ast.AST) -> WindowRow:
    """The row of a turn: its columns are read where the turn begins, those that nobody uses not at all."""
    window = of.window
    items = [
        lo.value("item", in_body(c.type), node=node, const=k, guard=None, table=window.hidden, name=c.name)
        for k, c in enumerate(window.values)
    ]
    return WindowRow(window, (*of.keys, *items))


def column_of(lo: Lowering, node: ast.Attribute) -> Val | None:
    """A column of a row, or a part of a window's key; None where it is of neither."""
    if isinstance(node.value, ast.Name) and isinstance(found := lo.env.get(node.value.id), WindowRow):
        values = found.values
    elif (window := ref(lo, node.value)) is not None and window.rows is None:
        found, values = window, window.keys
    else:
        return None
    column = _column(lo, found.window, node.attr, node)
    if column not in found.window.columns[: len(values)]:
        many = ", ".join(f"{one}()" for one in METHODS)
        lo.body.refuse(node, f"'{node.attr}' of window '{found.window.name}' is of many rows; ask for its {many}")
    value = values[found.window.columns.index(column)]
    return Val(value.id, in_body(value.type))


def refuse_adds(lo: Lowering, of: WindowRef, body: tuple[Op, ...], node: ast.AST) -> None:
    if any(op.code == "window_add" and op.table == of.window.hidden for op in walk(body)):
        lo.body.refuse(
            node, f"this loop goes over rows of window '{of.window.name}' and adds to it; add behind the loop"
        )


# -- add, and what it runs ----------------------------------------------------------------------


def statement(lo: Lowering, node: ast.Call) -> bool:
    """`w.add(amount=…)`; whether the call is one."""
    if not (isinstance(node.func, ast.Attribute) and node.func.attr == "add"):
        return False
    found = ref(lo, node.func.value)
    if found is not None:
        _add(lo, found, node)
    return found is not None


def _add(lo: Lowering, found: WindowRef, node: ast.Call) -> None:
    window = found.window
    if found.rows is not None:
        lo.body.refuse(node, "rows that have entered or expired are only looked at")
    if window.name in lo.running:
        lo.body.refuse(
            node,
            f"an add to window '{window.name}' runs this trigger, so it cannot add there: that might never end; add to "
            "another window, or emit an event",
        )
    stored = window.hidden
    values = _arguments(lo, window, node)
    clock = _clock(lo, window, node)
    record = lo.value("ensure", ROW, *_key(lo, found), node=node, table=stored)
    slid = lo.value("window_add", BOOL, record, *clock, *values, node=node, table=stored)
    assert lo.program is not None
    for trigger in lo.program.triggers_of(window):
        _trigger(lo, trigger, found, slid, node)


def _arguments(lo: Lowering, window: WindowDef, node: ast.Call) -> list[Val]:
    from penstock.plan.expressions import nullable_value

    shape = f"{window.name}{'[…]' if window.keys else ''}.add({', '.join(f'{c.name}=…' for c in window.values)})"
    if node.args or any(keyword.arg is None for keyword in node.keywords):
        lo.body.refuse(node, f"add takes the columns by name: {shape}")
    given: dict[str, Val] = {}
    for keyword in node.keywords:
        assert keyword.arg is not None
        column = _column(lo, window, keyword.arg, node)
        if column.key:
            lo.body.refuse(node, f"key '{column.name}' is given where the window is named: {shape}")
        given[column.name] = nullable_value(lo, keyword.value)
    missing = [c.name for c in window.values if c.name not in given]
    if missing:
        lo.body.refuse(node, f"{window.name}.add needs '{missing[0]}': {shape}")
    # Python evaluates every argument before the call; conversion belongs to the call.
    return [to_type(lo, given[c.name], c.type, node, f"column '{c.name}'") for c in window.values]


def _trigger(lo: Lowering, trigger: TriggerDef, found: WindowRef, slid: Val, node: ast.AST) -> None:
    from penstock.plan.lower import Lowering

    stored, window = found.window.hidden, found.window
    lo.triggers.append(trigger.name)
    if len(lo.triggers) > TRIGGERS_MAX:
        lo.body.refuse(
            node,
            f"a trigger runs inside each add to its window, and here more than {TRIGGERS_MAX} would be part of one "
            "transaction; add in fewer places, or in a loop",
        )
    entered = lo.value("entered", RANGE, slid, node=node, table=stored)
    expired = lo.value("expired", RANGE, slid, node=node, table=stored)
    body = trigger_body(trigger)
    inner = Lowering(
        body,
        event=lo.event,
        program=lo.program,
        tables=lo.tables,
        events=lo.events,
        locals=bodies.stored(body),
        is_trigger=True,
        running=(*lo.running, window.name),
        windows=lo.windows,
        triggers=lo.triggers,
        line=lo.line or getattr(node, "lineno", 0),
        ops=lo.ops,
        path=lo.both(lo.path, slid.id),
        depth=lo.depth,
        types=lo.types,
        udfs=lo.udfs,
        returns=lo.returns,
        env={body.parameter: WindowRef(window, found.keys, entered=entered, expired=expired)},
    )
    inner.count = lo.count
    inner.block(body.tree.body)
    lo.count = inner.count


def trigger_body(trigger: TriggerDef) -> bodies.Body:
    return bodies.read(trigger.function, f"trigger '{trigger.name}'")


def alone(lo: Lowering, trigger: TriggerDef) -> None:
    """Lower a trigger for its refusals alone: what it is part of may not be declared yet."""
    window = trigger.window
    lo.windows[window.name] = 0
    keys = tuple(Val(lo.fresh(c.type), c.type) for c in window.keys)
    rows = [Val(lo.fresh(RANGE), RANGE) for _ in range(2)]
    lo.env[lo.body.parameter] = WindowRef(window, keys, entered=rows[0], expired=rows[1])
    lo.block(lo.body.tree.body)
