"""The source of operations on records: probing the index, reading, writing, inserting, deleting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.declare.model import TableDef
from penstock.declare.types import Type
from penstock.execute.codegen import checks, undo
from penstock.execute.codegen.layout import FULL
from penstock.execute.codegen.source import Source
from penstock.plan.ir import Op
from penstock.plan.records import stored_default

if TYPE_CHECKING:
    from penstock.execute.codegen.emitter import Emitter


def record_op(em: Emitter, out: Source, op: Op) -> None:
    v = em.val(op.id)
    if op.code == "present":
        out.line(f"{v} = {em.val(op.args[0])} >= 0")
        return
    table = em.plan.table(op.table)
    t = f"t{em.numbers[op.table]}"
    if op.code in ("read", "read_or", "write"):
        column_op(em, out, op, table, t)
        return
    keys = [em.val(a) for a in op.args[: len(table.keys)]]
    undo.room(em, out, op)
    probe(em, out, t, keys)
    match op.code:
        case "find" | "locate":
            if op.code == "locate":
                em.abort(out, "r < 0", f"missing {op.table}")
            out.line(f"{v} = r")
            out.line(f"{em.row(op.id)} = np.uint64(r)")
        case "insert":
            em.abort(out, "r >= 0", f"exists {op.table}")
            place(em, out, op, table, t, keys, [em.val(a) for a in op.args[len(keys) :]])
        case "ensure":
            defaults = [em.constant(stored_default(c), c.type) for c in table.values]
            out.line("if r < 0:")
            with out.indented():
                place(em, out, op, table, t, keys, defaults)
            out.line("else:")
            with out.indented():
                out.line(f"{v} = r")
                out.line(f"{em.row(op.id)} = np.uint64(r)")
            checks.note(em, out, op, em.row(op.id))
        case "delete":
            em.abort(out, "r < 0", f"missing {op.table}")
            kill(em, out, op, t)


def probe(em: Emitter, out: Source, t: str, keys: list[str]) -> None:
    """Leaves h at the key's slot (or the empty one for it), r what it holds, and tag its tag."""
    if len(keys) == 1:
        out.line(f"tag = np.int64({keys[0]})")
        out.line(f"h = first(tag, {t}_slots)")
        # An empty slot may still hold the tag of what was there: then it is the slot for this key.
        out.line(f"while {t}_slots[h] != tag and {t}_slots[h + ONE] != -1:")
        with out.indented():
            out.line(f"h = (h + TWO) & {t}_mask")
        out.line(f"r = {t}_slots[h + ONE]")
        return
    out.line("tag = np.int64(0)")
    for key in keys:
        out.line(f"tag = combine(tag, {key})")
    out.line(f"h = first(tag, {t}_slots)")
    out.line("while True:")
    with out.indented():
        out.line(f"r = {t}_slots[h + ONE]")
        out.line("if r == -1:")
        with out.indented():
            out.line("break")
        out.line(f"if {t}_slots[h] == tag:")
        with out.indented():
            out.line("at = np.uint64(r if r >= 0 else -2 - r)")
            out.line(f"if {' and '.join(f'{t}_k{k}[at] == {key}' for k, key in enumerate(keys))}:")
            with out.indented():
                out.line("break")
        out.line(f"h = (h + TWO) & {t}_mask")


def place(em: Emitter, out: Source, op: Op, table: TableDef, t: str, keys: list[str], values: list[str]) -> None:
    """Put a record at the slot h that probe found: on its own dead row, a freed one or a new one."""
    n = t[1:]
    x = em.row(op.id)
    out.line("if r == -1:")
    with out.indented():
        out.line(f"if u{n} >= {t}_written.size:")
        with out.indented():
            out.line(f"info[0] = {n}")
            out.line(f"c = {FULL}")
            out.line("break")
        out.line(f"u{n} += 1")
        out.line(f"if f{n} > 0:")
        with out.indented():
            out.line(f"f{n} -= 1")
            out.line(f"r = {t}_free[f{n}]")
        out.line("else:")
        with out.indented():
            out.line(f"r = n{n}")
            out.line(f"n{n} += 1")
        out.line(f"{t}_slots[h] = tag")
        for k, key in enumerate(keys):
            out.line(f"{t}_k{k}[np.uint64(r)] = {key}")
    out.line("else:")
    with out.indented():
        out.line("r = -2 - r")
    out.line(f"{em.val(op.id)} = r")
    out.line(f"{x} = np.uint64(r)")
    out.line(f"{t}_slots[h + ONE] = r")
    out.line(f"{t}_flags[{x}] |= np.uint8(1)")
    if op.undo:
        undo.push(em, out, op.table, "exists", "h", "0")
    touch(em, out, op, x, t)
    for k, value in enumerate(values):
        store(em, out, op, t, k, table.values[k].type, x, value)
    if op.code == "insert":
        checks.note(em, out, op, x)


def kill(em: Emitter, out: Source, op: Op, t: str) -> None:
    out.line("x = np.uint64(r)")
    out.line(f"{t}_slots[h + ONE] = -2 - r")
    bury(em, out, t, "x")
    if op.undo:
        undo.push(em, out, op.table, "exists", "h", "0")
    touch(em, out, op, "x", t)


def bury(em: Emitter, out: Source, t: str, x: str) -> None:
    """A row dies; list it once among the batch's graves."""
    n = t[1:]
    out.line(f"if {t}_flags[{x}] & np.uint8(2) == 0:")
    with out.indented():
        out.line(f"{t}_graves[g{n}] = np.int64({x})")
        out.line(f"g{n} += 1")
    out.line(f"{t}_flags[{x}] = np.uint8(2)")


def column_op(em: Emitter, out: Source, op: Op, table: TableDef, t: str) -> None:
    x = em.row(op.args[0])
    keys = [c.name for c in table.keys]
    if op.name in keys:
        out.line(f"{em.val(op.id)} = {t}_k{keys.index(op.name)}[{x}]")
        return
    k = [c.name for c in table.values].index(op.name)
    column = table.values[k]
    if op.code == "write":
        undo.room(em, out, op)
        touch(em, out, op, x, t)
        store(em, out, op, t, k, column.type, x, em.val(op.args[1]))
        checks.note(em, out, op, x)
    elif op.code == "read":
        out.line(f"{em.val(op.id)} = {t}_c{k}[{x}]")
    else:
        default = em.constant(stored_default(column), column.type)
        out.line(f"{em.val(op.id)} = {t}_c{k}[{x}] if {em.val(op.args[0])} >= 0 else {default}")


def touch(em: Emitter, out: Source, op: Op, x: str, t: str) -> None:
    """The first write to a record in this batch makes it dirty; no branch, since no guess would be good."""
    n = t[1:]
    out.line(f"before = {t}_written[{x}]")
    if op.undo:
        undo.push(em, out, op.table, "written", x, "before")
    out.line(f"{t}_written[{x}] = batch")
    out.line(f"{t}_dirty[d{n}] = np.int64({x})")
    out.line(f"d{n} += before != batch")


def store(em: Emitter, out: Source, op: Op, t: str, k: int, type_: Type, x: str, value: str) -> None:
    if op.undo:
        old = f"{t}_b{k}[{x}]" if type_.kind == "float" else f"np.int64({t}_c{k}[{x}])"
        undo.push(em, out, op.table, f"column{k}", x, old)
    out.line(f"{t}_c{k}[{x}] = {value}")
