"""The source of keys that the event alone gives: its fields, constants, items of its lists and of ranges, and what is
computed of these.

A key is made before the event runs, whatever guards it there and whatever would have aborted the event on the way. So
nothing here aborts: what cannot be computed is zero, and the record that this leads to is one that the event does not
reach. The event itself computes its keys again, as the serial kernel does, and aborts where that does.
"""

from __future__ import annotations

from penstock.execute.codegen.emitter import Emitter
from penstock.execute.codegen.source import Source, zero
from penstock.plan.foresee import AccessSet, Site
from penstock.plan.ir import Block, Op
from penstock.schedule.codegen.entries import parted


class KeyEmitter(Emitter):
    """Operations of which none aborts: each that could is in a one-turn loop of its own, and leaves that with a zero.

    What lies under a null may be no value of its type, on which arithmetic relies: it is zero as well.
    """

    def total(self, out: Source, op: Op) -> None:
        if op.code == "field":
            self.given(out, op, op.name, f"e{self.event}_{op.name}[j]")
        elif op.code == "list" or not op.may_abort:
            self.op(out, op)
        else:
            self.failing = op
            self.zeros(out, op)
            out.line("while True:")
            with out.indented():
                self.op(out, op)
                out.line("break")

    def given(self, out: Source, op: Op, field: str, value: str) -> None:
        """A value of a field, or zero where that is null."""
        assert op.type is not None
        ok = f"ok{self.event}_{field}"
        out.line(f"{self.val(op.id)} = {value} if {ok}.size == 0 or {ok}[j] else {zero(op.type)}")

    def null(self, op: Op) -> str:
        name = f"ok{self.event}_{op.name}"
        return f"{name}.size > 0 and not {name}[j]"

    def listed(self, op: Op, place: str) -> str:
        assert op.type is not None
        ok = f"ok{self.lists[op.args[0]].removeprefix('e')}"
        return f"{super().listed(op, place)} if {ok}.size == 0 or {ok}[j] else {zero(op.type)}"

    def end(self, out: Source, code: int, why: str) -> None:
        self.zeros(out, self.failing)
        out.line("break")

    def null_test(self, out: Source, op: Op) -> None:
        """Of a list that is null, the length is what it seems to be, and items are zero."""


class Keys:
    """The keys of one transaction's sites."""

    def __init__(self, emitter: KeyEmitter, block: Block, event: int, foresight: AccessSet) -> None:
        self.emitter, self.event, self.foresight = emitter, event, foresight
        self.ops = {op.id: op for op in block.walk()}
        self.place = {id_: place for place, id_ in enumerate(self.ops)}
        self.owner = block.loops_of_items()
        emitter.event = event
        emitter.begin(block)

    def write(self, out: Source, site: Site, name: str) -> list[str]:
        """Write what makes a site's key in turn q of its loops; the key's parts."""
        turns = parted(self.foresight, site.loop, "q") if site.loop else {}
        em = self.emitter
        em.prefix = f"{name}_"
        plain = {key: text for key in site.keys if (text := self._plain(key, turns))}
        for op in self._made_of([key for key in site.keys if key not in plain]):
            if op.code == "item":
                self._item(out, op, self._plain(op.id, turns))
            elif not op.traits.stands:
                em.total(out, op)
        return [plain.get(key) or em.val(key) for key in site.keys]

    def _item(self, out: Source, op: Op, value: str) -> None:
        loop = self.owner[op.id]
        if loop.code == "range" or op.const < 0:
            out.line(f"{self.emitter.val(op.id)} = {value}")
        else:
            self.emitter.given(out, op, self.ops[loop.args[op.const]].name, value)

    def _made_of(self, values: list[int]) -> list[Op]:
        """The operations that make these values, in program order."""
        found: set[int] = set()
        while values:
            value = values.pop()
            if value not in found:
                found.add(value)
                values += self.ops[value].args
        return [self.ops[value] for value in sorted(found, key=self.place.__getitem__)]

    def _plain(self, value: int, turns: dict[int, str]) -> str:
        """A value that the event has as it is."""
        op = self.ops[value]
        if op.code == "field":
            return f"e{self.event}_{op.name}[j]"
        if op.code == "const":
            assert op.type is not None
            return self.emitter.constant(op.const, op.type)
        if op.code != "item":
            return ""
        loop = self.owner[value]
        turn = turns[loop.id]
        if loop.code == "range":
            # Unsigned, since the way from one end of int64 to the other is longer than int64: LLVM takes for granted
            # that a signed product does not wrap.
            start, step = (f"np.uint64(np.int64({n}))" for n in (self.ops[loop.args[0]].const, loop.const))
            return f"np.int64({start} + np.uint64({turn}) * {step})"
        if op.const < 0:
            return f"np.int64({turn})"
        name = f"{self.event}_{self.ops[loop.args[op.const]].name}"
        return f"e{name}[at{name}[j] + {turn}]"
