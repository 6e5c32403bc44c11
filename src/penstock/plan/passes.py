"""Passes over a plan, in order: each takes a plan and gives a plan that means the same.

convert_returns   convert returned values to the type that their field has in the whole app
share    look a record or a field up once, where nothing in between can have changed it
loosen   drop guards from cheap operations that can neither abort nor be seen
prune    drop values that nobody uses
undo     mark the writes that nothing later can abort: they need no undo; in a round, what follows may be anything
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from penstock.declare.types import Type
from penstock.plan.ir import Block, Op, Plan, TransactionPlan, walk


def _each_block(plan: Plan, rewrite: Callable[[Block], Block]) -> Plan:
    return replace(
        plan,
        transactions=tuple(replace(t, block=rewrite(t.block)) for t in plan.transactions),
        checks=tuple(replace(c, block=rewrite(c.block)) for c in plan.checks),
    )


# -- convert_returns ----------------------------------------------------------------------------


def convert_returns(plan: Plan) -> Plan:
    fields = dict(plan.program.lanes)
    return replace(
        plan, transactions=tuple(replace(t, block=_convert_returns(t.block, fields)) for t in plan.transactions)
    )


def _convert_returns(block: Block, fields: dict[str, Type]) -> Block:
    types = {op.id: op.type for op in block.walk()}
    types |= {c.id: c.type for op in block.walk() for c in op.carries}
    numbers = iter(range(max(types, default=0) + 1, 10**9))

    def convert(ops: tuple[Op, ...]) -> tuple[Op, ...]:
        out: list[Op] = []
        for op in ops:
            lanes = {"return": (op.name,), "tell": op.const}.get(op.code, ())
            for place, (lane, value) in enumerate(zip(lanes, op.args, strict=False)):
                wanted = fields.get(lane)
                if wanted is not None and types[value] != wanted:
                    made = Op(next(numbers), "convert", (value,), wanted, op.guard, op.line)
                    out.append(made)
                    op = replace(op, args=(*op.args[:place], made.id, *op.args[place + 1 :]))
            out.append(replace(op, body=convert(op.body)) if op.body else op)
        return tuple(out)

    return replace(block, ops=convert(block.ops))


# -- share --------------------------------------------------------------------------------------


def share(plan: Plan) -> Plan:
    return _each_block(plan, lambda block: replace(block, ops=_Sharing(block).run(block.ops)))


class _Sharing:
    """What is known at each place: an equal operation done before, under a guard that this one implies.

    A row that is there (locate, ensure, insert) stays known until a delete on its table; one that
    may not be there (find) until anything is inserted or deleted.
    """

    def __init__(self, block: Block) -> None:
        self.parents = {op.id: op.args for op in block.walk() if op.code == "and"}
        self.renamed: dict[int, int] = {}
        self.known: dict[tuple[object, ...], tuple[int, int | None]] = {}

    def run(self, ops: Iterable[Op]) -> tuple[Op, ...]:
        out = []
        for op in ops:
            op = self.rename(op)
            if op.is_loop:
                out.append(self.loop(op))
                continue
            fact = self.fact(op)
            found = self.look(fact, op) if fact else None
            if found is not None:
                self.renamed[op.id] = found
                continue
            out.append(op)
            self.learn(op, fact)
        return tuple(out)

    def rename(self, op: Op) -> Op:
        new = self.renamed
        guard = new.get(op.guard, op.guard) if op.guard is not None else None
        return replace(op, args=tuple(new.get(a, a) for a in op.args), guard=guard)

    def fact(self, op: Op) -> tuple[object, ...] | None:
        if not op.traits.shared:
            return None
        there = op.traits.takes == "key" and op.may_abort
        return ("there" if there else op.code, op.table, op.name, op.args, op.type, repr(op.const))

    def look(self, fact: tuple[object, ...], op: Op) -> int | None:
        for one in (fact, ("there", *fact[1:])) if op.code == "find" else (fact,):
            if one in self.known:
                found, guard = self.known[one]
                if self.implies(op.guard, guard):
                    return found
        return None

    def implies(self, guard: int | None, needed: int | None) -> bool:
        if needed is None or guard == needed:
            return True
        # What a guard is the `and` of, near or far; each once, for there are many ways to the same.
        todo, seen = [guard], {guard}
        while todo:
            above = todo.pop()
            for parent in () if above is None else self.parents.get(above, ()):
                parent = self.renamed.get(parent, parent)
                if parent == needed:
                    return True
                if parent not in seen:
                    seen.add(parent)
                    todo.append(parent)
        return False

    def learn(self, op: Op, fact: tuple[object, ...] | None) -> None:
        self.forget(op)
        if fact is not None:
            self.known[fact] = (op.id, op.guard)

    def forget(self, op: Op) -> None:
        """What an operation may have changed is not known any more."""
        if "rows" in op.traits.writes:
            self.known = {f: v for f, v in self.known.items() if f[:2] != ("seen", op.table)}
        if "presence" not in op.traits.writes:
            return
        stale = {"find", "there"} if op.code == "delete" else {"find"}
        self.known = {f: v for f, v in self.known.items() if not (f[0] in stale and f[1] == op.table)}

    def loop(self, op: Op) -> Op:
        for inner in walk(op.body):
            self.forget(inner)
        outside = dict(self.known)
        carries = [replace(c, init=self.renamed.get(c.init, c.init)) for c in op.carries]
        # Inside the body guards start afresh, so only what holds for the loop itself carries in.
        self.known = {f: (v, None) for f, (v, g) in outside.items() if self.implies(op.guard, g)}
        body = self.run(op.body)
        self.known = outside
        new = self.renamed
        return replace(
            op,
            body=body,
            carries=tuple(replace(c, next=new.get(c.next, c.next)) for c in carries),
            until=new.get(op.until, op.until) if op.until is not None else None,
        )


# -- loosen -------------------------------------------------------------------------------------


def loosen(plan: Plan) -> Plan:
    def rewrite(ops: tuple[Op, ...], types: dict[int, Type | None]) -> tuple[Op, ...]:
        out = []
        for op in ops:
            types[op.id] = op.type
            cheap = op.traits.cheap and not op.may_abort
            # Comparing strings walks their bytes by number; a number that was never made is no string.
            if cheap and op.traits.compares and any((t := types.get(a)) and t.kind == "str" for a in op.args):
                cheap = False
            if cheap:
                op = replace(op, guard=None)
            out.append(replace(op, body=rewrite(op.body, types)) if op.body else op)
        return tuple(out)

    return _each_block(plan, lambda block: replace(block, ops=rewrite(block.ops, {})))


# -- prune --------------------------------------------------------------------------------------


def prune(plan: Plan) -> Plan:
    return _each_block(plan, lambda block: replace(block, ops=_keep(block.ops, set())))


def _keep(ops: tuple[Op, ...], used: set[int]) -> tuple[Op, ...]:
    """What is kept of these, if what follows uses those. From the last: who uses a value comes behind it."""
    out = []
    for op in reversed(ops):
        if op.traits.pure and not op.may_abort and op.id not in used:
            continue
        used.update(op.uses)
        out.append(replace(op, body=_keep(op.body, used)) if op.body else op)
    return tuple(reversed(out))


# -- undo ---------------------------------------------------------------------------------------


def undo(plan: Plan) -> Plan:
    checked = {c.table for c in plan.checks}

    def rewrite(ops: tuple[Op, ...], later: bool) -> tuple[Op, ...]:
        """Mark writes; `later`: something behind these operations may abort."""
        out = []
        for op in reversed(ops):
            if op.is_loop:
                # A turn may be followed by another, so anything in the body comes after all of it.
                op = replace(op, body=rewrite(op.body, later or op.may_abort))
            elif op.traits.writes:
                # What finds a record behind its time deletes it, and then may abort for want of it.
                dies = op.may_abort and op.traits.takes == "key" and plan.table(op.table).ttl is not None
                op = replace(op, undo=later or dies)
            later = later or op.may_abort
            out.append(op)
        return tuple(reversed(out))

    flow = plan.program.flow
    caused = set(flow.emitted) if flow is not None else set()

    def one(transaction: TransactionPlan) -> TransactionPlan:
        block = transaction.block
        written = {op.table for op in block.walk() if "column" in op.traits.writes}
        causes = any(op.code == "emit" and op.name in flow.ranked for op in block.walk()) if flow is not None else False
        later = bool(written & checked) or causes or transaction.event in caused
        return replace(transaction, block=replace(block, ops=rewrite(block.ops, later)))

    return replace(plan, transactions=tuple(one(t) for t in plan.transactions))


PASSES = (convert_returns, share, loosen, prune, undo)
