"""The source of operations on records: probing the index, reading, writing, inserting, deleting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.declare.kinds import REAL
from penstock.declare.model import TableDef
from penstock.declare.types import Type
from penstock.execute.codegen import checks, scans, undo
from penstock.execute.codegen.layout import FULL
from penstock.execute.codegen.source import Source
from penstock.plan.ir import Op
from penstock.plan.records import stored_default

if TYPE_CHECKING:
    from penstock.execute.codegen.emitter import Emitter


def record_op(em: Emitter, out: Source, op: Op) -> None:
    v = em.val(op.id)
    table = em.plan.table(op.table)
    t = f"t{em.numbers[op.table]}"
    if op.traits.of_column:
        column_op(em, out, op, table, t)
        return
    keys = [em.val(a) for a in op.args[: len(table.keys)]]
    undo.room(em, out, op)
    probe(out, t, v, keys)
    r = f"{v}_r"
    if table.ttl is not None:
        expire(em, out, op, t, table.lifetime)
    match op.code:
        case "find" | "locate":
            if op.code == "locate":
                em.abort(out, f"{r} < 0", f"missing {op.table}")
            found(em, out, op, r)
        case "insert":
            em.abort(out, f"{r} >= 0", f"exists {op.table}")
            place(em, out, op, table, t, keys, [em.val(a) for a in op.args[len(keys) :]])
        case "ensure":
            defaults = [em.constant(stored_default(c), c.type) for c in table.lanes]
            out.line(f"if {r} < 0:")
            with out.indented():
                place(em, out, op, table, t, keys, defaults)
            out.line("else:")
            with out.indented():
                found(em, out, op, r)
            checks.note(em, out, op, em.row(op.id))
        case "delete":
            em.abort(out, f"{r} < 0", f"missing {op.table}")
            die(em, out, op, t, em.row(op.id))
        case _:
            raise NotImplementedError(op.code)


def expire(em: Emitter, out: Source, op: Op, t: str, lifetime: int | None) -> None:
    """Who looks a record up first after its time deletes it."""
    v = em.val(op.id)
    out.line(f"if {v}_r >= 0 and s_.expired({t}_at[np.uint64({v}_r)], {em.clock}, {lifetime}):")
    with out.indented():
        die(em, out, op, t, f"{v}_old")
        out.line(f"{v}_r = -2 - {v}_r")


def alive(em: Emitter, table: str, x: str) -> str:
    return f"t{em.numbers[table]}_flags[{x}] & np.uint8(1) != 0"


def forget(out: Source, x: str) -> None:
    """That a record was noted for checks; here each write notes it."""


def found(em: Emitter, out: Source, op: Op, r: str) -> None:
    out.line(f"{em.val(op.id)} = {r}")
    out.line(f"{em.row(op.id)} = np.uint64({r})")


def mask(out: Source, t: str) -> None:
    """What `probe` goes around a table's index by."""
    out.line(f"{t}_mask = np.uint64({t}_slots.size - 1)")


def probe(out: Source, t: str, v: str, keys: list[str]) -> None:
    """Leaves {v}_h at the key's slot (or the empty one for it), {v}_r what it holds, and {v}_tag its tag.

    Names are never used twice: numba's work on a name grows with the number of its assignments.
    """
    h, r, tag = f"{v}_h", f"{v}_r", f"{v}_tag"
    if len(keys) == 1:
        out.line(f"{tag} = np.int64({keys[0]})")
        out.line(f"{h} = s_.seek({t}_slots, {tag})")
        out.line(f"{r} = {t}_slots[{h} + ONE]")
        return
    parts = "np.int64(0)"
    for key in keys:
        parts = f"combine({parts}, {key})"
    out.line(f"{tag} = {parts}")
    out.line(f"{h} = first({tag}, {t}_slots)")
    out.line("while True:")
    with out.indented():
        out.line(f"{r} = {t}_slots[{h} + ONE]")
        out.line(f"if {r} == -1:")
        with out.indented():
            out.line("break")
        out.line(f"if {t}_slots[{h}] == {tag}:")
        with out.indented():
            out.line(f"{v}_at = np.uint64({r} if {r} >= 0 else -2 - {r})")
            out.line(f"if {' and '.join(f'{t}_k{k}[{v}_at] == {key}' for k, key in enumerate(keys))}:")
            with out.indented():
                out.line("break")
        out.line(f"{h} = ({h} + TWO) & {t}_mask")


def place(em: Emitter, out: Source, op: Op, table: TableDef, t: str, keys: list[str], values: list[str]) -> None:
    """Put a record at the slot that probe found: on its own dead row, a freed one or a new one."""
    n, v, x = t[1:], em.val(op.id), em.row(op.id)
    out.line(f"if {v}_r == -1:")
    with out.indented():
        out.line(f"if u{n} >= {t}_written.size:")
        with out.indented():
            out.line(f"info[0] = {n}")
            em.end(out, FULL, f"{table.name} is full: it grows, and the event runs again")
        out.line(f"u{n} += 1")
        out.line(f"if f{n} > 0:")
        with out.indented():
            out.line(f"f{n} -= 1")
            out.line(f"{v} = {t}_free[f{n}]")
        out.line("else:")
        with out.indented():
            out.line(f"{v} = n{n}")
            out.line(f"n{n} += 1")
        out.line(f"{t}_slots[{v}_h] = {v}_tag")
        for k, key in enumerate(keys):
            out.line(f"{t}_k{k}[np.uint64({v})] = {key}")
    out.line("else:")
    with out.indented():
        out.line(f"{v} = -2 - {v}_r")
    out.line(f"{x} = np.uint64({v})")
    out.line(f"{t}_slots[{v}_h + ONE] = {v}")
    out.line(f"{t}_flags[{x}] |= np.uint8(1)")
    if op.undo:
        undo.push(em, out, op.table, "exists", f"{v}_h", "0")
    touch(em, out, op, x, t)
    renew(em, out, op, x, t)
    for k, value in enumerate(values):
        store(em, out, op, t, k, table.lanes[k].type, x, value)
    if op.code == "insert":
        checks.note(em, out, op, x)


def die(em: Emitter, out: Source, op: Op, t: str, x: str) -> None:
    """The record that probe found; x: a name for its row."""
    v = em.val(op.id)
    out.line(f"{x} = np.uint64({v}_r)")
    out.line(f"{t}_slots[{v}_h + ONE] = -2 - {v}_r")
    bury(out, t, x)
    if op.undo:
        undo.push(em, out, op.table, "exists", f"{v}_h", "0")
    touch(em, out, op, x, t)


def bury(out: Source, t: str, x: str) -> None:
    n = t[1:]
    out.line(f"g{n} = s_.bury({t}_flags, {t}_tombstones, g{n}, {x})")


def column_op(em: Emitter, out: Source, op: Op, table: TableDef, t: str) -> None:
    x = em.row(op.args[0])
    keys = [c.name for c in table.keys]
    if op.name in keys:
        out.line(f"{em.val(op.id)} = {t}_k{keys.index(op.name)}[{x}]")
        return
    k = [c.name for c in table.lanes].index(op.name)
    column = table.lanes[k]
    if op.code == "write":
        undo.room(em, out, op)
        touch(em, out, op, x, t)
        renew(em, out, op, x, t)
        store(em, out, op, t, k, column.type, x, em.val(op.args[1]))
        checks.note(em, out, op, x)
    elif op.code == "read":
        out.line(f"{em.val(op.id)} = {t}_c{k}[{x}]")
    elif op.code == "read_or":
        default = em.constant(stored_default(column), column.type)
        out.line(f"{em.val(op.id)} = {t}_c{k}[{x}] if {em.val(op.args[0])} >= 0 else {default}")
    else:
        raise NotImplementedError(op.code)


def touch(em: Emitter, out: Source, op: Op, x: str, t: str) -> None:
    n = t[1:]
    if op.undo:
        undo.push(em, out, op.table, "written", x, f"{t}_written[{x}]")
    out.line(f"d{n} = s_.touch({t}_written, {t}_dirty, d{n}, {x}, batch)")


def renew(em: Emitter, out: Source, op: Op, x: str, t: str) -> None:
    """A record that is written lives on from now."""
    if em.plan.table(op.table).ttl is not None:
        if op.undo:
            undo.push(em, out, op.table, "at", x, f"{t}_at[{x}]")
        out.line(f"{t}_at[{x}] = {em.clock}")


def store(em: Emitter, out: Source, op: Op, t: str, k: int, type_: Type, x: str, value: str) -> None:
    if op.undo:
        old = f"{t}_b{k}[{x}]" if type_.lane is REAL else f"np.int64({t}_c{k}[{x}])"
        undo.push(em, out, op.table, f"column{k}", x, old)
    scans.post(em, out, op, k, x, value)
    out.line(f"{t}_c{k}[{x}] = {value}")
