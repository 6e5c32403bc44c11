"""Which events transactions emit, and the order in which a round runs them.

    vote(Vote) --Counted--> board(Counted) --Remove--> remove(Remove)

A rank is a place in that graph: who emits comes before who is emitted (Kahn's order; of those that are ready, the first
declared). So within a round everything runs behind all that may still cause it. A cycle would never end: it is refused.
What is emitted with at= is a round of its own, so it has no part in this: a cycle through it takes time.

A transaction that takes several events has a row of the outcomes for each of them, as a round has for each step. So an
app with one runs in rounds too, whether or not it emits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from penstock.declare.model import Flow, Program
from penstock.errors import DeclarationError
from penstock.plan.ir import Op, TransactionPlan

# Emits of one round, and timers that timers set on the way to one event, to run before it as well; the group that would
# emit one more is aborted.
MOST_EMITS, TOO_MANY = 1_000_000, "too many events"
# What every row of an output has (Program.output); a field cannot have one of these names.
OUTPUT_COLUMNS = ("ts", "id", "step", "version")
# What every row of pending timers has (Program.pending).
PENDING_COLUMNS = ("at", "id")


def flow_of(program: Program, plans: Sequence[TransactionPlan]) -> Flow | None:
    """None where nothing is emitted, and each transaction takes one event."""
    edges = {plan.event: [op.name for op in emits(plan)] for plan in plans}
    timed = {op.name for plan in plans for op in emits(plan, "timer")}
    emitted = timed | {name for several in edges.values() for name in several}
    if not emitted and not any(t.several for t in program.transactions):
        return None
    in_order = [e.name for e in program.events if e.name in emitted]
    return Flow(_ranked(edges, plans), tuple(in_order), tuple(name for name in in_order if name in timed))


def emits(plan: TransactionPlan, code: str = "emit") -> list[Op]:
    return [op for op in plan.block.walk() if op.code == code]


def only_reads(plan: TransactionPlan) -> bool:
    """Whether a transaction can neither write a record nor emit an event, whatever its event says."""
    return not any(op.traits.writes or op.code == "emit" for op in plan.block.walk())


def _ranked(edges: dict[str, list[str]], plans: Sequence[TransactionPlan]) -> tuple[str, ...]:
    left = list(edges)
    ranked: list[str] = []
    while left:
        waiting = {name for event in left for name in edges[event]}
        ready = next((event for event in left if event not in waiting), None)
        if ready is None:
            _refuse_cycle(edges, left, plans)
        left.remove(ready)
        ranked.append(ready)
    return tuple(ranked)


def _refuse_cycle(edges: dict[str, list[str]], left: list[str], plans: Sequence[TransactionPlan]) -> NoReturn:
    """Each of those that are left is emitted by another of them: going from emitter to emitter meets one twice."""
    way = [left[0]]
    while way[-1] not in way[:-1]:
        way.append(next(event for event in left if way[-1] in edges[event]))
    cycle = way[way.index(way[-1]) :][::-1]
    by_event = {plan.event: plan for plan in plans}
    last = max((by_event[event] for event in cycle), key=plans.index)  # the one that closed it
    line = next(op.line for op in emits(last) if op.name in cycle)
    shown = " -> ".join(f"{by_event[event].name}({event})" for event in cycle)
    raise DeclarationError(
        f"transaction '{last.name}' ({last.file}:{line}) closes a cycle of events, which would never end: {shown}; "
        "let one of them not emit"
    )


def refuse_timers(program: Program, plans: Sequence[TransactionPlan]) -> None:
    """A timer is there to run a transaction; and the rows of those that wait have columns of their own."""
    for plan, op in ((one, op) for one in plans for op in emits(one, "timer")):
        event = program.event(op.name)
        assert event is not None
        at = f"transaction '{plan.name}' ({plan.file}:{op.line}) emits '{op.name}' with at=, "
        if program.takes_several(op.name):
            raise DeclarationError(f"{at}but its transaction takes a list[{op.name}]; a timer is one event: take that")
        if program.transaction_of(event) is None:
            raise DeclarationError(f"{at}but no transaction takes it; declare one: def f(e: {op.name})")
        taken = [f.name for f in event.fields if f.name.lower() in PENDING_COLUMNS]
        if taken:
            raise DeclarationError(
                f"{at}and db.pending({op.name}) has a column '{taken[0]}' already; give the field another name"
            )


def refuse_columns(program: Program) -> None:
    """An output's rows have columns of their own."""
    for event in program.outputs():
        taken = [f.name for f in event.fields if f.name.lower() in OUTPUT_COLUMNS]
        if taken:
            raise DeclarationError(
                f"event '{event.name}' is an output of app '{program.name}', whose rows have a column '{taken[0]}' "
                "already, of the event that caused it; give the field another name"
            )
    if program.flow is not None and any(name.lower() == "step" for name, _ in program.returns):
        does = "emits events" if program.flow.emitted else "has a transaction of several events"
        raise DeclarationError(
            f"app '{program.name}' {does}, so its outcomes have a column 'step' already; return that field by another "
            "name"
        )
