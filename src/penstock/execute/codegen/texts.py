"""The source of operations on strings (state/texts.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.execute.codegen.layout import FULL, FULL_TEXT
from penstock.execute.codegen.source import Source
from penstock.plan.ir import Op
from penstock.state import texts

if TYPE_CHECKING:
    from penstock.execute.codegen.emitter import Emitter

_POOL = "text_slots, text_at, text, text_pool"


def look(em: Emitter, out: Source, op: Op) -> None:
    out.line(f"{em.val(op.id)} = {op.name}(text_at, text, {', '.join(em.val(a) for a in op.args)})")


def make(em: Emitter, out: Source, op: Op) -> None:
    v, args = em.val(op.id), [em.val(a) for a in op.args]
    match op.name:
        case "texts.join":
            parts = ", ".join(f"np.int64({a})" for a in args)
            out.line(f"{v} = texts.join({_POOL}, ({parts},), {op.const})")
        case "texts.lower" | "texts.upper":
            out.line(f"{v} = {op.name}({_POOL}, text_cases, text_kinds, {args[0]})")
        case _:
            out.line(f"{v} = {op.name}({_POOL}, {', '.join(args)})")
    out.line(f"if {v} == {texts.FULL}:")
    with out.indented():
        out.line(f"info[0] = {FULL_TEXT}")
        em.end(out, FULL, "there is no room for a string: it is made, and the event runs again")
    em.abort(out, f"{v} == {texts.LOST}", "overflow")


EMIT = {"look": look, "make": make}
