"""Groups as one transaction each: an app whose rounds are all one group is planned without emits.

    place(Order)                             place(Order), the group
      each items: emit Reserve                 each items: emitted
      emit Charge                              emitted
                                               checks of what place wrote
    reserve(Reserve), nested           ->      each items: member; reserve's operations; its checks
    charge(Charge), nested                     member; charge's operations; its checks

Members run by rank, so all of one type follow one another: what a loop emits becomes a loop of its own for each type,
which computes once more what it emits. So that must come from the event alone, and not from records. What the members
return, what goes out and how often each member ran is told in lanes, which are returned fields of the new plan;
execute/members.py makes rows of outcomes of them.

An event that is caused may be called as well: each transaction is the first of a group of its own, too.

An app of which some round may be more than one group keeps its rounds, and they run one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import count

from penstock.declare.model import is_none
from penstock.declare.types import BOOL, INT, Type
from penstock.plan.ir import Op, Plan, TransactionPlan, walk
from penstock.plan.loops import MAX_DEPTH
from penstock.plan.passes import loosen, prune, share, undo
from penstock.plan.verify import verify

# Operations of all groups together. A transaction that is emitted in several places is compiled for each of them.
MOST_OPERATIONS = 1_000


@dataclass(frozen=True, slots=True)
class Sent:
    """A place that emits an output."""

    event: str
    times: int  # the lane that says whether it has
    fields: tuple[int, ...]  # their lanes


@dataclass(frozen=True, slots=True)
class Member:
    """A transaction where it stands in its group."""

    event: str
    times: int | None  # the lane that says how often it ran; None: once
    in_loop: bool = False
    fields: tuple[tuple[str, int], ...] = ()  # what it returns -> the lane
    sent: tuple[Sent, ...] = ()


@dataclass(frozen=True, slots=True)
class Inlined:
    plan: Plan  # nothing is emitted in it; what it returns are lanes
    groups: tuple[tuple[str, tuple[Member, ...]], ...]  # event -> its group, in the order run


class Unfit(Exception):
    """Why rounds have to stay rounds."""


def inline(plan: Plan) -> Inlined | str:
    """The plan whose transactions are groups, or why there is none; '' where nothing is emitted."""
    if plan.program.flow is None:
        return ""
    lanes = _Lanes()
    if plan.program.timers:
        return "its transactions set timers"
    if any(t.several for t in plan.program.transactions):
        return "one of its transactions takes several events"
    if plan.windows:
        return "its transactions use windows"
    try:
        groups = [_Group(plan, root, lanes) for root in plan.transactions]
        if sum(1 for group in groups for _ in walk(group.plan.block.ops)) > MOST_OPERATIONS:
            raise Unfit("its groups are very long together")
    except Unfit as why:
        return str(why)
    inlined = replace(
        plan,
        program=replace(plan.program, returns=tuple(lanes.types.items()), abort_fields=(), flow=None),
        transactions=tuple(group.plan for group in groups),
    )
    verify(inlined, "inline")
    for one_pass in (share, loosen, prune, undo):
        inlined = one_pass(inlined)
        verify(inlined, one_pass.__name__)
    return Inlined(inlined, tuple((group.plan.event, tuple(group.members)) for group in groups))


class _Lanes:
    """Lanes by type: groups share them, since an event has only one group."""

    def __init__(self) -> None:
        self.types: dict[str, Type] = {}

    def name(self, type_: Type, number: int) -> str:
        name = f"{type_} {number}"
        self.types.setdefault(name, type_)
        return name

    def place(self, name: str) -> int:
        return list(self.types).index(name)


class _Group:
    """A transaction, and behind it all that it causes."""

    def __init__(self, plan: Plan, root: TransactionPlan, lanes: _Lanes) -> None:
        assert plan.program.flow is not None
        self.program, self.lanes = plan.program, lanes
        self.checked = {check.table for check in plan.checks}
        self.by_event = {t.event: t for t in plan.transactions}
        self.ids = count(1 + max((made for t in plan.transactions for made in _made(t.block.ops)), default=0))
        self.taken: dict[str, int] = {}  # lanes of this group, by type
        self.members: list[Member] = []
        self.bodies = [root]
        self.ops = self._root(root)
        for event in plan.program.flow.ranked:
            if event in plan.program.flow.emitted:
                self._run_all(event)
        if max((_depth(op) for op in self.ops), default=0) > MAX_DEPTH:
            raise Unfit("its groups' loops nest too deep")
        self.plan = self._plan(root)

    def _root(self, root: TransactionPlan) -> list[Op]:
        returned: dict[str, str] = {}
        sent: list[Sent] = []
        out = self._told(root.block.ops, returned, sent)
        self.members.append(Member(root.event, None, fields=self._fields(returned), sent=tuple(sent)))
        return [*out, *self._checks(root, None)] if self._emits(root) else out

    def _run_all(self, event: str) -> None:
        """Behind all that may emit it: what takes an event, once for each place that emits it."""
        for op in list(self.ops):
            if op.is_loop and any(_is_emit(one, event) for one in walk(op.body)):
                times = self._lane(INT)
                self.members.append(Member(event, self.lanes.place(times), in_loop=True))
                self.ops.append(self._loop(_sliced(op, event), {}, times))
            elif _is_emit(op, event):
                returned: dict[str, str] = {}
                sent: list[Sent] = []
                times = self._lane(INT)
                inner = self._member(op, times)
                self.ops += self._told(inner, returned, sent)
                place = self.lanes.place(times)
                self.members.append(Member(event, place, fields=self._fields(returned), sent=tuple(sent)))
            if sum(1 for _ in walk(tuple(self.ops))) > MOST_OPERATIONS:
                raise Unfit("its groups are very long together")

    # -- a member ---------------------------------------------------------------------------

    def _member(self, emit: Op, times: str) -> list[Op]:
        """The operations of the transaction that takes what is emitted there, under the emit's guard."""
        transaction, event = self.by_event[emit.name], self.program.event(emit.name)
        assert event is not None
        if transaction not in self.bodies:
            self.bodies.append(transaction)
        given = dict(zip((f.name for f in event.lanes), emit.args, strict=True))
        types = {f.name: f.type for f in event.lanes}
        copy = _Copy(self.ids, {}, emit.guard)
        out = [Op(next(self.ids), "member", guard=emit.guard, name=times)]
        out += copy.ops(transaction.block.ops, given, types)
        return [*out, *self._checks(transaction, emit.guard)]

    def _checks(self, transaction: TransactionPlan, guard: int | None) -> list[Op]:
        """The checks at a member's end, if it may write what has any."""
        written = {op.table for op in transaction.block.walk() if "column" in op.traits.writes}
        tables = tuple(sorted(written & self.checked))
        return [Op(next(self.ids), "checks", guard=guard, const=tables)] if tables else []

    def _loop(self, loop: Op, new: dict[int, int], times: str) -> Op:
        """A loop once more, which runs a member where it emitted one."""
        copy = _Copy(self.ids, new)
        body: list[Op] = []
        head = copy.head(loop)
        for op in loop.body:
            if op.is_loop:
                body.append(self._loop(op, new, times))
            elif op.code == "emit":
                body += self._in_loop(copy.renamed(op), times)
            else:
                body.append(copy.fresh(op))
        return copy.closed(head, loop, tuple(body))

    def _in_loop(self, emit: Op, times: str) -> list[Op]:
        transaction = self.by_event[emit.name]
        if any(op.code in ("return", "tell") for op in transaction.block.walk()):
            raise Unfit(f"{transaction.name}({emit.name}) returns fields and is emitted in a loop")
        out = self._member(emit, times)
        for op in walk(tuple(out)):
            if op.code == "emit" and not self._is_taken(op.name):
                raise Unfit(f"{op.name} goes out from a loop")
        return out

    # -- what is told of it -----------------------------------------------------------------

    def _told(self, ops: Iterable[Op], returned: dict[str, str], sent: list[Sent], loop: bool = False) -> list[Op]:
        """Operations whose returned fields and outputs go to lanes."""
        out: list[Op] = []
        for op in ops:
            if op.code == "return":
                if op.name not in returned:
                    returned[op.name] = self._lane(dict(self.program.returns)[op.name])
                op = replace(op, name=returned[op.name])
            elif op.code == "tell":
                for lane in op.const:
                    if lane not in returned:
                        returned[lane] = self._lane(dict(self.program.lanes)[lane])
                op = replace(op, const=tuple(returned[lane] for lane in op.const))
            elif op.code == "emit" and not self._is_taken(op.name):
                if loop:
                    raise Unfit(f"{op.name} goes out from a loop")
                out += self._output(op, sent)
                continue
            elif op.is_loop:
                op = replace(op, body=tuple(self._told(op.body, returned, sent, loop=True)))
            out.append(op)
        return out

    def _output(self, emit: Op, sent: list[Sent]) -> list[Op]:
        event = self.program.event(emit.name)
        assert event is not None
        names = [self._lane(f.type) for f in event.lanes]
        times = self._lane(INT)
        sent.append(Sent(emit.name, self.lanes.place(times), tuple(self.lanes.place(name) for name in names)))
        told = [
            Op(next(self.ids), "return", (value,), guard=emit.guard, name=name)
            for name, value in zip(names, emit.args, strict=True)
        ]
        return [emit, *told, Op(next(self.ids), "member", guard=emit.guard, name=times)]

    def _fields(self, returned: dict[str, str]) -> tuple[tuple[str, int], ...]:
        return tuple((field, self.lanes.place(lane)) for field, lane in returned.items())

    def _lane(self, type_: Type) -> str:
        number = self.taken[str(type_)] = self.taken.get(str(type_), -1) + 1
        return self.lanes.name(type_, number)

    def _is_taken(self, event: str) -> bool:
        """Whether a transaction takes it; Unfit where that runs once the group has committed."""
        transaction = self.by_event.get(event)
        if transaction is not None and not self.program.is_nested(event):
            raise Unfit(f"{transaction.name}({event}) is not nested")
        return transaction is not None

    def _emits(self, root: TransactionPlan) -> bool:
        return any(op.code == "emit" for op in root.block.walk())

    # -- the whole --------------------------------------------------------------------------

    def _plan(self, root: TransactionPlan) -> TransactionPlan:
        counted = any(op.code == "emit" for loop in self.ops for op in walk(loop.body))
        ops = tuple(_counted(self.ops, counted=counted))
        writes = tuple(sorted({op.table for op in walk(ops) if op.traits.writes}))
        source, first = _source(self.bodies)
        return replace(root, block=replace(root.block, ops=ops, source=source, first=first), writes=writes)


class _Copy:
    """Operations once more, under numbers of their own and a guard besides their own."""

    def __init__(self, ids: Iterator[int], new: dict[int, int], guard: int | None = None) -> None:
        self.ids, self.new, self.guard = ids, new, guard
        self.both: dict[int, int] = {}

    def ops(self, ops: Iterable[Op], given: dict[str, int], types: dict[str, Type], inside: bool = False) -> list[Op]:
        """given: the values that the event's fields are."""
        out: list[Op] = []
        for op in ops:
            if op.code == "is_null":
                self.new[op.id] = given[is_none(op.name)]
                continue
            if op.code == "field":
                value = given[op.name]
                if types[op.name] != op.type:  # a decimal has all its digits in a body
                    made = Op(next(self.ids), "convert", (value,), op.type, None if inside else self.guard, op.line)
                    out.append(made)
                    value = made.id
                self.new[op.id] = value
                continue
            guard = None if op.guard is None else self.new[op.guard]
            if not inside and self.guard is not None and op.code not in ("const", "item"):
                guard = self._and(guard, out)
            if op.is_loop:
                head = replace(self.head(op), guard=guard)
                out.append(self.closed(head, op, tuple(self.ops(op.body, given, types, inside=True))))
            else:
                out.append(replace(self.fresh(op), guard=guard))
        return out

    def _and(self, guard: int | None, out: list[Op]) -> int:
        assert self.guard is not None
        if guard is None:
            return self.guard
        if guard not in self.both:
            made = self.both[guard] = next(self.ids)
            out.append(Op(made, "and", (self.guard, guard), BOOL))
        return self.both[guard]

    def renamed(self, op: Op) -> Op:
        guard = None if op.guard is None else self.new.get(op.guard, op.guard)
        return replace(op, args=tuple(self.new.get(a, a) for a in op.args), guard=guard)

    def fresh(self, op: Op) -> Op:
        self.new[op.id] = next(self.ids)
        return replace(self.renamed(op), id=self.new[op.id])

    def head(self, loop: Op) -> Op:
        """A loop without its body: what that may use, the turn's carries, has its new numbers then."""
        out = self.fresh(loop)
        for carry in loop.carries:
            self.new[carry.id] = next(self.ids)
        return out

    def closed(self, head: Op, loop: Op, body: tuple[Op, ...]) -> Op:
        new = self.new
        return replace(
            head,
            body=body,
            carries=tuple(
                replace(c, id=new[c.id], init=new.get(c.init, c.init), next=new.get(c.next, c.next))
                for c in loop.carries
            ),
            until=None if loop.until is None else new.get(loop.until, loop.until),
        )


def _sliced(loop: Op, event: str) -> Op:
    """A loop with nothing left in it but what it emits of one event, and what that is computed from."""
    if loop.code == "scan":
        raise Unfit(f"{event} is emitted in a loop over the records of {loop.table}")
    inner = set() if loop.until is None else {loop.until}
    needed: set[int] = set()
    while True:
        inner |= {c.next for c in loop.carries if c.id in needed}
        body = _kept(loop.body, event, inner)
        more = {c.id for c in loop.carries if c.id in inner} - needed
        if not more:
            return replace(loop, body=body, carries=tuple(c for c in loop.carries if c.id in needed))
        needed |= more


def _kept(ops: tuple[Op, ...], event: str, used: set[int]) -> tuple[Op, ...]:
    out: list[Op] = []
    for op in reversed(ops):
        if op.is_loop and any(_is_emit(one, event) for one in walk(op.body)):
            if any(carry.id in used for carry in op.carries):
                raise Unfit(f"what is emitted of {event} in a loop is computed in a loop inside it")
            op = _sliced(op, event)
        elif op.is_loop and any(carry.id in used for carry in op.carries):
            raise Unfit(f"what is emitted of {event} in a loop is computed in a loop inside it")
        elif op.id not in used and not _is_emit(op, event):
            continue
        elif op.traits.takes or op.code == "udf":
            by = "a udf" if op.code == "udf" else "records"
            raise Unfit(f"what is emitted of {event} in a loop depends on {by}")
        out.append(op)
        for one in walk((op,)):
            used.update(one.uses)
    return tuple(reversed(out))


def _counted(ops: Iterable[Op], *, counted: bool) -> Iterator[Op]:
    """Without emits; where loops emit, each of them counts towards what a round may emit."""
    for op in ops:
        if op.code == "emit" and not counted:
            continue
        if op.code == "emit":
            yield replace(op, code="emitted", args=(), name="")
        else:
            yield replace(op, body=tuple(_counted(op.body, counted=counted))) if op.body else op


def _is_emit(op: Op, event: str) -> bool:
    return op.code == "emit" and op.name == event


def _made(ops: tuple[Op, ...]) -> Iterator[int]:
    for op in walk(ops):
        yield op.id
        yield from (carry.id for carry in op.carries)


def _depth(op: Op) -> int:
    return 1 + max((_depth(one) for one in op.body), default=0) if op.is_loop else 0


def _source(bodies: list[TransactionPlan]) -> tuple[str, int]:
    """The lines of several transactions, each at its place in the file; those of the first alone where they are of more
    than one file."""
    here = [t.block for t in bodies if t.file == bodies[0].file]
    first = min(block.first for block in here)
    lines = [""] * (max(block.first + len(block.source.split("\n")) for block in here) - first)
    for block in here:
        own = block.source.split("\n")
        lines[block.first - first : block.first - first + len(own)] = own
    return "\n".join(lines), first
