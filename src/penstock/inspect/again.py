"""A batch run again, on the version before it: what each of its events read and wrote.

    state        the version before, out of the log                               (store/replay.py)
    order        the batch's events as they ran                                   (engine.py)
    prefix       of a long batch, what is far before the event, natively          (engine.py)
    rounds       the rest by the reference, up to the event, told step by step    (standing.py)

It needs the app and the batch's events: a directory that was opened with log="input" or log="source" keeps them. What
comes of it has to be what the log says came of it, else it is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.commit import Disk, Journal, Segment
from penstock.engine import Engine
from penstock.errors import InputError, StateError
from penstock.execute.intake import EventBatch
from penstock.execute.order import PASSED, OrderedBatch
from penstock.execute.reference import Arrival
from penstock.inspect.standing import Standing, Step
from penstock.plan import flow
from penstock.plan.ir import Plan
from penstock.store.outcome_codec import from_log
from penstock.store.replay import Replay, recover
from penstock.store.segment import CALL, OUTCOMES

# The reference takes some 100 microseconds an event, and several times that where it is told step by step. What lies
# further than this before the event that is asked for runs natively.
NEAR = 1_000


@dataclass(frozen=True, slots=True)
class Ran:
    """A round: one event, or an atomic batch of them, or a timer; and all that it caused."""

    rows: list[dict[str, Any]]  # outcomes
    steps: list[Step]


class Again:
    """A batch of one version. Made anew for each: it goes on from the version before."""

    def __init__(self, plan: Plan, path: Path, version: int, disk: Disk | None = None) -> None:
        self.plan, self.version = plan, version
        journal = Journal.read_only(path, disk=disk)
        if journal.identity["app"] != plan.program.name:
            raise InputError(f"{path} is the state of app '{journal.identity['app']}', not of '{plan.program.name}'")
        self.segment = journal.batch(version)
        header = self.segment.header
        if header["log"] == "changes" or header.get("cause") in ("reset", "schema"):
            raise InputError(
                f'version {version} keeps no events to be run again: open the database with log="input", or a stream '
                'over files with log="source", and those that come are kept as long as their version is'
            )
        self._replay = Replay(Engine(plan), journal.identity, str(path))
        recover(journal, self._replay, version - 1)
        self.engine = self._replay.engine
        self.outcomes = _ran(self.segment, version)

    def rounds(self, upto: int | None = None) -> Iterator[Ran]:
        """The rounds, in the order in which they ran. upto: a row of the outcomes that ran; what lies far before it is
        left out, what follows its round too."""
        header, clock = self.segment.header, self._replay.stream.buffer.frontier
        events, ordered = self._events(clock)
        is_call, done = header.get("cause") == CALL, 0
        if upto is not None and upto > 2 * NEAR and not is_call and self._is_plain and "until" not in header:
            events, clock = self._native(events, ordered, upto - NEAR)
            ordered, done = self.engine.order(events, clock=clock), upto - NEAR
        standing = Standing(self.engine, self.version - 1, clock)
        standing.version = self.version
        for ran in _rounds(standing, ordered, header.get("until"), in_turn=is_call):
            for row in ran.rows:
                self._check(row, done)
                done += 1
            yield ran
            if upto is not None and done > upto:
                return

    def _events(self, clock: int | None) -> tuple[list[EventBatch], OrderedBatch]:
        segment, before = self.segment, self._replay.stream.buffer
        if segment.header["plan"] != self.engine.kernel.fingerprint:
            raise InputError(
                f"version {self.version} was made by other transactions than those of this app: they, or Penstock, "
                "have changed since; run it again with the code that made it"
            )
        if segment.header.get("cause") == CALL:
            events = self._replay._logged(segment, called=True)
            return events, self.engine.in_turn(events, clock)
        if segment.header.get("files") is None:
            events = self._replay._logged(segment)
        else:
            events = self._replay._read(segment, before)
        return events, self.engine.order(events, clock=clock, until=segment.header.get("until"))

    @property
    def _is_plain(self) -> bool:
        """Whether a row of the outcomes is an event of the batch."""
        program = self.plan.program
        return program.flow is None and not program.batches

    def _native(
        self, events: list[EventBatch], ordered: OrderedBatch, rows: int
    ) -> tuple[list[EventBatch], int | None]:
        """Runs the first so many events; the others, and the clock then."""
        first = np.flatnonzero(ordered.kind < PASSED)[:rows]
        masks = {self.plan.program.kind(one.event.name): np.zeros(one.table.num_rows, np.bool_) for one in events}
        for kind, mask in masks.items():
            mask[ordered.pos[first[ordered.kind[first] == kind]]] = True
        by_kind = [(one, masks[self.plan.program.kind(one.event.name)]) for one in events]
        prefix = self.engine.order([one.where(mask) for one, mask in by_kind], clock=ordered.clock)
        self.engine.replay(self.engine.encode(prefix), self.version)
        self.engine.end_batch()
        return [one.where(~mask) for one, mask in by_kind], prefix.clock_after

    def _check(self, row: dict[str, Any], place: int) -> None:
        """That it came to what it came to then."""
        if place >= self.outcomes.num_rows:
            raise _differs(self.version, "it causes more")
        then = self.outcomes.slice(place, 1).to_pylist()[0]
        for name in ("transaction", "status", "reason", "step"):
            if name in then and then[name] != row.get(name):
                raise _differs(self.version, f"'{name}' of row {place} is {row.get(name)!r}, and was {then[name]!r}")


def _differs(version: int, how: str) -> StateError:
    return StateError(
        f"version {version}, run again, comes to something else than its outcomes say: {how}; were they kept with "
        'steps="roots", or does a udf give other values now?'
    )


def _ran(segment: Segment, version: int) -> pa.Table:
    """The outcomes of what ran: neither late, nor a duplicate, nor rejected."""
    found = from_log(segment.parts[OUTCOMES], version)
    status = found.column("status").cast(pa.string()).to_numpy(zero_copy_only=False)
    places = np.flatnonzero((status == "committed") | (status == "aborted"))
    return found.take(pa.array(places)).append_column("$place", pa.array(places))


def _rounds(standing: Standing, ordered: OrderedBatch, until: int | None, *, in_turn: bool) -> Iterator[Ran]:
    due = _arrivals(standing, ordered)
    # Of calls each is taken when its turn comes: what has no ts of its own has that of the clock.
    turns = ([one] for one in due) if in_turn else (several for _, several in standing._turns(list(due), {}))
    for several in turns:
        yield from _timers(standing, max(standing._clock, *(one.ts for one in several)))
        outcomes = [standing._outcome(one) for one in several]
        values = [one.values for one in several]
        rows, _ = standing._round(several[0].event, values, outcomes, standing._clock, flow.MOST_EMITS)
        yield Ran(rows, standing.taken())
    if until is not None:
        yield from _timers(standing, max(standing._clock, until))


def _timers(standing: Standing, to: float) -> Iterator[Ran]:
    """Those that are due by then, one round for each."""
    rows = standing._run_timers(to)
    steps = standing.taken()
    while rows:
        count = next((k for k in range(1, len(rows)) if rows[k]["step"] == 0), len(rows))
        own, rows = rows[:count], rows[count:]
        taken, seen = 0, 0
        while seen < count:
            seen += len(steps[taken].values)
            taken += 1
        yield Ran(own, steps[:taken])
        steps = steps[taken:]


def _arrivals(standing: Standing, ordered: OrderedBatch) -> Iterator[Arrival]:
    """The events that ran, in order."""
    by_kind = {standing.program.kind(one.event.name): one for one in ordered.arrived}
    rows = {kind: one.table.to_pylist() for kind, one in by_kind.items()}
    for number, (kind, pos) in enumerate(zip(ordered.kind.tolist(), ordered.pos.tolist(), strict=True)):
        if kind < PASSED:
            event, values = by_kind[kind].event, rows[kind][pos]
            if event.order is not None and values.get(event.order) is None:
                values[event.order] = standing._first() if standing._clock == float("-inf") else standing._now()
            yield standing._arrival(event, values, number)
