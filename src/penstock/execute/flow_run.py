"""A batch of an app that emits, while it runs: its rows of outcomes, and its queues, which both may have to grow.

A row is one step of a round: which event of the batch is its root, and which of the steps it is. The queue of an event
that a transaction takes is used anew in each round; an output's goes on through the batch. An event that can be emitted
may be called as well: then it is the root of its round, and lies in its queue behind the room for what is emitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from penstock.declare.model import Program, is_none
from penstock.execute.codegen.layout import FULL_FIRED, FULL_QUEUES, FULL_ROWS, NOBODY, Argument
from penstock.execute.order import OrderedBatch
from penstock.state.lanes import dtype

Lanes: TypeAlias = dict[str, Any]
_QUEUE = 64  # events that a queue has room for at first
# Rows that there is room for at first, beside two for each event. A kernel that finds none begins its round once more:
# a batch of one event would run twice or three times.
_ROWS = 16


@dataclass(frozen=True, slots=True)
class Steps:
    """Of each row of the outcomes, in the order run."""

    kind: Any  # uint8: which event of the program; PASSED is added as in OrderedBatch
    root: Any  # int64: the place in the batch of the event that caused it; -1 - n: the n-th timer that ran
    step: Any  # int32: which of those that the root caused; itself is 0


@dataclass(frozen=True, slots=True)
class Fired:
    """The timers that a batch has run, in that order."""

    at: Any
    id: Any = None  # where events have ids: that of the event at the root of the round that set it
    named: Any = None  # whether it has one


@dataclass(frozen=True, slots=True)
class Output:
    """What a batch emitted of an event that no transaction takes."""

    rows: Any  # int64: the rows of the outcomes that it was emitted by
    lanes: dict[str, Any]  # those of the event (EventDef.lanes) -> values


def places(program: Program, batch: OrderedBatch) -> tuple[Any, Any]:
    """The kind of each event and its row. Where the clock is set by hand, timers run at a place behind the last."""
    if batch.until is None or not program.timers:
        return batch.kind, batch.pos
    return np.append(batch.kind, np.uint8(NOBODY)), np.append(batch.pos, 0)


class FlowRun:
    def __init__(self, program: Program, arguments: tuple[Argument, ...], batch: OrderedBatch, lanes: Lanes) -> None:
        self._program, (self._kind, self._pos) = program, places(program, batch)
        rows = 2 * batch.count + _ROWS
        self._rows = {a.name: np.zeros(rows, _dtype(a)) for a in arguments if a.owner in ("rows", "out")}
        self._fired = {a.name: np.zeros(_QUEUE, _dtype(a)) for a in arguments if a.owner == "fired"}
        self._counts = np.zeros(2, np.int64)  # timers that have run; and of those set on the way to the next event
        self._nullable = {
            f"ok{number}_{f.name}" for number, e in enumerate(program.events) for f in e.fields if f.nullable
        }
        self._queues: dict[int, dict[str, Any]] = {}
        for a in arguments:
            if a.owner == "queue":
                # What is emitted is given, but for what may be None.
                size = 0 if a.part.startswith("valid") and a.name not in self._nullable else _QUEUE
                self._queues.setdefault(program.kind(a.of), {})[a.name] = np.zeros(size, _dtype(a))
        # Of rows first, and then of each event's queue: how many there are, and how many there is room for.
        self._used = np.zeros(1 + len(program.events), np.int64)
        self._room = np.full(self._used.size, _QUEUE, np.int64)
        self._room[0] = rows
        called = [number for number in self._queues if program.events[number] in [a.event for a in batch.arrived]]
        self._called = {number: {name: lanes[name] for name in self._queues[number]} for number in called}
        for number in called:
            self._lay_behind(number, _QUEUE)

    def arguments(self) -> dict[str, Any]:
        out = {"used": self._used, "room": self._room, "pos": self._pos, **self._rows}
        for lanes in self._queues.values():
            out |= lanes
        return out | self._fired | {"fired": self._counts} if self._fired else out

    def grow(self, what: int) -> None:
        """Make twice the room; what: as the kernel says it in info[0]."""
        if what == FULL_FIRED:
            self._fired = {name: np.concatenate([lane, np.zeros_like(lane)]) for name, lane in self._fired.items()}
            return
        number = 0 if what == FULL_ROWS else 1 + FULL_QUEUES - what
        lanes = self._rows if number == 0 else self._queues.get(number - 1, {})
        for name, lane in lanes.items():
            lanes[name] = np.concatenate([lane, np.zeros_like(lane)])
        self._room[number] *= 2
        if number - 1 in self._called:
            self._lay_behind(number - 1, int(self._room[number]) // 2)

    def _lay_behind(self, number: int, more: int) -> None:
        """Called events lie behind the room for those that are emitted, which has grown by so many."""
        room, lanes = int(self._room[number + 1]), self._queues[number]
        for name, called in self._called[number].items():
            emitted = lanes[name][:room]
            if name in self._nullable:
                count = max(lane.size for lane in self._called[number].values())
                lanes[name] = np.concatenate([emitted, called if called.size else np.ones(count, np.bool_)])
            elif name.startswith("ok"):  # empty where all are given, as what is emitted is
                lanes[name] = np.concatenate([np.ones(room, np.bool_), called]) if called.size else called
            else:
                lanes[name] = np.concatenate([emitted, called])
        self._pos = np.where(self._kind == number, self._pos + more, self._pos)

    def code(self) -> Any:
        return self._of_rows("code")

    def fields(self) -> tuple[tuple[Any, Any], ...]:
        return tuple((self._of_rows(f"o{k}"), self._of_rows(f"h{k}")) for k in range(len(self._program.lanes)))

    def steps(self) -> Steps:
        return Steps(*(self._of_rows(name) for name in ("row_kind", "row_root", "row_step")))

    def fired(self) -> Fired | None:
        lanes = [self._fired.get(name) for name in ("fired_at", "fired_id", "fired_named")]
        return Fired(*(None if lane is None else lane[: self._counts[0]] for lane in lanes)) if self._fired else None

    def outputs(self) -> dict[str, Output]:
        out = {}
        for event in self._program.outputs():
            number = self._program.kind(event.name)
            lanes, n = self._queues[number], int(self._used[number + 1])
            values = {f.name: lanes[f"e{number}_{f.name}"][:n] for f in event.fields}
            values |= {is_none(f.name): ~lanes[f"ok{number}_{f.name}"][:n] for f in event.fields if f.nullable}
            out[event.name] = Output(lanes[f"from{number}"][:n], values)
        return out

    def _of_rows(self, name: str) -> Any:
        return self._rows[name][: self._used[0]]


def _dtype(argument: Argument) -> Any:
    if argument.type is not None:
        return dtype(argument.type)
    part = argument.part.split(" ")[0]
    return {"code": np.int32, "kind": np.uint8, "step": np.int32, "given": np.bool_, "valid": np.bool_}.get(
        part, np.int64
    )
