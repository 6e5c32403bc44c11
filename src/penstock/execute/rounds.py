"""The law of a round: one event that has arrived, or an atomic batch of them, and all that it causes.

    round   the event; then, again and again, the least (rank, number) of what was emitted and has not run; where its
            transaction takes several, all of its type
    group   a transaction and the nested ones that it causes: one undo for all, the first abort ends it

rank is a transaction's place in the order of emits (plan/flow.py), number the order of emission. What is emitted and
not nested waits until its group has committed: an aborted group emitted nothing. What is emitted with at= is a timer
(timers.py): a round of its own, later. An app that emits nothing has rounds of one event.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from penstock.declare import objects
from penstock.declare.model import EventDef, Program
from penstock.declare.null import is_none
from penstock.errors import Aborted
from penstock.execute.uncompiled import Clock, EventView, Key, Row, Transaction, uncompiled
from penstock.execute.values import convert, lower
from penstock.execute.windows import Windows
from penstock.plan import flow


@dataclass(frozen=True, slots=True)
class Emitted:
    """An event that waits in its round, or for its time, or goes out; the first of a round has arrived."""

    event: EventDef
    values: dict[str, Any]
    number: int = 0
    step: int = 0  # of the row whose transaction emitted it
    at: Any = None  # of a timer: when it runs


@dataclass(frozen=True, slots=True)
class Round:
    """What came of one."""

    rows: list[dict[str, Any]]  # for each event that ran, in that order
    outputs: list[Emitted]
    timers: list[Emitted]


class Rounds:
    def __init__(self, program: Program, tables: dict[str, dict[Key, Row]]) -> None:
        self._program, self._tables = program, tables
        self._windows = Windows(program, uncompiled)
        self._written: dict[str, dict[Key, Any]] = {t.name: {} for t in program.tables}  # key -> the clock
        self._bodies = {t.event.name: uncompiled(t.function) for t in program.transactions}
        self._checks = {t.name: [(c.text, uncompiled(c.function)) for c in t.checks] for t in program.tables}
        self._returns = dict(program.returns)
        ranked = program.flow.ranked if program.flow is not None else self._bodies
        self._ranks = {name: rank for rank, name in enumerate(ranked)}

    def run(self, event: EventDef, several: list[dict[str, Any]], clock: Clock) -> Round:
        """several: the values of one event, or of the members of a batch."""
        self.expire(clock.now)
        rows: list[dict[str, Any]] = []
        outputs: list[Emitted] = []
        timers: list[Emitted] = []
        pending, emits = [Emitted(event, values) for values in several], 0
        while pending:
            left = clock.room - sum(one.at <= clock.until for one in timers)
            emitted = self._group(self._take_least(pending), rows, emits, replace(clock, room=left))
            emits += len(emitted)
            timers += [one for one in emitted if one.at is not None]
            now = [one for one in emitted if one.at is None]
            pending += [one for one in now if self._is_taken(one) and not self._is_nested(one)]
            outputs += [one for one in now if not self._is_taken(one)]
        return Round(rows, outputs, timers)

    def go_on(self, before: Rounds) -> None:
        """Take over the windows of an older schema, and since when its records are there."""
        for name, written in before._written.items():
            if name in self._written and any(t.name == name and t.ttl is not None for t in before._program.tables):
                self._written[name].update(written)
        for window in self._program.windows:
            if window in before._program.windows:
                self._windows.kept[window.name].update(before._windows.kept[window.name])

    def load(self, name: str, keys: Iterable[Key], clock: Any) -> None:
        """Records that came without a transaction; before anything has run nothing says since when they are there."""
        for key in keys:
            self._note(name, key, clock)

    def expire(self, clock: Any) -> None:
        """Delete the records that were not written for as long as their table says."""
        if clock is None:
            return
        for table in self._program.tables:
            written = self._written[table.name]
            for key in [key for key, at in written.items() if table.ttl is not None and clock - at >= table.ttl]:
                self._tables[table.name].pop(key, None)
                del written[key]

    def _note(self, name: str, key: Key, clock: Any) -> None:
        self._written[name].pop(key, None)
        if clock is not None:
            self._written[name][key] = clock

    def _group(self, root: list[Emitted], rows: list[dict[str, Any]], emits: int, clock: Clock) -> list[Emitted]:
        """Run a transaction and the nested ones that it causes; what they emitted. emits: of the round, before it."""
        first, inside, emitted = len(rows), [*root], list[Emitted]()
        transaction = Transaction(self._tables, self._windows, flow.MOST_EMITS - emits, clock)
        reason, fields = None, dict[str, Any]()
        try:
            while inside:
                several, before = self._take_least(inside), len(emitted)
                name, steps = self._name(several[0]), range(len(rows), len(rows) + len(several))
                rows += [{"transaction": name, "step": step, "status": "committed"} for step in steps]
                returned = self._member(several, transaction)
                rows[-len(several) :] = [row | returned for row in rows[-len(several) :]]
                for event, values, at in transaction.emitted[before:]:
                    emitted.append(Emitted(event, values, emits + len(emitted), steps[-1], at))
                inside += [new for new in emitted[before:] if new.at is None and self._is_nested(new)]
        except Aborted as abort:
            reason, fields = self._reason(abort)
        except ZeroDivisionError:
            reason = "division by zero"
        except BaseException:
            transaction.undo()
            raise
        if reason is None:
            for name, key in transaction.changed:
                self._note(name, key, clock.now)
            return emitted
        transaction.undo()
        rows[first:] = [
            {"transaction": row["transaction"], "step": row["step"], "status": "aborted", "reason": reason}
            for row in rows[first:]
        ]
        rows[-len(several) :] = [row | fields for row in rows[-len(several) :]]
        return []

    def _reason(self, abort: Aborted) -> tuple[str, dict[str, Any]]:
        """Why a transaction aborts, and the fields that it gives of that."""
        try:
            return abort.reason, self._converted(abort.fields)
        except Aborted as worse:
            return worse.reason, {}

    def _member(self, several: list[Emitted], transaction: Transaction) -> dict[str, Any]:
        """Run the body of one event, or of several, and the checks of what it wrote; what it returned."""
        event = several[0].event
        views = [EventView(event, one.values) for one in several]
        transaction.written.clear()
        token = objects.current.set(transaction)
        try:
            body = self._bodies[event.name]
            returned = self._converted(body(views if self._program.takes_several(event.name) else views[0]))
            self._check(transaction)
            return returned
        finally:
            objects.current.reset(token)

    def _converted(self, returned: Any) -> dict[str, Any]:
        return {
            name: None if is_none(value) else lower(convert(value, self._returns[name]))
            for name, value in ({} if is_none(returned) else returned).items()
        }

    def _check(self, transaction: Transaction) -> None:
        for name, key in transaction.written:
            if key not in self._tables[name]:
                continue
            for text, check in self._checks[name]:
                if not check(transaction.existing(self._program.table(name), key)):
                    raise Aborted(text)

    def _take_least(self, waiting: list[Emitted]) -> list[Emitted]:
        """The least (rank, number), or all of that rank, where they are one batch; in order."""
        least = min(waiting, key=lambda one: (self._ranks[one.event.name], one.number))
        name = least.event.name
        if not self._program.takes_several(name):
            waiting.remove(least)
            return [least]
        taken = [one for one in waiting if one.event.name == name]
        waiting[:] = [one for one in waiting if one.event.name != name]
        return taken

    def _is_taken(self, one: Emitted) -> bool:
        return one.event.name in self._bodies

    def _is_nested(self, one: Emitted) -> bool:
        return self._program.is_nested(one.event.name)

    def _name(self, one: Emitted) -> str:
        transaction = self._program.transaction_of(one.event)
        assert transaction is not None
        return transaction.name
