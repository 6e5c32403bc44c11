"""Program -> Plan: lower every body, agree on the returned fields, run the passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.declare import body as bodies
from penstock.declare.model import CheckDef, EventDef, Program, TableDef, TransactionDef, TriggerDef, when_aborted
from penstock.declare.objects import Udf
from penstock.declare.types import DATETIME, FLOAT, Type
from penstock.errors import DeclarationError
from penstock.plan import windows
from penstock.plan.flow import flow_of, only_reads, refuse_columns, refuse_timers
from penstock.plan.ir import MEMBERS, ROW, Block, CheckPlan, Plan, TransactionPlan
from penstock.plan.lower import Lowering
from penstock.plan.passes import PASSES
from penstock.plan.values import decimal_type, in_body
from penstock.plan.verify import verify


@dataclass(frozen=True, slots=True)
class Lowered:
    """One transaction, before the program is whole."""

    plan: TransactionPlan
    returns: tuple[tuple[str, Type, int], ...]  # name, type, line
    udfs: tuple[tuple[str, Udf], ...]
    windows: dict[str, int]  # that it names, or a trigger that is part of it -> the line


@dataclass(frozen=True, slots=True)
class LoweredCheck:
    plan: CheckPlan
    udfs: tuple[tuple[str, Udf], ...]


def lower_transaction(program: Program, definition: TransactionDef) -> Lowered:
    body = bodies.read(definition.function, f"transaction '{definition.name}'")
    lowering = Lowering(
        body,
        event=definition.event,
        locals=bodies.stored(body),
        tables=program.tables,
        events=program.events,
        program=program,
    )
    if definition.several:
        lowering.members = lowering.value("members", MEMBERS)
    _lower(lowering)
    ops = tuple(lowering.ops)
    block = Block(definition.name, ops, body.source, body.function.__code__.co_firstlineno)
    writes = {op.table for op in block.walk() if op.traits.writes}
    returns = tuple((name, *one) for name, several in lowering.returns.items() for one in several)
    plan = TransactionPlan(definition.name, definition.event.name, block, tuple(sorted(writes)), body.file)
    return Lowered(plan, returns, tuple(lowering.udfs.items()), lowering.windows)


def lower_trigger(program: Program, definition: TriggerDef) -> None:
    """Raise where a trigger cannot be compiled; what it does belongs to the transaction that adds to its window."""
    body = windows.trigger_body(definition)
    lowering = Lowering(
        body,
        event=EventDef("", (), None, None),
        locals=bodies.stored(body),
        tables=program.tables,
        events=program.events,
        program=program,
        is_trigger=True,
        running=(definition.window.name,),
    )
    windows.alone(lowering, definition)


def lower_check(table: TableDef, check: CheckDef) -> LoweredCheck:
    name = check.function.__name__
    body = bodies.read(check.function, f"check '{name}' of table '{table.name}'")
    lowering = Lowering(body, table=table, locals=bodies.stored(body))
    lowering.self_row = lowering.emit("self", (), ROW, table=table.name)
    _lower(lowering)
    block = Block(name, tuple(lowering.ops), body.source, body.function.__code__.co_firstlineno)
    plan = CheckPlan(table.name, check.text, block)
    for op in plan.block.walk():
        if op.traits.takes in ("key", "table"):
            raise DeclarationError(f"{body.label} ({body.file}:{op.line}): a check looks at its own record alone")
    return LoweredCheck(plan, tuple(lowering.udfs.items()))


def _lower(lowering: Lowering) -> None:
    body = lowering.body
    try:
        lowering.block(body.tree.body)
    except RecursionError:
        body.refuse(
            body.tree, "an expression or a statement in it is nested too deeply; give parts of it names of their own"
        )


def agree(program: Program, lowered: list[Lowered]) -> Program:
    """The program with the types of its returned fields: what all transactions return under a name meets; its flow,
    and with what only reads."""
    fields: dict[str, tuple[Type, str]] = {}
    for one in lowered:
        for name, type_, line in one.returns:
            at = f"transaction '{one.plan.name}' ({one.plan.file}:{line})"
            twin = next((other for other in fields if other != name and other.lower() == name.lower()), None)
            if twin is not None:
                raise DeclarationError(
                    f"{at} returns '{name}', but {fields[twin][1]} returns '{twin}'; write it one way"
                )
            known, by = fields.get(name, (in_body(type_), at))
            met = _meet(known, in_body(type_))
            if met is None:
                raise DeclarationError(
                    f"{at} returns '{name}' as {type_}, but {by} returns it as {known}; use another name or one type"
                )
            fields[name] = (met, by)
    _refuse_owners(lowered)
    returns = tuple((name, type_) for name, (type_, _) in fields.items())
    plans = [one.plan for one in lowered]
    reading = frozenset(plan.event for plan in plans if only_reads(plan))
    lanes = {lane for plan in plans for op in plan.block.walk() if op.code == "tell" for lane in op.const}
    abort_fields = tuple(name for name in fields if when_aborted(name) in lanes)
    return replace(program, returns=returns, abort_fields=abort_fields, flow=flow_of(program, plans), reading=reading)


def _refuse_units(program: Program) -> None:
    """A ttl counts in what ts is of, and so does the span in which an id runs once."""
    ts = program.order_type()
    for table in program.tables:
        if ts is not None and table.ttl is not None and isinstance(table.ttl, int) == (ts == DATETIME):
            takes = "a timedelta" if ts == DATETIME else "an int, in its unit"
            raise DeclarationError(f"table '{table.name}': ttl={table.ttl!r}, but ts is {ts} in this app; give {takes}")
    for event in program.unique:
        at = f"event '{event.name}', field '{event.id}': unique={event.unique!r}"
        if ts is None:
            raise DeclarationError(
                f"{at}, but app '{program.name}' has no event with a ps.order(), and so no time; leave it out"
            )
        if isinstance(event.unique, int) == (ts == DATETIME):
            takes = '"1 day" or a timedelta' if ts == DATETIME else "an int, in its unit"
            raise DeclarationError(f"{at}, but ts is {ts} in this app; give {takes}")


def _refuse_unique(program: Program, plans: Sequence[TransactionPlan]) -> None:
    """What is emitted is caused once by what caused it."""
    unique = {event.name: event for event in program.unique}
    emitted = ((plan, op) for plan in plans for op in plan.block.walk() if op.code in ("emit", "timer"))
    for plan, op in ((plan, op) for plan, op in emitted if op.name in unique):
        id_ = unique[op.name].id
        raise DeclarationError(
            f"transaction '{plan.name}' ({plan.file}:{op.line}) emits '{op.name}', but unique= of its ps.id() is for "
            f"events that come from outside; leave it out and, to run each {id_} once, insert it into a table: "
            f"Seen.insert(e.{id_})"
        )


def _refuse_owners(lowered: list[Lowered]) -> None:
    """A window is one transaction's, and of the triggers that are part of it."""
    owners: dict[str, Lowered] = {}
    for one in lowered:
        for name, line in one.windows.items():
            owner = owners.setdefault(name, one)
            if owner is not one:
                raise DeclarationError(
                    f"transaction '{one.plan.name}' ({one.plan.file}:{line}) names window '{name}', which belongs to "
                    f"transaction '{owner.plan.name}' ({owner.plan.file}:{owner.windows[name]}), which names it too; "
                    f"emit an event that '{owner.plan.name}' takes, or keep what both need in a table"
                )


def _meet(a: Type, b: Type) -> Type | None:
    kinds = {a.kind, b.kind}
    if "decimal" in kinds and kinds <= {"int", "decimal"}:
        return decimal_type(max(a.scale, b.scale))
    if kinds == {"int", "float"}:
        return FLOAT
    return a if a == b else None


def build(program: Program, lowered: list[Lowered], checks: list[LoweredCheck]) -> Plan:
    """The whole program, planned. Passes run in order and each leaves a sound plan."""
    udfs: dict[str, Udf] = {}
    several: list[Lowered | LoweredCheck] = [*lowered, *checks]
    for one in several:
        for name, udf in one.udfs:
            if udfs.setdefault(name, udf) is not udf:
                raise DeclarationError(f"two udfs of app '{program.name}' are called '{name}'; rename one")
    plan = Plan(
        agree(program, lowered),
        tuple(one.plan for one in lowered),
        tuple(one.plan for one in checks),
        tuple(sorted(udfs.items())),
        windows.plans(program, (op for one in lowered for op in one.plan.block.walk())),
    )
    refuse_columns(plan.program)
    _refuse_units(plan.program)
    _refuse_unique(plan.program, plan.transactions)
    refuse_timers(plan.program, plan.transactions)
    verify(plan, "lower")
    for one_pass in PASSES:
        plan = one_pass(plan)
        verify(plan, one_pass.__name__)
    return plan
