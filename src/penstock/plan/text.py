"""Values of a plan as a person would write them: e.src, e.items[*], 99.50, (e.a + 1); of several events e[*].src."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from penstock.plan.ir import Block, Op


class Texts:
    def __init__(self, block: Block) -> None:
        self.ops = {op.id: op for op in block.walk()}
        self.items = block.loops_of_items()

    def join(self, values: Iterable[int]) -> str:
        return ", ".join(self.of(v) for v in values)

    def of(self, value: int) -> str:
        op = self.ops.get(value)
        if op is None:  # a carry
            return f"%{value}"
        match op.code:
            case "field":
                return f"{self.event_of(op)}.{op.name}"
            case "const":
                return constant(op)
            case "convert":
                return self.of(op.args[0])
            case "item":
                loop = self.items[value]
                if loop.code == "scan":
                    return "*"
                if loop.code == "rows":
                    return f"{op.table[1:]}[*].{op.name}"
                if loop.code != "each" or op.const < 0:
                    return "range[*]"
                return f"{self.list_of(self.ops[loop.args[op.const]])}[*]"
            case _ if "column" in op.traits.reads:
                row = self.ops[op.args[0]]
                return f"{op.table}[{self.join(row.args)}].{op.name}" if row.code != "self" else f"self.{op.name}"
            case "index":
                return f"{self.list_of(self.ops[op.args[0]])}[{self.of(op.args[1])}]"
            case "call" | "look" | "make":
                return f"{op.name}({self.join(op.args)})"
            case "len":
                return f"len({self.list_of(self.ops[op.args[0]])})"
            case "neg" | "abs":
                return f"{'-' if op.code == 'neg' else 'abs'}({self.of(op.args[0])})"
            case _ if op.traits.sign and not op.traits.compares:
                return f"({self.of(op.args[0])} {op.traits.sign} {self.of(op.args[1])})"
        return f"%{value}"

    def list_of(self, op: Op) -> str:
        if op.code == "slice":
            return f"{self.list_of(self.ops[op.args[0]])}[{self.of(op.args[1])}:{self.of(op.args[2])}]"
        return "e" if op.code == "members" else f"{self.event_of(op)}.{op.name}"

    def event_of(self, op: Op) -> str:
        """Which event a field is of: the one that there is, or one of several."""
        return self.of(op.args[0]) if op.args else "e"


def constant(op: Op) -> str:
    """A constant as it is written in Python; a decimal with its point."""
    if op.type is not None and op.type.kind == "decimal":
        return str(Decimal(f"{op.const}E-{op.type.scale}"))  # from text, so that no decimal context can round it
    return repr(op.const)
