"""The source of each operation of a plan: values, lookups, writes, loops, checks, undo.

Operations that share a guard share one `if`; what they make is set to zero before it, so that every
name is defined on every path. Inside the transaction's one-turn `while`, `break` aborts; a loop of the
user's own passes it on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from penstock.declare.model import is_none
from penstock.declare.types import Type
from penstock.execute.codegen import checks, records, scalars, scans, source, texts, timers, undo, windows
from penstock.execute.codegen.layout import ENGINE_REASONS, FULL, FULL_QUEUES, Layout
from penstock.execute.codegen.source import Source
from penstock.execute.codegen.subroutines import Cutter
from penstock.plan import flow
from penstock.plan.ir import RANGE, ROW, Block, Op, Plan, walk
from penstock.state.lanes import constant

# Where so many operations of a long kernel are alike, they call one function.
_SHARED = 3


class Emitter:
    def __init__(self, plan: Plan, cutter: Cutter, store: Any = records, *, notes: bool = False) -> None:
        self.plan = plan
        self.cutter = cutter
        self.store = store  # the module that emits operations on records: in place, or on versions of them
        self.notes = notes  # whether to comment what is written
        self.origin = Block("", ())  # what is being written, and from which source
        self.numbers = {t.name: n for n, t in enumerate(plan.tables)}
        self.foresight: Any = None  # versions: the sites of the transaction
        self.reasons: list[str] = []
        self.literals: list[str] = []
        self.undo_codes: list[tuple[str, str]] = []
        self.checked = 0
        self.prefix = ""
        self.event = 0
        self.fields: dict[str, int] = {}
        self.text: dict[int, str] = {}
        self.types: dict[int, Type] = {}
        self.lists: dict[int, str] = {}
        self.users: dict[int, list[int]] = {}  # value -> the operations that use it
        self.self_row = ""
        self.in_loop = 0
        self.scans: list[str] = []  # of each scan around what is written, where its rows end
        self.posted: set[tuple[str, str]] = set()  # tables and columns whose index is told of writes
        self.turns: dict[tuple[int, ...], Op] = {}  # the key of a turn's record -> its scan
        self.queued: dict[str, set[str]] = {}  # event that is emitted -> the fields that anybody looks at
        self.in_round = False  # whether the undo log may hold what ran before, in the same round
        self.place, self.clock = "i", "clock[i]"  # in the batch, of the event that runs; and what its clock is
        self.alike = Counter(_kind(op) for t in plan.transactions for op in t.block.walk())
        self.logs_touched = False
        self.straight = 0  # entries of the undo log that straight-line code may take

    def know(self, layout: Layout) -> None:
        """Number reasons and literals as another kernel of the same plan does."""
        self.reasons = list(layout.reasons[len(ENGINE_REASONS) :])
        self.literals = list(layout.literals)

    # -- names ------------------------------------------------------------------------------

    def val(self, id_: int) -> str:
        return self.text.get(id_) or f"{self.prefix}v{id_}"

    def row(self, id_: int) -> str:
        return f"{self.prefix}x{id_}"

    def reason(self, text: str) -> int:
        if text in ENGINE_REASONS:
            return ENGINE_REASONS.index(text) + 1
        if text not in self.reasons:
            self.reasons.append(text)
        return len(ENGINE_REASONS) + self.reasons.index(text) + 1

    def literal(self, text: str) -> str:
        if text not in self.literals:
            self.literals.append(text)
        return f"literals[{self.literals.index(text)}]"

    def constant(self, value: object, type_: Type) -> str:
        if type_.kind == "str":
            return self.literal(str(value))
        return source.number(constant(value, type_))

    def abort(self, out: Source, test: str, reason: str) -> None:
        out.line(f"if {test}:")
        with out.indented():
            self.end(out, self.reason(reason), f"abort: {reason}")

    def end(self, out: Source, code: int, why: str) -> None:
        """Leave the transaction."""
        out.line(f"c = {code}{self.note(why)}")
        out.line("break")

    # -- comments ---------------------------------------------------------------------------

    def note(self, text: str) -> str:
        """What stands behind a line."""
        return f"  # {source.one_line(text)}" if self.notes else ""

    def quote(self, out: Source, op: Op) -> None:
        """The line of the user's source that an operation is from, unless it stands there already."""
        line = self.origin.line(op.line) if self.notes else ""
        if line and line != out.quoted:
            out.quoted = line
            out.comment(line)

    # -- blocks -----------------------------------------------------------------------------

    def block(self, out: Source, block: Block, event: int, fields: list[tuple[str, int]]) -> None:
        self.prefix, self.event, self.fields = f"p{event}_", event, dict(fields)
        self.begin(block)
        # Checks of records written in a loop need the list of those records; straight-line code knows them, but
        # where there is much of it, one check for all that was written is less than one for each write.
        self.logs_touched = any(
            "column" in inner.traits.writes and self.plan.checks_of(inner.table)
            for op in block.ops
            for inner in (walk((op,)) if self.cutter.cutting else walk(op.body))
        ) or any(op.code == "checks" for op in block.walk())
        if any(op.code == "emitted" for op in block.walk()):
            out.line("emits = 0")
        if self.store is records:
            self.straight = undo.entries(self.plan, block.ops)
            undo.room_for_all(self, out)
        self.ops(out, block.ops)

    def begin(self, block: Block) -> None:
        self.text, self.types, self.lists, self.users = {}, {}, {}, {}
        self.origin, self.turns = block, scans.turns(block)
        for op in block.walk():
            for used in op.uses:
                self.users.setdefault(used, []).append(op.id)
            if op.type is not None:
                self.types[op.id] = op.type
            for carry in op.carries:
                self.types[carry.id] = carry.type
            if op.code == "const":
                assert op.type is not None
                self.text[op.id] = self.constant(op.const, op.type)
            if op.code == "reason":
                self.text[op.id] = str(self.reason(op.name))
            if op.code == "list":
                self.lists[op.id] = f"e{self.event}_{op.name}"
            if op.code == "slice":
                self.lists[op.id] = self.lists[op.args[0]]

    def ops(self, out: Source, ops: tuple[Op, ...]) -> None:
        self.cutter.run(out, [op for op in ops if not op.traits.stands], self.several, self.defined)

    def several(self, out: Source, ops: Sequence[Op]) -> None:
        for guard, group in groupby(ops, key=lambda op: op.guard):
            several = list(group)
            if guard is None:
                for op in several:
                    self.op(out, op)
                continue
            for op in several:
                if self.outlives(op, several):
                    self.zeros(out, op)
            out.line(f"if {self.val(guard)}:")
            with out.indented():
                for op in several:
                    self.op(out, op)

    def outlives(self, op: Op, several: list[Op]) -> bool:
        """Whether what an operation makes is used outside the `if` that it stands in; short source need not ask."""
        if not self.cutter.long:
            return True
        inside = {one.id for one in walk(tuple(several))}
        checked = op.type == ROW and bool(self.plan.checks_of(op.table))  # by its place, at the end
        return checked or any(user not in inside for made in op.makes for user in self.users.get(made, ()))

    def defined(self, op: Op) -> list[str]:
        out = Source()
        Emitter.zeros(self, out, op)
        return out.lines

    def zeros(self, out: Source, op: Op) -> None:
        """Define what an operation makes, in case its guard does not hold."""
        if op.type is not None and op.type.kind == "list":
            out.line(f"{self.val(op.id)}_at = 0")
            out.line(f"{self.val(op.id)}_n = 0")
        elif op.type == ROW:
            out.line(f"{self.val(op.id)} = -1")
            out.line(f"{self.row(op.id)} = np.uint64(0)")
        elif op.type == RANGE or op.code == "window_add":
            windows.zeros(self, out, op)
        elif op.type is not None:
            out.line(f"{self.val(op.id)} = {source.zero(op.type)}")
        for carry in op.carries:
            out.line(f"{self.val(carry.id)} = {source.zero(carry.type)}")

    def op(self, out: Source, op: Op) -> None:
        self.quote(out, op)
        emit = op.traits.emit
        if "{" in emit:
            out.line(f"{self.val(op.id)} = {emit.format(*(self.val(a) for a in op.args))}")
        else:
            EMIT[emit](self, out, op)

    def nothing(self, out: Source, op: Op) -> None:
        """A constant stands where it is used; an item is bound by its loop."""

    def own_row(self, out: Source, op: Op) -> None:
        out.line(f"{self.row(op.id)} = {self.self_row}")

    def field(self, out: Source, op: Op) -> None:
        if op.const:
            self.null_test(out, op)
        out.line(f"{self.val(op.id)} = e{self.event}_{op.name}[{self.lies(op)}]")

    def is_null(self, out: Source, op: Op) -> None:
        out.line(f"{self.val(op.id)} = {self.null(op)}")

    def use(self, out: Source, op: Op) -> None:
        """Leave, for the reason that the argument is, where it is one."""
        why = self.val(op.args[0])
        out.line(f"if {why} != 0:")
        with out.indented():
            out.line(f"c = {why}{self.note('abort: it is None')}")
            out.line("break")

    def list_field(self, out: Source, op: Op) -> None:
        self.null_test(out, op)
        v, at, place = self.val(op.id), f"at{self.event}_{op.name}", self.lies(op)
        out.line(f"{v}_at = np.int64({at}[{place}])")
        out.line(f"{v}_n = np.int64({at}[{place} + ONE]) - {v}_at")

    def index(self, out: Source, op: Op) -> None:
        v, (source, place) = self.val(op.id), op.args
        n, at = f"{self.val(source)}_n", f"{v}_at"
        out.line(f"{at} = np.int64({self.val(place)})")
        out.line(f"if {at} < 0:")
        with out.indented():
            out.line(f"{at} += {n}")
        self.abort(out, f"{at} < 0 or {at} >= {n}", "index out of range")
        out.line(f"{v} = {self.listed(op, f'{self.val(source)}_at + {at}')}")

    def listed(self, op: Op, place: str) -> str:
        """An item of a list that lies there."""
        return f"{self.lists[op.args[0]]}[{place}]"

    def slice(self, out: Source, op: Op) -> None:
        v, (source, start, stop) = self.val(op.id), op.args
        n = f"{self.val(source)}_n"
        out.line(f"{v}_at = k_.slice_end({self.val(start)}, {n})")
        out.line(f"{v}_n = max(k_.slice_end({self.val(stop)}, {n}) - {v}_at, 0)")
        out.line(f"{v}_at += {self.val(source)}_at")

    def members(self, out: Source, op: Op) -> None:
        v = self.val(op.id)
        out.line(f"{v}_at = np.int64(j) - more{self.note('the events of this transaction: the first, and how many')}")
        out.line(f"{v}_n = more + 1")

    def lies(self, op: Op) -> str:
        """Where a field lies: at the event, or at the member that it is of."""
        return f"np.uint64({self.val(op.args[0])})" if op.args else "j"

    def now(self, out: Source, op: Op) -> None:
        if op.const:
            self.need_clock(out)
        out.line(f"{self.val(op.id)} = {self.clock}")

    def need_clock(self, out: Source) -> None:
        self.abort(out, f"{self.place} < clock[clock.size - 1]", "no clock yet")

    def stop(self, out: Source, op: Op) -> None:
        self.end(out, self.reason(op.name), f"abort: {op.name}")

    def udf(self, out: Source, op: Op) -> None:
        v, args = self.val(op.id), ", ".join(self.val(a) for a in op.args)
        out.line(f"{v}_ok, {v} = udf_{op.name}({args})")
        self.abort(out, f"not {v}_ok", f"udf {op.name} failed")

    def record(self, out: Source, op: Op) -> None:
        if scans.is_turn(self, op):
            scans.found(self, out, op)
        elif self.cutter.long and (op.traits.takes == "key" or op.traits.writes):
            self.call(out, op)
        else:
            self.store.record_op(self, out, op)

    def call(self, out: Source, op: Op) -> None:
        """An operation on a record as a call: in a long kernel many do the same to a table or a column."""
        if self.store is not records or self.alike[_kind(op)] < _SHARED:  # on versions it is a line or two
            self.store.record_op(self, out, op)
            return
        alike = replace(op, id=0, args=tuple(range(1, len(op.args) + 1)))
        names = {f"a_v{k}": self.val(value) for k, value in enumerate((op.id, *op.args))}
        names |= {f"a_x{k}": self.row(value) for k, value in enumerate((op.id, *op.args))}
        kept, self.prefix, self.text = (self.prefix, self.text), "a_", {}
        self.cutter.call(out, lambda out: records.record_op(self, out, alike), self.defined(alike), names, self.prefix)
        self.prefix, self.text = kept

    def null_test(self, out: Source, op: Op) -> None:
        self.abort(out, self.null(op), f"null {op.name}")

    def null(self, op: Op) -> str:
        """Whether a field is null."""
        name = f"ok{self.event}_{op.name}"
        return f"any_{name} and not {name}[{self.lies(op)}]"

    def returned(self, out: Source, op: Op) -> None:
        if op.name in self.fields and self.cutter.long:
            out.line(f"o{self.fields[op.name]}[i] = {self.val(op.args[0])}")
            out.line(f"h{self.fields[op.name]}[i] = True")
        elif op.name in self.fields:
            out.line(f"value{self.event}_{self.fields[op.name]} = {self.val(op.args[0])}")
            out.line(f"given{self.event}_{self.fields[op.name]} = True")
        else:
            out.line(f"{self.prefix}holds = {self.val(op.args[0])}")

    def emit(self, out: Source, op: Op) -> None:
        """Put an event into its queue; n: how many that holds."""
        number = self.plan.program.kind(op.name)
        event = self.plan.program.events[number]
        used, n = self.queued[op.name], f"q{number}_n"
        self.abort(out, f"emits >= {flow.MOST_EMITS}", flow.TOO_MANY)
        out.line(f"if {n} >= room[{number + 1}]:")
        with out.indented():
            out.line(f"info[0] = {FULL_QUEUES - number}")
            self.end(out, FULL, f"the queue of {op.name} is full: it grows, and the round runs again")
        given = dict(zip((lane.name for lane in event.lanes), op.args, strict=True))
        for field in event.fields:
            if field.name in used:
                out.line(f"e{number}_{field.name}[np.uint64({n})] = {self.val(given[field.name])}")
                if field.nullable:
                    there = f"not {self.val(given[is_none(field.name)])}"
                    out.line(f"ok{number}_{field.name}[np.uint64({n})] = {there}")
        if event in self.plan.program.outputs():
            out.line(f"from{number}[np.uint64({n})] = i")
        out.line(f"{n} += 1")
        out.line("emits += 1")

    def emitted(self, out: Source, op: Op) -> None:
        self.abort(out, f"emits >= {flow.MOST_EMITS}", flow.TOO_MANY)
        out.line("emits += 1")

    def member(self, out: Source, op: Op) -> None:
        """Count it at once: of a group that aborts, those count that have run."""
        out.line(f"o{self.lane(op.name)}[i] += 1")

    def tell(self, out: Source, op: Op) -> None:
        """At once: the abort is next."""
        for lane, value in zip(op.const, op.args, strict=True):
            out.line(f"o{self.lane(lane)}[i] = {self.val(value)}")
            out.line(f"h{self.lane(lane)}[i] = True")

    def lane(self, name: str) -> int:
        """Which of the outcomes' lanes has this name."""
        return [lane for lane, _ in self.plan.program.lanes].index(name)

    def checks(self, out: Source, op: Op) -> None:
        checks.of_member(self, out, op)

    # -- loops ------------------------------------------------------------------------------

    def loop(self, out: Source, op: Op) -> None:
        for carry in op.carries:
            out.line(f"{self.val(carry.id)} = {self.val(carry.init)}")
        self.in_loop += 1
        if op.code == "each":
            self.each(out, op)
        elif op.code == "scan":
            scans.scan(self, out, op)
        elif op.code == "rows":
            windows.turns(self, out, op)
        else:
            self.range(out, op)
        self.in_loop -= 1
        if any(inner.may_abort for inner in op.body) or self.pushes(op):
            out.line("if c != 0:")
            with out.indented():
                out.line("break")

    def each(self, out: Source, op: Op) -> None:
        """Turns over the items of lists; the shortest ends them."""
        turn, count = f"{self.prefix}q{op.id}", f"{self.prefix}m{op.id}"
        lengths = [f"{self.val(a)}_n" for a in op.args]
        out.line(f"{count} = {lengths[0]}")
        for one in lengths[1:]:
            out.line(f"{count} = min({count}, {one})")
        out.line(f"for {turn} in range({count}):")
        with out.indented():
            empty = len(out.lines)
            for item in (o for o in op.body if o.code == "item"):
                if item.const < 0:
                    out.line(f"{self.val(item.id)} = {turn}")
                    continue
                source = op.args[item.const]
                place = f"{self.val(source)}_at + {turn}"
                out.line(f"{self.val(item.id)} = {f'{self.lists[source]}[{place}]' if source in self.lists else place}")
            self.ops(out, op.body)
            self.next_turn(out, op)
            if len(out.lines) == empty:
                out.line("pass")

    def range(self, out: Source, op: Op) -> None:
        """Turns over a range. There may be more of them than an int64 counts, so they are counted down."""
        item, left = f"{self.prefix}q{op.id}", f"{self.prefix}m{op.id}"
        start, stop = (self.val(a) for a in op.args)
        scalars.range_count(out, left, start, stop, op.const)
        out.line(f"{item} = np.int64({start})")
        out.line(f"while {left} != np.uint64(0):")
        with out.indented():
            out.line(f"{left} -= ONE")
            for inner in (o for o in op.body if o.code == "item"):
                out.line(f"{self.val(inner.id)} = {item}")
            out.line(f"{item} += {op.const}")  # behind the last turn it may wrap; nobody sees it
            self.ops(out, op.body)
            self.next_turn(out, op)

    def next_turn(self, out: Source, op: Op) -> None:
        moved = [(self.val(c.id), self.val(c.next)) for c in op.carries if c.id != c.next]
        # The end is tested before the carries move: it speaks of this turn's values.
        if op.until is not None:
            out.line(f"{self.prefix}until{op.id} = {self.val(op.until)}")
        if moved:
            out.line(f"{', '.join(a for a, _ in moved)} = {', '.join(b for _, b in moved)}")
        if op.until is not None:
            out.line(f"if {self.prefix}until{op.id}:")
            with out.indented():
                out.line("break")

    def pushes(self, op: Op) -> bool:
        return any(inner.traits.writes for inner in walk(op.body))


# What writes an operation, by the name that plan/ir.py has for it.
EMIT: dict[str, Callable[[Emitter, Source, Op], None]] = {
    "nothing": Emitter.nothing,
    "self": Emitter.own_row,
    "field": Emitter.field,
    "is_null": Emitter.is_null,
    "use": Emitter.use,
    "list": Emitter.list_field,
    "index": Emitter.index,
    "slice": Emitter.slice,
    "now": Emitter.now,
    "members": Emitter.members,
    "abort": Emitter.stop,
    "return": Emitter.returned,
    "udf": Emitter.udf,
    "record": Emitter.record,
    "emit": Emitter.emit,
    "emitted": Emitter.emitted,
    "member": Emitter.member,
    "tell": Emitter.tell,
    "checks": Emitter.checks,
    "timer": timers.set_timer,
    "loop": Emitter.loop,
    **scalars.EMIT,
    **texts.EMIT,
    **windows.EMIT,
}


def _kind(op: Op) -> tuple[object, ...]:
    """Operations of one kind do the same to a table or a column."""
    return op.code, op.table, op.name, op.undo
