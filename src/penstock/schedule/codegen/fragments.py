"""The source of one fragment of a transaction (plan/split.py).

Fragments run in any order that their exports allow, yet the transaction must abort where the program as a whole would:
at the first place that aborts it. So a fragment says where it stops, the least of all these places stands, and what
needs an import is not run if the program would have stopped before it.
"""

from __future__ import annotations

from itertools import groupby

from penstock.declare.kinds import BIT, REAL, WORD
from penstock.execute.codegen import checks
from penstock.execute.codegen.emitter import Emitter
from penstock.execute.codegen.source import Source
from penstock.plan.ir import Block, Op, Plan
from penstock.plan.split import Split, split

# A verdict is the place in the program, and in its low bits the reason's number.
VERDICT_BITS = 16
# Where values of each lane are handed over: [value, event].
LANES = {WORD.name: "hand_i", REAL.name: "hand_f", BIT.name: "hand_b"}


def splits(plan: Plan) -> dict[str, Split]:
    """Transaction -> how it is split, for those that can be."""
    return {t.name: found for t in plan.transactions if (found := split(plan, t)) is not None}


def handed(plan: Plan) -> dict[str, int]:
    """How many values of each kind the fragments of one event hand over, at most."""
    most = dict.fromkeys(LANES.values(), 0)
    for transaction in plan.transactions:
        found = split(plan, transaction)
        if found is not None:
            for lane, k in _places(transaction.block, found).values():
                most[lane] = max(most[lane], k + 1)
    return most


def _places(block: Block, found: Split) -> dict[int, tuple[str, int]]:
    """Exported value -> the lane that it is handed over in, and which of that lane's values it is."""
    out: dict[int, tuple[str, int]] = {}
    types = {op.id: op.type for op in block.ops}
    for value in found.exports:
        type_ = types[value]
        assert type_ is not None
        lane = LANES[type_.lane.name]
        out[value] = (lane, sum(1 for other, _ in out.values() if other == lane))
    return out


class FragmentEmitter(Emitter):
    def fragment(
        self, out: Source, block: Block, found: Split, number: int, event: int, fields: list[tuple[str, int]]
    ) -> None:
        fragment = found.fragments[number]
        self.prefix, self.event, self.fields = f"p{event}_{number}_", event, dict(fields)
        self.logs_touched = False
        self.begin(block)
        self.positions = found.positions
        self.places = _places(block, found)
        self.imports = fragment.imports
        self.exports = set(found.exports) - fragment.imports
        self.ops(out, fragment.ops)
        self.positions = {}  # what the checks hold has no place of its own
        own = {row for n in fragment.sites for row in self.foresight.sites[n].rows}
        for k, op in enumerate(checks.written(self, block)):
            if checks.row_of(op) in own:
                out.line(f"stop = {len(block.ops) + k}")
                checks.check_one(self, out, op, block)

    def ops(self, out: Source, ops: tuple[Op, ...]) -> None:
        if not self.positions:
            super().ops(out, ops)
            return
        known: set[int] = set()
        section = 0
        sections: dict[int, int] = {}
        fetched: dict[int, list[int]] = {}
        for op in ops:
            used = [*op.args, *([op.guard] if op.guard is not None else [])]
            new = [a for a in dict.fromkeys(used) if a in self.imports and a not in known]
            if new:
                section += 1
                fetched[section] = new
                known |= set(new)
            sections[op.id] = section
        for section, group in groupby(ops, key=lambda op: sections[op.id]):
            several = tuple(group)
            if section in fetched:
                out.line(f"if g.verdict[i] < {self.positions[several[0].id]} << {VERDICT_BITS}:")
                with out.indented():
                    out.line("break")
                for value in fetched[section]:
                    lane, k = self.places[value]
                    out.line(f"{self.val(value)} = {lane}[{k}, i]")
            super().ops(out, several)

    def zeros(self, out: Source, op: Op) -> None:
        super().zeros(out, op)
        self.export(out, op)

    def op(self, out: Source, op: Op) -> None:
        if op.may_abort and op.id in self.positions:
            out.line(f"stop = {self.positions[op.id]}")
        super().op(out, op)
        self.export(out, op)

    def export(self, out: Source, op: Op) -> None:
        if op.id in self.exports and op.id in self.positions:
            lane, k = self.places[op.id]
            out.line(f"{lane}[{k}, i] = {self.val(op.id)}")
