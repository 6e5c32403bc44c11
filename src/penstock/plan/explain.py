"""A plan as text that a person can follow; golden files keep it."""

from __future__ import annotations

from penstock.plan.access import Access, accesses, given, requirements
from penstock.plan.inline import inline
from penstock.plan.ir import Block, Op, Plan, TransactionPlan
from penstock.plan.text import constant


def explain(plan: Plan) -> str:
    out = [f"app {plan.program.name}"]
    for table in plan.program.tables:
        columns = ", ".join(f"{c.name}: {c.text}" for c in table.columns)
        out.append(f"table {table.name}({columns})")
    for window in plan.program.windows:
        columns = ", ".join(f"{c.name}: {c.type}{' key' if c.key else ''}" for c in window.columns)
        sizes = (("rows", window.rows), ("time", window.time), ("slide", window.slide))
        size = " ".join(f"{name}={value}" for name, value in sizes if value is not None)
        triggers = ", ".join(trigger.name for trigger in plan.program.triggers_of(window))
        out.append(f"window {window.name}({columns}) {size}" + (f", triggers {triggers}" if triggers else ""))
    for check in plan.checks:
        out += ["", f'check {check.table} or "{check.text}"', *_block(check.block)]
    for transaction in plan.transactions:
        out += ["", _title(plan, transaction), *_block(transaction.block)]
        out += [f"  {line}" for line in _summary(plan, transaction)]
    if plan.program.flow is not None and plan.program.flow.emitted:
        out += ["", "rounds run " + ", ".join(plan.program.flow.ranked)]
        out += [f"output {event.name}" for event in plan.program.outputs()]
        out += _rounds(plan)
    if plan.program.returns:
        out += ["", "returns " + ", ".join(f"{name}: {type_}" for name, type_ in plan.program.returns)]
    return "\n".join(out) + "\n"


def _rounds(plan: Plan) -> list[str]:
    """Whether a round is one transaction, so that rounds may overlap."""
    inlined = inline(plan)
    if isinstance(inlined, str):
        return [f"rounds run one after the other: {inlined}"]
    names = {t.event: t.name for t in plan.transactions}
    groups = [[names[member.event] + " …" * member.in_loop for member in group] for _, group in inlined.groups]
    return [f"one transaction {', '.join(group)}" for group in groups if len(group) > 1]


def _title(plan: Plan, transaction: TransactionPlan) -> str:
    program, event = plan.program, transaction.event
    takes = f"list[{event}]" if program.takes_several(event) else event
    batch = f" batch {program.batches[event]}" if event in program.batches else ""
    return f"transaction {transaction.name}({takes}){batch}{' nested' if program.is_nested(event) else ''}"


def _block(block: Block) -> list[str]:
    return _ops(block.ops, "  ")


def _ops(ops: tuple[Op, ...], indent: str) -> list[str]:
    out = []
    for op in ops:
        out.append(indent + _line(op))
        if op.is_loop:
            for carry in op.carries:
                out.append(f"{indent}  %{carry.id}: {carry.type} = %{carry.init}, then %{carry.next}")
            out += _ops(op.body, indent + "  ")
            if op.until is not None:
                out.append(f"{indent}  until %{op.until}")
    return out


def _line(op: Op) -> str:
    args = ", ".join(f"%{a}" for a in op.args)
    what = f"{op.code} {op.table}" if op.table else op.code
    match op.code:
        case "const":
            text = f"const {constant(op)}"
        case "field" | "list":
            of = f" of {args}" if args else ""
            text = f"{op.code} {op.name}{of}" + (' or abort "null ' + op.name + '"' if op.const else "")
        case "is_null":
            text = f"{op.code} {op.name}" + (f" of {args}" if args else "")
        case "reason":
            text = f'reason "{op.name}"'
        case "item":
            text = f"item {op.const}"
        case "read" | "read_or" | "write":
            text = f"{what}.{op.name}({args})"
        case "abort":
            text = f'abort "{op.name}"'
        case "tell":
            text = f"tell {', '.join(f'{lane} %{value}' for lane, value in zip(op.const, op.args, strict=True))}"
        case "return" | "call" | "look" | "make" | "udf" | "emit":
            text = f"{op.code} {op.name}({args})"
        case "timer":
            text = f"emit {op.name}({', '.join(f'%{a}' for a in op.args[:-1])}) at %{op.args[-1]}"
        case "range":
            text = f"range({args}) by {op.const}"
        case "scan":
            by = f" {op.name}" if op.name else ""
            text = f"{what} {op.const}{by}({args})"
        case "locate" | "delete":
            text = f'{what}({args}) or abort "missing {op.table}"'
        case "insert":
            text = f'{what}({args}) or abort "exists {op.table}"'
        case _:
            text = f"{what}({args})"
    left = f"%{op.id}: {op.type} = " if op.type is not None else ""
    guard = f"  if %{op.guard}" if op.guard is not None else ""
    safe = "  no undo" if op.traits.writes and not op.undo else ""
    return f"{left}{text}{guard}{safe}"


def _summary(plan: Plan, transaction: TransactionPlan) -> list[str]:
    """What a schedule needs to know: what is touched, what may abort it, what comes out."""
    touched = list(dict.fromkeys(_access(access) for access in accesses(transaction.block)))
    required = [f'"{r.reason}"{_needs(r.needs)}' for r in requirements(plan, transaction)]
    returned = [f"{name}{_needs(needs)}" for name, needs in given(transaction.block).items()]
    out = []
    if any(op.traits.interns for op in transaction.block.walk()):
        out.append("runs alone, since it makes strings")
    for title, lines in (("accesses", touched), ("requires, or aborts with", required), ("returns", returned)):
        if lines:
            out += [title, *("  " + line for line in lines)]
    return out


def _needs(needs: tuple[str, ...]) -> str:
    return f" needs {', '.join(needs)}" if needs else ""


def _access(access: Access) -> str:
    text = f"{access.kind} {access.table}[{access.key}]{_needs(access.needs)}"
    if access.kind == "scan":
        return text + " (serial)"
    return text if access.foreseen else text + f" (key {access.alone}: serial)"
