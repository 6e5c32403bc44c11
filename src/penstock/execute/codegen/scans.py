"""The source of scans: the rows are collected first (state/scan.py), and then gone through.

A record stays on its row while a batch runs, also when it is deleted and inserted again. So the record of a turn need
not be looked up in the index: whether it is still there, its row says.

Names: p0_m9 where the rows of scan %9 end, p0_q9 the turn, p0_y9 its row.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from penstock.declare.model import is_none
from penstock.execute.codegen.layout import FULL, FULL_SCAN, STALE_INDEX, indexed
from penstock.execute.codegen.source import Source
from penstock.plan.ir import Block, Op

if TYPE_CHECKING:
    from penstock.execute.codegen.emitter import Emitter


def scan(em: Emitter, out: Source, op: Op) -> None:
    end, turn, y = (f"{em.prefix}{letter}{op.id}" for letter in "mqy")
    base = em.scans[-1] if em.scans else "0"
    out.line(f"{end} = {_rows(em, op, base)}")
    out.line(f"if {end} < 0:")
    with out.indented():
        stale = f"{STALE_INDEX - indexed(em.plan).index((op.table, op.name))}" if op.const == "where" else ""
        out.line(f"info[0] = {f'{FULL_SCAN} if {end} == -1 else {stale}' if stale else FULL_SCAN}")
        em.end(out, FULL, "there is no room for the rows: it is made, and the event runs again")
    out.line(f"for {turn} in range({base}, {end}):")
    em.scans.append(end)
    with out.indented():
        out.line(f"{y} = np.uint64(scanned[{turn}])")
        for item in (o for o in op.body if o.code == "item"):
            out.line(f"{em.val(item.id)} = t{em.numbers[op.table]}_k{item.const}[{y}]")
        em.ops(out, op.body)
        em.next_turn(out, op)
    em.scans.pop()


def _rows(em: Emitter, op: Op, base: str) -> str:
    """The call that collects the rows."""
    table, n = em.plan.table(op.table), em.numbers[op.table]
    texts = sum(1 << k for k, column in enumerate(table.keys) if column.type.kind == "str")
    ages = f"t{n}_written[:0], 0, 0" if table.ttl is None else f"t{n}_at, {em.clock}, {table.lifetime}"
    them = f"scanned, {base}, t{n}_flags, ({ages}), n{n}, t{n}_keys, {texts}, text_at, text"
    args = [em.val(a) for a in op.args]
    match op.const:
        case "all":
            return f"z_.whole({them})"
        case "between":
            ends = ", ".join(f"np.int64({a})" for a in args)
            return f"z_.between({them}, ({ends}))"
    column = next(c for c in table.columns if c.name == op.name)
    lane = f"t{n}_k{table.keys.index(column)}" if column.key else f"t{n}_c{table.lanes.index(column)}"
    if op.const == "where":
        index = f"t{n}_i{table.lanes.index(column)}"
        if column.nullable:
            flag = f"t{n}_c{[c.name for c in table.lanes].index(is_none(column.name))}"
            none = f", {flag}, {args[1]}"
            return f"z_.where_null({them}, {lane}, {args[0]}, {index}_slots, {index}_posts, {index}_meta{none})"
        return f"z_.where({them}, {lane}, {args[0]}, {index}_slots, {index}_posts, {index}_meta)"
    return f"z_.best({them}, {lane}, {column.type.kind == 'str'}, {op.const == 'top'}, np.int64({args[0]}))"


def post(em: Emitter, out: Source, op: Op, k: int, x: str, value: str) -> None:
    """Tell a column's index what a row is given."""
    if (op.table, em.plan.table(op.table).lanes[k].name) not in em.posted:
        return
    t = f"t{em.numbers[op.table]}"
    if op.code == "write":
        out.line(f"if {t}_c{k}[{x}] != {value}:")
    with out.indented() if op.code == "write" else nullcontext():
        out.line(f"i_.post({t}_i{k}_slots, {t}_i{k}_posts, {t}_i{k}_meta, np.int64({value}), {x})")


def turns(block: Block) -> dict[tuple[int, ...], Op]:
    """The scans of a block, by the key of a turn's record."""
    return {tuple(o.id for o in op.body if o.code == "item"): op for op in block.walk() if op.code == "scan"}


def is_turn(em: Emitter, op: Op) -> bool:
    """Whether it looks up the record of a turn."""
    loop = em.turns.get(op.args)
    return op.code in ("find", "locate") and loop is not None and loop.table == op.table


def found(em: Emitter, out: Source, op: Op) -> None:
    y, v, x = f"{em.prefix}y{em.turns[op.args].id}", em.val(op.id), em.row(op.id)
    alive = em.store.alive(em, op.table, y)
    if op.code == "locate":
        em.abort(out, f"not ({alive})", f"missing {op.table}")
        out.line(f"{v} = np.int64({y})")
    else:
        out.line(f"{v} = np.int64({y}) if {alive} else -1")
    out.line(f"{x} = {y}")
