"""The native side: a plan's kernel, compiled once and kept on disk (cache.py), and one batch run through it."""

from __future__ import annotations

import dataclasses
import hashlib
import unicodedata
from copy import copy
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numba as nb
import numpy as np
import pyarrow as pa
from numba import types

from penstock.declare.types import Type
from penstock.errors import DeclarationError
from penstock.execute import dates, kernels, steps
from penstock.execute.codegen.generate import generate
from penstock.execute.codegen.layout import (
    CLOCK,
    FULL_LOG,
    FULL_ROOM,
    FULL_SCAN,
    FULL_TEXT,
    FULL_TIMERS,
    LOG_SIZE,
    STALE_INDEX,
    Argument,
    indexed,
    scanned_tables,
    table_arguments,
)
from penstock.execute.flow_run import Fired, FlowRun, Output, Steps, places
from penstock.execute.intake import EventBatch
from penstock.execute.members import Members
from penstock.execute.modules import load_module, numba_is_extended
from penstock.execute.order import OrderedBatch, clocks, ids
from penstock.plan.inline import inline
from penstock.plan.ir import Plan
from penstock.state import ages, hashing, index, jit, prefetch, rings, scan, strings, texts
from penstock.state.arrow import from_arrow, one_chunk, validity
from penstock.state.lanes import dtype
from penstock.state.table import USED
from penstock.state.tables import Parts, Tables

# What generated source calls: a kernel kept on disk is good only for these very helpers.
_HELPERS = (kernels, dates, steps, ages, hashing, jit, prefetch, rings, strings, texts)
_SCANNED = 1 << 14  # rows that scans have room for at first
_NO_LITERALS = np.zeros(1, np.int64)


@dataclass(frozen=True, slots=True)
class Result:
    """What a kernel says of a batch, in order: 0 or an abort's code, and the returned fields, or lanes of groups."""

    code: Any
    fields: tuple[tuple[Any, Any], ...]  # (values, whether given), one a field
    steps: Steps | None = None  # of an app that emits: there a batch has more rows than events
    outputs: dict[str, Output] = dataclasses.field(default_factory=dict)  # by event
    fired: Fired | None = None  # of an app that sets timers


_NOTHING = Result(np.zeros(0, np.int32), ())


@dataclass(frozen=True, slots=True)
class BatchContext:
    """A batch in the middle of running: the state, what was made of it so far, and what kernels take."""

    tables: Tables
    made: Result
    parts: Parts
    fixed: dict[str, Any]
    count: int
    flow: FlowRun | None = None  # of an app that emits

    def arguments(self) -> dict[str, Any]:
        """What does not change while the batch runs, and the tables as they are now."""
        pool = self.tables.strings
        out = self.fixed | self.tables.parts(self.parts) | {"text_at": pool.starts, "text": pool.data}
        out |= {"text_slots": pool.slots, "text_pool": pool.pool}
        return out if self.flow is None else out | self.flow.arguments() | self.tables.timers.arguments()

    @property
    def result(self) -> Result:
        """What has been made of the batch so far."""
        flow = self.flow
        if flow is None:
            return self.made
        return Result(flow.code(), flow.fields(), flow.steps(), flow.outputs(), flow.fired())


class Kernel:
    def __init__(self, plan: Plan) -> None:
        """The plan itself, or, where each round is one group, that of its groups."""
        inlined = inline(plan)
        self.serial_since = inlined if isinstance(inlined, str) else ""  # why rounds run one after the other
        self._members = None if isinstance(inlined, str) else Members(plan.program, inlined)
        self.plan = plan = plan if isinstance(inlined, str) else inlined.plan
        self.source, self.layout = generate(plan)
        self.whole = self._whole()  # whether its source tells all that it compiles to
        self.fingerprint = self._fingerprint()
        self.function = self._compile()
        self._arguments = itemgetter(*self.layout.names)
        tables = range(len(plan.tables))
        self._parts = tuple((a.name, a.of, a.part) for number in tables for a in table_arguments(plan, number))
        self._fields = _fields(plan, self.layout.arguments, "event")
        self._queued = _fields(plan, self.layout.arguments, "queue")  # which may come from outside too, by a call
        self._returns = [(f"o{k}", f"h{k}", dtype(t)) for k, (_, t) in enumerate(plan.program.lanes)]
        self._uses_clock = plan.uses_clock  # which looks through all of it: not in every batch
        self._literals = pa.array(self.layout.literals, pa.string())
        self._log = _log(LOG_SIZE)
        self._scanned = _room_for_scans()
        cased = "text_cases" in self.layout.names
        self._cases = dict(zip(("text_cases", "text_kinds"), texts.cases(), strict=True)) if cased else {}

    def twin(self) -> Kernel:
        """The same kernel with logs of its own, to run beside this one."""
        other = copy(self)
        other._log, other._scanned = _log(LOG_SIZE), _room_for_scans()
        return other

    # -- compiling --------------------------------------------------------------------------

    def _compile(self) -> Any:
        return compiled(self.module(self.source).kernel, tuple(numba_type(a) for a in self.layout.arguments))

    def module(self, source: str, helpers: tuple[Any, ...] = ()) -> Any:
        """A module generated from this plan; helpers: what it calls besides what every kernel does."""
        scans = (scan, index) if scanned_tables(self.plan) else ()
        return load_module(source, self._names(), (*_HELPERS, *scans, *helpers), whole=self.whole and self._whole())

    def _whole(self) -> bool:
        udfs = [udf for _, udf in self.plan.udfs]
        return not udfs or (all(udf.fingerprint.whole for udf in udfs) and not numba_is_extended())

    def _fingerprint(self) -> str:
        """The same for kernels that do the same. One that is not whole is like those of the same udfs, in this process,
        and like no other. Which events are one transaction, and which are
        duplicates, is not in the source: the kernel is told with each batch."""
        tokens = [] if self.whole else [udf.token for _, udf in self.plan.udfs]
        tokens += [f"{event} batch {batch}" for event, batch in self.plan.program.batches.items()]
        if "text_cases" in self.layout.names:
            tokens.append(f"unicode {unicodedata.unidata_version}")  # what upper and lower case are
        tokens += [f"{event.name} unique {event.span}" for event in self.plan.program.unique]
        return hashlib.sha256("\n".join([self.source, *tokens]).encode()).hexdigest()[:16]

    def _names(self) -> dict[str, Any]:
        """What generated source refers to and does not import: the udfs, and what one that fails gives."""
        out: dict[str, Any] = {f"raw_{name}": udf.compiled for name, udf in self.plan.udfs}
        blocks = [t.block for t in self.plan.transactions] + [c.block for c in self.plan.checks]
        for op in (op for block in blocks for op in block.walk() if op.code == "udf"):
            assert op.type is not None
            out[f"zero_{op.name}"] = dtype(op.type)(0)
        return out

    # -- running ----------------------------------------------------------------------------

    def encode(self, tables: Tables, batch: OrderedBatch) -> dict[str, Any]:
        """The batch's fields as lanes."""
        given = {a.event.name: a for a in batch.arrived}
        lanes: dict[str, Any] = {}
        for field in self._fields:
            if field.event in given:
                field.put(lanes, given[field.event], tables)
            else:
                lanes |= field.absent
        if self._uses_clock:
            lanes[CLOCK.name] = clocks(batch)
        for field in self._queued:
            if field.event in given:
                field.put(lanes, given[field.event], tables)
        if self.plan.program.timers and self.plan.program.id_type() is not None:
            lanes |= self._ids(tables, batch)
        return lanes

    def _ids(self, tables: Tables, batch: OrderedBatch) -> dict[str, Any]:
        """The ids of the batch's events, and which have one: timers keep that of the event that they are from."""
        type_ = self.plan.program.id_type()
        assert type_ is not None
        array = ids(batch, type_)
        valid = validity(array)
        named = np.ones(len(array), np.bool_) if valid.size == 0 else valid
        none = tables.strings.number("") if type_.kind == "str" else 0
        return {"ids": np.where(named, from_arrow(array, type_, tables.strings), none), "named": named}

    def begin(self, tables: Tables, batch: OrderedBatch, lanes: dict[str, Any], number: int) -> BatchContext:
        literals = tables.strings.intern(self._literals) if self.layout.literals else _NO_LITERALS
        if self.plan.program.flow is not None:
            return self._begin_flow(tables, batch, lanes, number, literals)
        n, code = batch.count, np.zeros(batch.count, np.int32)
        fixed = {"batch": number, "kind": batch.kind, "pos": batch.pos, "code": code, "literals": literals}
        fields = []
        for values, given, lane in self._returns:
            fixed[values], fixed[given] = field = np.zeros(n, lane), np.zeros(n, np.bool_)
            fields.append(field)
        return BatchContext(tables, Result(code, tuple(fields)), self._parts, fixed | lanes | self._cases, n)

    def _begin_flow(
        self, tables: Tables, batch: OrderedBatch, lanes: dict[str, Any], number: int, literals: Any
    ) -> BatchContext:
        kind, pos = places(self.plan.program, batch)
        fixed = {"batch": number, "kind": kind, "pos": pos, "literals": literals}
        if batch.members is not None:
            more = pos.size - batch.count  # a place where timers alone run
            fixed["members"] = np.concatenate([batch.members.count, np.ones(more, np.int64)])
            fixed["before"] = np.concatenate([batch.members.before, np.zeros(more, np.int64)])
        flow = FlowRun(self.plan.program, self.layout.arguments, batch, lanes)
        return BatchContext(tables, _NOTHING, self._parts, fixed | lanes | self._cases, int(pos.size), flow)

    def result(self, running: BatchContext) -> Result:
        """What was made of a batch that has run."""
        made = running.result
        if self._members is None:
            return made
        rows = self._members.rows(running.fixed["kind"], made.code, made.fields)
        return Result(rows.code, rows.fields, rows.steps, rows.outputs)

    def run(self, running: BatchContext, start: int = 0, stop: int | None = None) -> None:
        """Run these events of a batch, one after the other."""
        stop = running.count if stop is None else stop
        at, grown = start, set[int]()  # what was full for the event that runs again
        while start < stop:
            arguments = running.arguments() | self._log | self._scanned | {"start": start, "stop": stop}
            start = int(self.function(*self._arguments(arguments)))
            if start < stop:
                what = int(self._log["info"][0])
                at, grown = start, grown if start == at else set()
                self._grow(running, what, again=what in grown)
                grown.add(what)

    def _grow(self, running: BatchContext, what: int, *, again: bool) -> None:
        if what == FULL_LOG:
            self._log = _log(2 * self._log["touched"].size)
        elif what == FULL_TEXT:
            running.tables.strings.grow(texts.ROOM)
        elif what == FULL_SCAN:
            self._scanned = _room_for_scans(2 * self._scanned["scanned"].size)
        elif what == FULL_TIMERS:
            running.tables.timers.grow()
        elif what <= STALE_INDEX:
            name, column = indexed(self.plan)[STALE_INDEX - what]
            running.tables[name].build_index(column)
        elif what >= FULL_ROOM:
            window = running.tables.windows[self.plan.tables[what - FULL_ROOM].name]
            window.reserve_rows(2 * int(window.pool[1]) if again else 0)
        elif what >= 0:
            table = running.tables[self.plan.tables[what].name]
            table.reserve(1 + table.capacity - int(table.meta[USED]))
        else:
            assert running.flow is not None
            running.flow.grow(what)


@dataclass(frozen=True, slots=True)
class _Field:
    """A field that transactions use: where it lies, and the arguments that are made of it."""

    event: str
    place: int  # among the event's fields
    type: Type
    item: Type  # of a list's items; otherwise `type`
    values: str
    valid: str
    offsets: str  # of a list
    absent: dict[str, Any]  # the lanes where a batch has no such event

    def put(self, lanes: dict[str, Any], arrived: EventBatch, tables: Tables) -> None:
        """The field's values, which are not null, and for a list where each begins."""
        array = one_chunk(arrived.table.column(self.place))
        valid = validity(array)
        if self.type.item is None:
            lanes[self.values], lanes[self.valid] = _lane(from_arrow(array, self.type, tables.strings)), _lane(valid)
            return
        offsets = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * 4)
        items = array.values
        if items.null_count:
            holes = np.concatenate([[0], np.cumsum(~validity(items))])
            whole = holes[offsets[1:]] == holes[offsets[:-1]]
            valid = whole if valid.size == 0 else valid & whole
        values = from_arrow(items, self.item, tables.strings)
        lanes[self.values] = _lane(values if values.size else np.zeros(1, values.dtype))
        lanes[self.valid], lanes[self.offsets] = _lane(valid), _lane(offsets)


def _fields(plan: Plan, arguments: tuple[Argument, ...], owner: str) -> tuple[_Field, ...]:
    """The fields behind those arguments that come from events, or lie in queues of them."""
    found: dict[tuple[str, str], dict[str, Argument]] = {}
    for argument in arguments:
        if argument.owner == owner and argument.part != "from":
            part, name = argument.part.split(" ")
            found.setdefault((argument.of, name), {})[part] = argument
    events = {e.name: e for e in plan.program.events}
    out = []
    for (event, name), parts in found.items():
        item = parts["values"].type
        assert item is not None
        place = events[event].place(name)
        out.append(
            _Field(
                event,
                place,
                events[event].fields[place].type,
                item,
                values=parts["values"].name,
                valid=parts["valid"].name,
                offsets=parts["offsets"].name if "offsets" in parts else "",
                absent={a.name: _lane(np.zeros(2, _event_dtype(a))) for a in parts.values()},
            )
        )
    return tuple(out)


def _lane(array: Any) -> Any:
    """An array as kernels take it from an event: not to be written to."""
    array.setflags(write=False)
    return array


def _log(size: int) -> dict[str, Any]:
    """What a kernel undoes an event by, and says of what is full."""
    out = {name: np.zeros(size, np.int64) for name in ("undo_what", "undo_at", "undo_old", "touched")}
    return out | {"info": np.zeros(1, np.int64)}


def _room_for_scans(size: int = _SCANNED) -> dict[str, Any]:
    return {"scanned": np.zeros(size, np.int64)}


def _event_dtype(argument: Argument) -> Any:
    part = argument.part.split(" ")[0]
    if part == "values":
        assert argument.type is not None
        return dtype(argument.type)
    return np.bool_ if part == "valid" else np.int32


def compiled(function: Any, signature: tuple[Any, ...]) -> Any:
    """The function, compiled for these arguments now: not when a batch calls it."""
    if signature not in function.overloads:
        try:
            function.compile(signature)
        except RecursionError:
            raise DeclarationError(
                f"the app's transactions together are too long to be compiled (its '{function.__name__}' kernel); "
                "make the longest shorter, or give some of them to an app of their own"
            ) from None
    return function


def numba_type(argument: Argument) -> Any:
    scalar = {"start", "stop", "number"}
    if argument.part in scalar:
        return types.int64
    element = {
        "kind": types.uint8,
        "code": types.int32,
        "flags": types.uint8,
        "data": types.uint8,
        "given": types.boolean,
        "step": types.int32,
        "cases": types.int32,
        "kinds": types.uint8,
    }.get(argument.part, types.int64)
    if argument.type is not None:
        element = _element(argument.type)
    elif argument.owner in ("event", "queue") and argument.part != "from":
        element = nb.from_dtype(np.dtype(_event_dtype(argument)))
    return types.Array(element, argument.dimensions, "C", readonly=argument.readonly)


def _element(type_: Type) -> Any:
    return nb.from_dtype(np.dtype(dtype(type_)))
