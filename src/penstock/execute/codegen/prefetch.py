"""The source that asks for a block's slots of the index before the block runs (state/prefetch.py says why).

Only lookups whose key comes straight from the event are asked for: a field, a constant, an item of a list.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.execute.codegen.source import Source
from penstock.execute.codegen.subroutines import Cutter
from penstock.plan.ir import Op, Plan, TransactionPlan, walk
from penstock.state.lanes import constant


@dataclass(frozen=True, slots=True)
class Prefetch:
    """One lookup that can be foreseen."""

    table: int
    keys: tuple[str, ...]
    loop: str  # the list field whose items are keys, or ""


def foreseen(plan: Plan, transaction: TransactionPlan, event: int) -> list[Prefetch]:
    """Without the lookups that repeat another's key."""
    names = [t.name for t in plan.tables]
    found: dict[tuple[int, tuple[str, ...]], Prefetch] = {}
    for loop, op in _lookups(transaction.block.ops, None):
        table = plan.table(op.table)
        source = _Source(transaction, event, loop)
        keys = [source.text(a) for a in op.args[: len(table.keys)]]
        if all(keys):
            number = names.index(op.table)
            known = tuple(k for k in keys if k)
            found.setdefault((number, known), Prefetch(number, known, source.field))
    return list(found.values())


def _lookups(ops: tuple[Op, ...], loop: Op | None) -> Iterator[tuple[Op | None, Op]]:
    for op in ops:
        if op.traits.takes == "key":
            yield loop, op
        if op.is_loop:
            yield from _lookups(op.body, op)


class _Source:
    """A key as source text, where the event alone gives it."""

    def __init__(self, transaction: TransactionPlan, event: int, loop: Op | None) -> None:
        self.ops = {op.id: op for op in walk(transaction.block.ops)}
        self.event = event
        self.loop = loop
        self.field = ""

    def text(self, value: int) -> str:
        op = self.ops.get(value)
        if op is None:
            return ""
        if op.code == "field":
            return f"e{self.event}_{op.name}[j]"
        if op.code == "const" and op.type is not None and op.type.kind not in ("str", "float"):
            return f"np.int64({constant(op.const, op.type)})"
        if op.code == "item" and self.loop is not None and self.loop.code == "each" and op in self.loop.body:
            if op.const < 0:
                return ""
            name = f"{self.event}_{self._whole(self.ops[self.loop.args[op.const]]).name}"
            self.field = self.field or name
            return f"e{name}[at{name}[j] + q]"
        return ""

    def _whole(self, given: Op) -> Op:
        """The list that a slice is of: asking for too much does no harm."""
        return self._whole(self.ops[given.args[0]]) if given.code == "slice" else given


def emit(out: Source, wanted: list[Prefetch], cutter: Cutter) -> None:
    if not wanted:
        out.line("pass")
    cutter.run(out, wanted, _several)


def _several(out: Source, wanted: Sequence[Prefetch]) -> None:
    for one in wanted:
        if one.loop:
            # Lists of unequal length end at the shortest, but asking too far does no harm: offsets stay inside.
            out.line(f"for q in range(at{one.loop}[j + ONE] - at{one.loop}[j]):")
            with out.indented():
                _one(out, one)
        else:
            _one(out, one)


def _one(out: Source, one: Prefetch) -> None:
    t = f"t{one.table}"
    if len(one.keys) == 1:
        out.line(f"tag = np.int64({one.keys[0]})")
    else:
        out.line("tag = np.int64(0)")
        for key in one.keys:
            out.line(f"tag = combine(tag, {key})")
    out.line(f"prefetch({t}_slots, first(tag, {t}_slots))")
