"""What must hold of a plan after every pass. A broken invariant is our bug, so it asserts."""

from __future__ import annotations

from penstock.declare.types import BOOL, Type
from penstock.plan.ir import OPERATIONS, ROW, Block, Op, Plan


def verify(plan: Plan, after: str) -> None:
    for block in [t.block for t in plan.transactions] + [c.block for c in plan.checks]:
        _block(plan, block, after)


def _block(plan: Plan, block: Block, after: str) -> None:
    _ops(plan, block.ops, {}, f"after {after}, in '{block.name}'")


def _ops(plan: Plan, ops: tuple[Op, ...], scope: dict[int, Type], where: str) -> None:
    for op in ops:
        at = f"{where}: %{op.id} {op.code} (line {op.line})"
        assert op.code in OPERATIONS, f"{at}: no such operation"
        assert op.id not in scope, f"{at}: defined twice"
        for arg in op.args:
            assert arg in scope, f"{at}: uses %{arg}, which is not defined here"
        assert op.guard is None or scope.get(op.guard) == BOOL, f"{at}: its guard %{op.guard} is not a bool in scope"
        if op.traits.takes == "window" or op.code == "item":
            assert not op.table or plan.window(op.table) is not None, f"{at}: no such window"
        elif op.table:
            _record_op(plan, op, scope, at)
        if op.is_loop:
            _loop(plan, op, scope, where, at)
        if op.type is not None:
            scope[op.id] = op.type


def _record_op(plan: Plan, op: Op, scope: dict[int, Type], at: str) -> None:
    table = plan.table(op.table)
    if op.traits.of_column:
        assert scope[op.args[0]] == ROW, f"{at}: its first argument is not a row"
        lanes = (*table.keys, *table.lanes)
        assert any(c.name == op.name for c in lanes), f"{at}: no column '{op.name}'"
    elif op.code == "insert":
        assert len(op.args) == len(table.keys) + len(table.lanes), f"{at}: takes every column"
    elif op.code == "scan":
        assert not op.name or table.column(op.name) is not None, f"{at}: no column '{op.name}'"
    elif op.code == "timer":
        event = plan.program.event(op.name)
        assert event is not None and len(op.args) == len(event.lanes) + 1, f"{at}: takes every field, and when"
    elif op.code != "self":
        assert len(op.args) == len(table.keys), f"{at}: takes the key"


def _loop(plan: Plan, op: Op, scope: dict[int, Type], where: str, at: str) -> None:
    inner = dict(scope)
    for carry in op.carries:
        assert scope.get(carry.init) == carry.type, f"{at}: carry %{carry.id} starts with another type"
        inner[carry.id] = carry.type
    _ops(plan, op.body, inner, where)
    for carry in op.carries:
        assert inner.get(carry.next) == carry.type, f"{at}: carry %{carry.id} goes on with another type"
        scope[carry.id] = carry.type
    assert op.until is None or inner.get(op.until) == BOOL, f"{at}: ends by something that is not a bool"
