"""Loops: a body lowered once, with the names that change from turn to turn as its carries.

    total = 0                          %5 = const 0.00
    for x in e.amounts:                each(%3)
        if x > 9: break                  %7 = %5, then %16        the carry: total at the start of a turn
        total += x                       …
    use(total)                           until %11                the break
                                       %7                         total after the loop

A turn may end in several ways (its end, continue, break, return). A carry's next value is a select
over all of them; break and return end the loop; what returned is a carry too, since nothing behind the
loop may then run.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.declare.types import BOOL, INT, Type
from penstock.plan import calls, functions, nullable, windows
from penstock.plan.ir import MEMBER, Carry, Op
from penstock.plan.values import NONE, Binding, Exit, Found, Iterated, MemberRef, RecordRef, Unassigned, Val

if TYPE_CHECKING:
    from penstock.plan.lower import Lowering

# What is assumed of a carry while its loop's body is lowered: type, literal, loose, and whether it may be None.
Shape = tuple[Type, Any, bool, bool]
Shapes = dict[str, list[Shape]]
# Python nests 20 blocks, and generated source has some around a body.
MAX_DEPTH = 15


def lower(lo: Lowering, node: ast.For) -> None:
    if node.orelse:
        lo.body.refuse(node.orelse[0], "'else' on a loop cannot be compiled; set a name before 'break'")
    _refuse_depth(lo, node)
    over = calls.iterable(lo, node.iter)
    changed = sorted(n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    run(lo, node, over, tuple(changed))


def run(
    lo: Lowering, node: ast.For, over: Iterated, changed: tuple[str, ...], turn: Callable[[], None] | None = None
) -> None:
    """Lower a loop; changed: the names that are others behind it; turn: what lowers a turn, if not its statements."""
    _refuse_depth(lo, node)
    once(lo, node, over, changed + functions.carry(lo, node, over, changed, turn), turn)


def once(
    lo: Lowering, node: ast.For, over: Iterated, changed: tuple[str, ...], turn: Callable[[], None] | None
) -> None:
    """The same, whatever a function returns from it."""
    args = tuple(a.id for a in over.args)
    head = Op(0, over.code, args, None, lo.path, lo.line or node.lineno, over.of, over.name, over.const)
    carried = {n: lo.env[n] for n in changed if isinstance(lo.env.get(n), Val | RecordRef)}
    loop = _Loop(lo, node, head, over, changed, carried, turn or (lambda: lo.block(node.body)))
    # A carry's type is known only once the body is: a literal bends to what the body adds to it. So lower the
    # body until the assumed types hold; each round can only widen a literal, so this ends.
    assumed = {n: [_shape(v) for v in _flat(b)] for n, b in carried.items()}
    lo.depth += 1
    while True:
        before, count, mark = (lo.env, lo.path, lo.left, lo.exits), lo.count, (len(lo.ops), len(lo.triggers))
        returns = {k: list(v) for k, v in lo.returns.items()}
        found = loop.turn(assumed)
        lo.env, lo.path, lo.left, lo.exits = before
        lo.dead = False
        if found.shapes == assumed:
            break
        lo.count, lo.returns = count, returns
        del lo.ops[mark[0] :], lo.triggers[mark[1] :]
        assumed = found.shapes
    lo.depth -= 1
    if over.window is not None:
        windows.refuse_adds(lo, over.window, found.op.body, node)
    loop.finish(found)


def _refuse_depth(lo: Lowering, node: ast.For) -> None:
    if lo.depth == MAX_DEPTH:
        lo.body.refuse(node, f"loops nest {MAX_DEPTH} deep at most; send one list of what these go through")


@dataclass(frozen=True, slots=True)
class _Turn:
    """The body, lowered under some assumption, and what the assumption should have been."""

    op: Op
    after: dict[str, Binding]  # the carried names, behind the loop
    returned: int | None  # a bool, behind the loop: some turn returned
    shapes: Shapes


@dataclass(frozen=True, slots=True)
class _Loop:
    lo: Lowering
    node: ast.For
    head: Op
    over: Iterated
    changed: tuple[str, ...]
    carried: dict[str, Binding]
    body: Callable[[], None]

    def turn(self, assumed: Shapes) -> _Turn:
        """Lower the body once under the assumed types of its carries."""
        lo, outer = self.lo, self.lo.ops
        inits = {n: [lo.bend(v, s[0]) for v, s in zip(self.flat(n), assumed[n], strict=True)] for n in assumed}
        phis = {n: [self.phi(*shape) for shape in assumed[n]] for n in assumed}
        whys = {
            n: [nullable.why(lo, v) if s[3] else 0 for v, s in zip(self.flat(n), assumed[n], strict=True)]
            for n in assumed
        }
        after = {n: _like(self.carried[n], phis[n]) for n in assumed}
        lo.ops, lo.path, lo.left, lo.exits, lo.dead = [], None, False, [], False
        lo.env = {**lo.env, **self.unassigned(), **after}
        self.bind_items()
        self.body()
        nexts, until, returned = self.end_of_turn()
        shapes = {
            n: [self.carry_shape(n, *three) for three in zip(self.flat(n), phis[n], nexts[n], strict=True)]
            for n in assumed
        }
        carries = []
        if shapes == assumed:
            for n in assumed:
                for phi, init, last, why in zip(phis[n], inits[n], nexts[n], whys[n], strict=True):
                    carries.append(Carry(phi.id, phi.type, init.id, lo.bend(last, phi.type).id))
                    if phi.why is not None:
                        carries.append(Carry(phi.why, INT, why, nullable.why(lo, last)))
        body, lo.ops = tuple(lo.ops), outer
        flag = None
        if returned is not None:
            flag = lo.fresh(BOOL)
            carries.append(Carry(flag, BOOL, lo.const(False, BOOL).id, returned))
        op = replace(self.head, id=lo.fresh(BOOL), body=body, carries=tuple(carries), until=until)
        return _Turn(op, after, flag, shapes)

    def phi(self, type_: Type, literal: Any, loose: bool, may_be_none: bool) -> Val:
        """A carry, as a turn sees it."""
        return Val(self.lo.fresh(type_), type_, literal, loose, self.lo.fresh(INT) if may_be_none else None)

    def flat(self, name: str) -> list[Val]:
        return _flat(self.carried[name])

    def unassigned(self) -> dict[str, Binding]:
        """Names that only the body assigns: a turn, or what is behind the loop, may find them unassigned."""
        return {n: Unassigned(self.node.lineno, in_loop=True) for n in self.changed if n not in self.carried}

    def bind_items(self) -> None:
        target, over = self.node.target, self.over
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        record = over.table is not None or over.window is not None
        count = 1 if record else len(over.items)
        if len(names) != count or not all(isinstance(n, ast.Name) for n in names):
            what = f"{count} value(s)" if not record else "one record" if over.window is None else "one row"
            self.lo.body.refuse(target, f"this loop gives {what} a turn; name as many")
        for name, one in zip(names, self.given(), strict=True):
            self.lo.store(name, one)

    def given(self) -> tuple[Found, ...]:
        """What a turn gets."""
        over, lo = self.over, self.lo
        if over.window is not None:
            return (windows.row(lo, over.window, self.node),)
        items = tuple(
            lo.value("item", t, node=self.node, const=k - over.numbered, guard=None) for k, t in enumerate(over.items)
        )
        if over.table is not None:
            return (RecordRef(over.table, items, optional=False),)
        return tuple(MemberRef(one) if one.type == MEMBER else one for one in items)

    def carry_shape(self, name: str, first: Val, phi: Val, last: Val) -> Shape:
        """What a carry must be, given how it starts and how a turn leaves it."""
        if (last.id, last.why) == (phi.id, phi.why):
            return _shape(phi)
        type_, loose = self.lo.meeting(self.node, self.called(name), first, last)
        return type_, None, loose, any(one.why is not None for one in (first, phi, last))

    def called(self, name: str) -> str:
        return f"'{name}' in this loop"

    def end_of_turn(self) -> tuple[dict[str, list[Val]], int | None, int | None]:
        """The carries' next values over every way a turn can end; what ends the loop; what returned."""
        lo = self.lo
        assert lo.exits is not None
        ends = list(lo.exits)
        if not lo.dead:
            ends.insert(0, Exit("end", lo.path, lo.env))
        lo.path = None
        for name, first in self.carried.items():
            if any(not _alike(first, end.env[name]) for end in ends):
                if isinstance(first, Val) and first.type == NONE:
                    lo.body.refuse(
                        self.node,
                        f"'{name}' is None before this loop and a record in it; keep its key in a name, and whether "
                        "there is one in another",
                    )
                several = "a value, a record and an event" if lo.members is not None else "a value and a record"
                lo.body.refuse(self.node, f"'{name}' changes between {several} in this loop; use two names")
        # Every path may abort: then the turn has no end at all, and nothing carries on.
        nexts = {n: _flat(ends[0].env[n] if ends else lo.env[n]) for n in self.carried}
        for end in ends[1:]:
            nexts = {n: self.choose(n, end, nexts[n]) for n in self.carried}
        until = self.any_of([e.guard for e in ends if e.kind in ("break", "return")])
        returned = self.any_of([e.guard for e in ends if e.kind == "return"])
        return nexts, until, returned

    def choose(self, name: str, end: Exit, others: list[Val]) -> list[Val]:
        """A carry's next value: this end's where the turn ended here."""
        mine = _flat(end.env[name])
        if end.guard is None:
            return mine
        test = Val(end.guard, BOOL)
        return [self.lo.select(self.node, self.called(name), test, a, b) for a, b in zip(mine, others, strict=True)]

    def any_of(self, guards: list[int | None]) -> int | None:
        if not guards:
            return None
        known = [g for g in guards if g is not None]
        if len(known) < len(guards):
            return self.lo.const(True, BOOL).id
        total = known[0]
        for guard in known[1:]:
            total = self.lo.emit("or", (total, guard), BOOL, guard=None)
        return total

    def finish(self, found: _Turn) -> None:
        """Back outside: the loop becomes one operation, its carries the names' values."""
        lo = self.lo
        lo.ops.append(found.op)
        lo.env = {**lo.env, **self.unassigned(), **found.after}
        if found.returned is not None:
            if lo.exits is not None:
                lo.exits.append(Exit("return", lo.both(lo.path, found.returned), dict(lo.env)))
            elif lo.frame is not None:
                functions.ended(lo, lo.both(lo.path, found.returned))
            lo.path = lo.both(lo.path, lo.negated(found.returned))
            lo.left = True


def _shape(value: Val) -> Shape:
    return value.type, value.literal, value.loose, value.why is not None


def _alike(a: Binding, b: Binding) -> bool:
    if isinstance(a, RecordRef) and isinstance(b, RecordRef):
        return (a.table, a.optional) == (b.table, b.optional)
    return isinstance(a, Val) and isinstance(b, Val)


def _flat(binding: Any) -> list[Val]:
    if isinstance(binding, RecordRef):
        return list(binding.keys)
    assert isinstance(binding, Val)
    return [binding]


def _like(binding: Binding, vals: list[Val]) -> Binding:
    if isinstance(binding, RecordRef):
        return RecordRef(binding.table, tuple(vals), binding.optional)
    return vals[0]
