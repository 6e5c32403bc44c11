"""The source of windows: an add to a ring, what is seen, sums and extremes, loops over rows.

A value of rows is p0_v7_x, the record of whose rows they are, and p0_v7_a, p0_v7_b, the numbers of the first and behind
the last. An add leaves p0_v9_h0 and p0_v9_h1, where the rows began before and after it, and p0_v9_a0 and p0_v9_a1, up
to where they were active: what has expired and entered is between these. It takes nothing away from the ring, and
nothing else is added before the triggers are through.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.declare.kinds import REAL
from penstock.declare.types import INT, Type
from penstock.execute.codegen import records, undo
from penstock.execute.codegen.layout import FULL, FULL_ROOM
from penstock.execute.codegen.source import Source, zero
from penstock.plan.ir import RANGE, Op, WindowPlan
from penstock.plan.windows import ACTIVE, BASE, HEAD, LOGGED, SIZE, TAIL
from penstock.state.window import FIRST_RING

if TYPE_CHECKING:
    from penstock.execute.codegen.emitter import Emitter

_ADD = ("h0", "h1", "a0", "a1")  # besides the record


def zeros(em: Emitter, out: Source, op: Op) -> None:
    v = em.val(op.id)
    if op.type == RANGE:
        out.line(f"{v}_x = np.uint64(0)")
        out.line(f"{v}_a = np.int64(0)")
        out.line(f"{v}_b = np.int64(0)")
        return
    out.line(f"{v} = False")
    out.line(f"{v}_x = np.uint64(0)")
    for name in _ADD:
        out.line(f"{v}_{name} = np.int64(0)")


def add(em: Emitter, out: Source, op: Op) -> None:
    window, t = _of(em, op)
    v, x = em.val(op.id), em.row(op.args[0])
    values = [em.val(a) for a in op.args[len(op.args) - len(window.definition.values) :]]
    undo.room(em, out, op)
    out.line(f"{v}_x = {x}")
    for name, k in (("h0", HEAD), ("a0", ACTIVE), ("t0", TAIL), ("base", BASE), ("size", SIZE)):
        out.line(f"{v}_{name} = {t}_c{k}[{x}]")
    _grow(em, out, op, window)
    records.touch(em, out, op, x, t)
    _put(em, out, op, window, values)
    _slide(em, out, op, window)
    for n, k in enumerate(window.summed):
        high, low = LOGGED + 1 + 2 * n, LOGGED + 2 + 2 * n
        ring = f"{t}_r{k}, {v}_base, {v}_size, {v}_h0, {v}_a0, {v}_h1, {v}_a1"
        out.line(f"{v}_high{n}, {v}_low{n} = r_.slid_total({ring}, {t}_c{high}[{x}], {t}_c{low}[{x}])")
        records.store(em, out, op, t, high, INT, x, f"{v}_high{n}")
        records.store(em, out, op, t, low, INT, x, f"{v}_low{n}")
    for name, k in (("h1", HEAD), ("a1", ACTIVE), ("t1", TAIL)):
        records.store(em, out, op, t, k, INT, x, f"{v}_{name}")
    out.line(f"{v} = {v}_h1 > {v}_h0 or {v}_a1 > {v}_a0")


def _grow(em: Emitter, out: Source, op: Op, window: WindowPlan) -> None:
    """A ring that is full moves to one of twice the size."""
    t, v, x = _of(em, op)[1], em.val(op.id), em.row(op.args[0])
    out.line(f"if {v}_t0 - {v}_h0 == {v}_size:")
    with out.indented():
        out.line(f"{v}_room = max({FIRST_RING}, 2 * {v}_size)")
        out.line(f"{v}_to = {t}_pool[0]")
        out.line(f"if {v}_to + {v}_room > {t}_pool[1]:")
        with out.indented():
            out.line(f"info[0] = {FULL_ROOM + int(t[1:])}")
            em.end(out, FULL, f"{window.definition.name} is full: it grows, and the event runs again")
        out.line(f"{t}_pool[0] = {v}_to + {v}_room")
        for lane in _lanes(window, t):
            out.line(f"r_.move({lane}, {v}_base, {v}_size, {v}_to, {v}_room, {v}_h0, {v}_t0)")
        records.store(em, out, op, t, BASE, INT, x, f"{v}_to")
        records.store(em, out, op, t, SIZE, INT, x, f"{v}_room")
        out.line(f"{v}_base = {v}_to")
        out.line(f"{v}_size = {v}_room")


def _put(em: Emitter, out: Source, op: Op, window: WindowPlan, values: list[str]) -> None:
    """The row, to its place: what this transaction has made expire may lie there still, and come back."""
    t, v = _of(em, op)[1], em.val(op.id)
    out.line(f"{v}_at = r_.place({v}_base, {v}_size, {v}_t0)")
    out.line(f"{v}_t1 = {v}_t0 + 1")
    if window.definition.rows is None:
        if op.undo:
            undo.push(em, out, op.table, "time", f"{v}_at", f"{t}_times[{v}_at]")
        out.line(f"{t}_times[{v}_at] = {em.val(op.args[1])}")
    for k, (column, value) in enumerate(zip(window.definition.values, values, strict=True)):
        if op.undo:
            old = f"{t}_rb{k}[{v}_at]" if column.type.lane is REAL else f"np.int64({t}_r{k}[{v}_at])"
            undo.push(em, out, op.table, f"row{k}", f"{v}_at", old)
        out.line(f"{t}_r{k}[{v}_at] = {value}")


def _slide(em: Emitter, out: Source, op: Op, window: WindowPlan) -> None:
    """Where what is seen begins and ends from now on."""
    t, v, d = _of(em, op)[1], em.val(op.id), window.definition
    if d.rows is None:
        ring = f"{t}_times, {v}_base, {v}_size, {v}_h0, {v}_a0, {v}_t1"
        out.line(f"{v}_h1, {v}_a1 = r_.seen({ring}, {em.val(op.args[1])}, {d.size}, {d.step})")
    else:
        out.line(f"{v}_a1 = {v}_t1 if {v}_t1 - {v}_a0 == {d.step} else {v}_a0")
        out.line(f"{v}_h1 = max({v}_h0, {v}_a1 - {d.size})")


def slid(em: Emitter, out: Source, op: Op) -> None:
    """What has entered or expired at an add."""
    v, added = em.val(op.id), em.val(op.args[0])
    a, b = ("a0", "a1") if op.code == "entered" else ("h0", "h1")
    out.line(f"{v}_x = {added}_x")
    out.line(f"{v}_a = {added}_{a}")
    out.line(f"{v}_b = {added}_{b}")


def seen(em: Emitter, out: Source, op: Op) -> None:
    """What is seen now; nothing where there is no record. It changes nothing, wherever the clock has gone."""
    window, t = _of(em, op)
    v, r, x, d = em.val(op.id), em.val(op.args[0]), em.row(op.args[0]), window.definition
    zeros(em, out, op)
    out.line(f"if {r} >= 0:")
    with out.indented():
        out.line(f"{v}_x = {x}")
        if d.rows is None:
            ring = ", ".join([f"{t}_times", *(f"{t}_c{k}[{x}]" for k in (BASE, SIZE, HEAD, ACTIVE, TAIL))])
            out.line(f"{v}_a, {v}_b = r_.seen({ring}, {em.val(op.args[1])}, {d.size}, {d.step})")
        else:
            out.line(f"{v}_a = {t}_c{HEAD}[{x}]")
            out.line(f"{v}_b = {t}_c{ACTIVE}[{x}]")


def total(em: Emitter, out: Source, op: Op) -> None:
    window, t = _of(em, op)
    k, type_ = _column(window, op)
    v, rows = em.val(op.id), em.val(op.args[0])
    ring = f"{t}_r{k}, {t}_c{BASE}[{rows}_x], {t}_c{SIZE}[{rows}_x]"
    if type_.kind == "float":
        out.line(f"{v} = 0.0")
        out.line(f"if {rows}_a < {rows}_b:")
        with out.indented():
            out.line(f"{v} = r_.float_total({ring}, {rows}_a, {rows}_b)")
        return
    out.line(f"{v}_high = np.int64(0)")
    out.line(f"{v} = np.int64(0)")
    out.line(f"if {rows}_a < {rows}_b:")
    with out.indented():
        if op.const:
            n = window.summed.index(k)
            kept = ", ".join(f"{t}_c{c}[{rows}_x]" for c in (HEAD, ACTIVE))
            sums = ", ".join(f"{t}_c{c}[{rows}_x]" for c in (LOGGED + 1 + 2 * n, LOGGED + 2 + 2 * n))
            out.line(f"{v}_high, {v} = r_.slid_total({ring}, {kept}, {rows}_a, {rows}_b, {sums})")
        else:
            out.line(f"{v}_high, {v} = r_.total({ring}, {rows}_a, {rows}_b)")
    lost = f"{v}_high != {v} >> 63"
    em.abort(out, f"{lost} or k_.wide({v})" if type_.kind == "decimal" else lost, "overflow")


def best(em: Emitter, out: Source, op: Op) -> None:
    """min and max; that there are rows was tested."""
    window, t = _of(em, op)
    k, type_ = _column(window, op)
    v, rows = em.val(op.id), em.val(op.args[0])
    assert op.type is not None
    ring = f"{t}_r{k}, {t}_c{BASE}[{rows}_x], {t}_c{SIZE}[{rows}_x], {rows}_a, {rows}_b"
    out.line(f"{v} = {zero(op.type)}")
    out.line(f"if {rows}_a < {rows}_b:")
    with out.indented():
        if type_.kind == "str":
            out.line(f"{v} = r_.best_text(text_at, text, {ring}, {-1 if op.code == 'window_min' else 1})")
        else:
            out.line(f"{v} = r_.{'least' if op.code == 'window_min' else 'greatest'}({ring})")


def turns(em: Emitter, out: Source, op: Op) -> None:
    """A loop over rows."""
    _, t = _of(em, op)
    turn, rows = f"{em.prefix}q{op.id}", em.val(op.args[0])
    base, size = f"{em.prefix}b{op.id}", f"{em.prefix}m{op.id}"
    out.line(f"{base} = np.int64(0)")
    out.line(f"{size} = np.int64(1)")
    out.line(f"if {rows}_a < {rows}_b:")
    with out.indented():
        out.line(f"{base} = {t}_c{BASE}[{rows}_x]")
        out.line(f"{size} = {t}_c{SIZE}[{rows}_x]")
    out.line(f"for {turn} in range({rows}_a, {rows}_b):")
    with out.indented():
        empty = len(out.lines)
        for item in (o for o in op.body if o.code == "item"):
            out.line(f"{em.val(item.id)} = {t}_r{item.const}[r_.place({base}, {size}, {turn})]")
        em.ops(out, op.body)
        em.next_turn(out, op)
        if len(out.lines) == empty:
            out.line("pass")


def _of(em: Emitter, op: Op) -> tuple[WindowPlan, str]:
    window = em.plan.window(op.table)
    assert window is not None
    return window, f"t{em.numbers[op.table]}"


def _column(window: WindowPlan, op: Op) -> tuple[int, Type]:
    names = [c.name for c in window.definition.values]
    k = names.index(op.name)
    return k, window.definition.values[k].type


def _lanes(window: WindowPlan, t: str) -> list[str]:
    times = [f"{t}_times"] if window.definition.rows is None else []
    return [*(f"{t}_r{k}" for k in range(len(window.definition.values))), *times]


EMIT = {"window_add": add, "slid": slid, "seen": seen, "window_sum": total, "window_best": best}
