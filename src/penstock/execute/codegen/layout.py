"""What a kernel takes, in order: the one place that codegen (names) and native (arrays) agree on."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.declare.kinds import REAL
from penstock.declare.types import Type
from penstock.plan.ir import Plan, WindowPlan


@dataclass(frozen=True, slots=True)
class Argument:
    name: str  # in the generated source
    # "batch", "log", "strings", "table", "event", "rows", "out"; for a graph also "version", "handed"; for rounds
    # "queue", "flow"
    owner: str
    of: str = ""  # table, event or field
    part: str = ""  # what of it
    type: Type | None = None

    @property
    def readonly(self) -> bool:
        return self.owner == "event"

    @property
    def dimensions(self) -> int:
        return 2 if self.owner == "handed" else 1  # what fragments of events hand over: [value, event]


@dataclass(frozen=True, slots=True)
class Layout:
    arguments: tuple[Argument, ...]
    reasons: tuple[str, ...]  # abort code c means reasons[c - 1]
    literals: tuple[str, ...]  # string constants

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(a.name for a in self.arguments)


# Abort codes of the kernel itself, before the program's own reasons.
OVERFLOW, DIVISION = 1, 2
ENGINE_REASONS = ("overflow", "division by zero")
# The transaction was undone because something is full: make room, and go on from it.
FULL = -1
FULL_LOG = -1  # info[0], where the undo log is full; otherwise the table's number, with FULL_ROOM added for its rows
FULL_ROOM = 1 << 20
# info[0], where rounds have no room: for more rows of outcomes, or for event k, at FULL_QUEUES - k.
FULL_ROWS, FULL_QUEUES = -2, -3
# How many entries an undo log has at first; it grows where a transaction needs more.
LOG_SIZE = 1 << 14


def table_arguments(plan: Plan, number: int) -> list[Argument]:
    table = plan.tables[number]
    t = f"t{number}"
    out = [Argument(f"{t}_slots", "table", table.name, "slots")]
    out += [Argument(f"{t}_k{k}", "table", table.name, f"key{k}") for k in range(len(table.keys))]
    for k, column in enumerate(table.values):
        out.append(Argument(f"{t}_c{k}", "table", table.name, f"column{k}", column.type))
        if column.type.lane is REAL:
            out.append(Argument(f"{t}_b{k}", "table", table.name, f"bits{k}"))
    out += [
        Argument(f"{t}_{part}", "table", table.name, part)
        for part in ("written", "flags", "dirty", "tombstones", "free", "meta")
    ]
    window = plan.window(table.name)
    return out if window is None else out + _window_arguments(window, t)


def _window_arguments(window: WindowPlan, t: str) -> list[Argument]:
    """Where a window's rows are."""
    name, out = window.table.name, []
    for k, column in enumerate(window.definition.values):
        out.append(Argument(f"{t}_r{k}", "table", name, f"row{k}", column.type))
        if column.type.lane is REAL:
            out.append(Argument(f"{t}_rb{k}", "table", name, f"rowbits{k}"))
    return [*out, *(Argument(f"{t}_{part}", "table", name, part) for part in ("times", "pool"))]


def event_arguments(plan: Plan, number: int, used: set[str]) -> list[Argument]:
    event = plan.program.events[number]
    out = []
    for field in event.fields:
        if field.name not in used:
            continue
        # The prefix tells the parts apart: whatever a field is called, no two arguments have one name.
        name = f"e{number}_{field.name}"
        item = field.type.item or field.type
        out.append(Argument(name, "event", event.name, f"values {field.name}", item))
        out.append(Argument(f"ok{number}_{field.name}", "event", event.name, f"valid {field.name}"))
        if field.type.item is not None:
            out.append(Argument(f"at{number}_{field.name}", "event", event.name, f"offsets {field.name}"))
    return out


def queue_arguments(plan: Plan, number: int, used: set[str]) -> list[Argument]:
    """Where an event is emitted to: its fields, and for an output the row of the outcomes that it comes from."""
    event = plan.program.events[number]
    out = []
    for field in event.fields:
        if field.name in used:
            out.append(Argument(f"e{number}_{field.name}", "queue", event.name, f"values {field.name}", field.type))
            out.append(Argument(f"ok{number}_{field.name}", "queue", event.name, f"valid {field.name}"))
    if event in plan.program.outputs():
        out.append(Argument(f"from{number}", "queue", event.name, "from"))
    return out


def clock_arguments(plan: Plan) -> list[Argument]:
    return [CLOCK] if plan.uses_clock else []


def out_arguments(plan: Plan) -> list[Argument]:
    out = []
    for k, (name, type_) in enumerate(plan.program.returns):
        out.append(Argument(f"o{k}", "out", name, "values", type_))
        out.append(Argument(f"h{k}", "out", name, "given"))
    return out


FIXED = (
    Argument("start", "batch", part="start"),
    Argument("stop", "batch", part="stop"),
    Argument("batch", "batch", part="number"),
    Argument("kind", "batch", part="kind"),
    Argument("pos", "batch", part="pos"),
    Argument("code", "rows", part="code"),
    Argument("info", "batch", part="info"),
    Argument("undo_what", "log", part="what"),
    Argument("undo_at", "log", part="at"),
    Argument("undo_old", "log", part="old"),
    Argument("touched", "log", part="touched"),
    Argument("text_at", "strings", part="starts"),
    Argument("text", "strings", part="data"),
    Argument("literals", "strings", part="literals"),
)
# What kernels take besides where a transaction looks at the clock, of each event of the batch; NO_CLOCK: there is none
# yet.
CLOCK = Argument("clock", "batch", part="clock")
NO_CLOCK = -(1 << 63)
# What the kernel of an app that emits takes besides: a row of the outcomes is not a place of the batch there.
ROUNDS = (
    Argument("row_kind", "rows", part="kind"),
    Argument("row_root", "rows", part="root"),
    Argument("row_step", "rows", part="step"),
    Argument("used", "flow", part="used"),
    Argument("room", "flow", part="room"),
)
