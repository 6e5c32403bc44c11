"""What a kernel takes, in order: the one place that codegen (names) and native (arrays) agree on."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.declare.kinds import REAL
from penstock.declare.model import MAX_EVENTS
from penstock.declare.types import Type
from penstock.plan.ir import Plan, WindowPlan


@dataclass(frozen=True, slots=True)
class Argument:
    name: str  # in the generated source
    # "batch", "log", "strings", "table", "event", "rows", "out"; for a graph also "version", "handed"; for rounds
    # "queue", "flow"; for timers "timers", "fired"
    owner: str
    of: str = ""  # table, event or field
    part: str = ""  # what of it
    type: Type | None = None

    @property
    def readonly(self) -> bool:
        return self.owner == "event"

    @property
    def dimensions(self) -> int:
        # What fragments of events hand over: [value, event]; the keys of a table: [column, row].
        return 2 if self.owner == "handed" or self.part == "stored" else 1


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
# info[0], where a scan has no room for its rows; below those of all queues.
FULL_SCAN = FULL_QUEUES - MAX_EVENTS
# Likewise where timers have no room: in the heap of those that wait, and in the list of those that have run.
FULL_TIMERS, FULL_FIRED = FULL_SCAN - 1, FULL_SCAN - 2
# info[0], where an index is stale: the k-th of indexed(), at STALE_INDEX - k.
STALE_INDEX = FULL_FIRED - 1
# info[0], where there is no room for a new string; below all of these.
FULL_TEXT = -(1 << 20)
# How many entries an undo log has at first; it grows where a transaction needs more.
LOG_SIZE = 1 << 14


def table_arguments(plan: Plan, number: int) -> list[Argument]:
    table = plan.tables[number]
    t = f"t{number}"
    out = [Argument(f"{t}_slots", "table", table.name, "slots")]
    out += [Argument(f"{t}_k{k}", "table", table.name, f"key{k}") for k in range(len(table.keys))]
    for k, column in enumerate(table.lanes):
        out.append(Argument(f"{t}_c{k}", "table", table.name, f"column{k}", column.type))
        if column.type.lane is REAL:
            out.append(Argument(f"{t}_b{k}", "table", table.name, f"bits{k}"))
    out += [
        Argument(f"{t}_{part}", "table", table.name, part)
        for part in ("written", "flags", "dirty", "tombstones", "free", "meta")
    ]
    if table.name in scanned_tables(plan):
        out.append(Argument(f"{t}_keys", "table", table.name, "stored"))
    for k, column in enumerate(table.lanes):
        if (table.name, column.name) in indexed(plan):
            out += [
                Argument(f"{t}_i{k}_{part}", "table", table.name, f"index_{part} {column.name}")
                for part in ("slots", "posts", "meta")
            ]
    window = plan.window(table.name)
    if window is not None:
        out += _window_arguments(window, t)
    return out if table.ttl is None else [*out, Argument(f"{t}_at", "table", table.name, "at")]


def _window_arguments(window: WindowPlan, t: str) -> list[Argument]:
    """Where a window's rows are."""
    name, out = window.table.name, []
    for k, column in enumerate(window.definition.values):
        out.append(Argument(f"{t}_r{k}", "table", name, f"row{k}", column.type))
        if column.type.lane is REAL:
            out.append(Argument(f"{t}_rb{k}", "table", name, f"rowbits{k}"))
    return [*out, *(Argument(f"{t}_{part}", "table", name, part) for part in ("times", "pool"))]


def scanned_tables(plan: Plan) -> set[str]:
    return {op.table for t in plan.transactions for op in t.block.walk() if op.code == "scan"}


def indexed(plan: Plan) -> list[tuple[str, str]]:
    """The columns, with their tables, that some transaction looks records up by."""
    wheres = (op for t in plan.transactions for op in t.block.walk() if op.code == "scan" and op.const == "where")
    return list(dict.fromkeys((op.table, op.name) for op in wheres))


def scan_arguments(plan: Plan) -> list[Argument]:
    """Where scans collect rows."""
    return [Argument("scanned", "log", part="scanned")] if scanned_tables(plan) else []


def text_arguments(plan: Plan) -> list[Argument]:
    """Where new strings are looked up and written, and what upper and lower case are."""
    made = {op.name for t in plan.transactions for op in t.block.walk() if op.traits.interns}
    out = [Argument("text_slots", "strings", part="slots"), Argument("text_pool", "strings", part="pool")]
    cases = [Argument("text_cases", "strings", part="cases"), Argument("text_kinds", "strings", part="kinds")]
    return [*(out if made else []), *(cases if made & {"texts.lower", "texts.upper"} else [])]


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
    for k, (name, type_) in enumerate(plan.program.lanes):
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
# What kernels take besides where the clock matters: what it is at each event of the batch; behind these, of how many of
# the first there is none.
CLOCK = Argument("clock", "batch", part="clock")
# The kind of a batch's last place, where the clock is set by hand: timers run up to there. No event is of that kind.
NOBODY = 255
# What the kernel of an app that sets timers takes besides: the heap of those that wait (state/timers.py), those that
# the batch has run, and how many these are and how many timers were set on the way to the event.
TIMERS = (
    *(Argument(f"heap_{part}", "timers", part="heap") for part in ("at", "number", "kind", "row")),
    Argument("timers", "timers", part="meta"),
    Argument("fired_at", "fired", part="at"),
    Argument("fired", "flow", part="counts"),
)
# And where events have an id: that of each place of the batch, and those of the timers that it has run.
TIMERS_IDS = (
    Argument("ids", "batch", part="ids"),
    Argument("named", "batch", part="given"),
    Argument("fired_id", "fired", part="id"),
    Argument("fired_named", "fired", part="given"),
)
# What the kernel of an app that emits takes besides: a row of the outcomes is not a place of the batch there.
ROUNDS = (
    Argument("row_kind", "rows", part="kind"),
    Argument("row_root", "rows", part="root"),
    Argument("row_step", "rows", part="step"),
    Argument("used", "flow", part="used"),
    Argument("room", "flow", part="room"),
)
