"""A process that opens the directory and writes: batches with and without an id, loads; it closes, opens again, is
refused, goes on after an error or starts anew. And another one that opens it meanwhile, or after somebody has removed
the lock."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from simulation.app import BatchRequest, Event, Row
from simulation.choices import Choices
from simulation.oracle import PATH, Oracle
from simulation.readers import read_beside
from simulation.scheduler import Process
from simulation.session import Options, Refused, Session

ACCOUNTS = ("a", "b", "c")
NOTES = (1, 2)


@dataclass(slots=True)
class Plan:
    """What is left to be written, whichever process does it."""

    choices: Choices
    batches: int
    readers: int  # beside the writer, in its process
    watermark: int | None
    with_ids: bool
    ts: int = 0
    loads: int = 0
    last: BatchRequest | None = None
    planned: dict[int, BatchRequest] = field(default_factory=dict)  # a stream's batches, by id
    plans: int = 0  # made so far
    done: int = -1  # the last batch of the stream that its driver has noted as done

    def batch(self) -> tuple[Event, ...]:
        return tuple(self.event() for _ in range(self.choices.below(4)))

    def event(self) -> Event:
        choices = self.choices
        self.ts += choices.below(3)
        ts = max(self.ts - choices.below(4), 0)
        kind = choices.of(("Add", "Add", "Add", "Mark", "Drop"))
        if kind == "Add":
            return kind, ts, choices.of(ACCOUNTS), choices.between(1, 8) - 3
        if kind == "Mark":
            return kind, ts, choices.of(NOTES), f"t{self.ts}"
        return kind, ts, choices.of(ACCOUNTS)

    def load(self) -> BatchRequest:
        """Keys that nothing else makes, so that they are new."""
        self.loads += 1
        rows: tuple[Row, ...] = ((f"l{self.loads}", self.loads),)
        return BatchRequest(load=("Account", rows))


def options(choices: Choices) -> Options:
    return Options(
        retain=choices.of((0, 1, 2, 4)),
        snapshot_every=choices.of((3, 2, 1, 50)),
        background=choices.below(4) > 0,
        log="input" if choices.once_in(6) else "changes",
        scrub=choices.of((0, 0, 0.01)),
    )


class Writer:
    def __init__(self, oracle: Oracle, process: Process, options: Options, plan: Plan) -> None:
        self.oracle, self.process, self.options, self.plan = oracle, process, options, plan
        self.choices = oracle.machine.choices
        self.session = Session(oracle, process, options)

    def work(self) -> None:
        """Until nothing is left to be written, or the process dies."""
        scheduler = self.oracle.machine.scheduler
        while self.plan.batches > 0:
            self.session = Session(self.oracle, self.process, self.options)
            try:
                self.session.open()
            except Refused:
                scheduler.sleep(20)
                continue
            for k in range(self.plan.readers):
                read_beside(self.session, k)
            with suppress(Refused):
                self.write()
            self.session.close()

    def look_at_all(self) -> None:
        """At the end, what only this kind of writer leaves."""

    def write(self) -> None:
        choices, plan = self.choices, self.plan
        while plan.batches > 0:
            try:
                self.act()
            except Refused:
                if choices.below(3) == 0:
                    return
            if choices.once_in(12):
                return
            if choices.once_in(4):
                self.oracle.machine.scheduler.sleep(choices.between(1, 60))

    def second(self) -> None:
        """The same process opens the directory once more, and must not get it."""
        session = Session(self.oracle, self.process, self.options)
        with suppress(Refused):
            session.open()
        if session.db is not None:
            self.oracle.check(self.oracle.removals > 0, "a directory is opened twice")
            session.close()

    def act(self) -> None:
        choices, plan, session = self.choices, self.plan, self.session
        how = choices.below(10)
        if how == 6 and choices.once_in(4):
            self.second()
        elif how == 8:
            session.load(plan.load())
        elif how == 9 and plan.last is not None and self.oracle.commits[session.handle.acked].last_id == plan.last.id:
            session.run(plan.last)
        elif how == 7:
            session.judge_newest()
        else:
            plan.batches -= 1
            last_id = self.oracle.commits[session.handle.acked].last_id
            id = None
            if plan.with_ids and choices.below(4):
                id = (-1 if last_id is None else last_id) + 1 + choices.below(2)
            watermark = plan.watermark if choices.below(8) else None
            asked = BatchRequest(
                plan.batch(), id, watermark=watermark, flush=plan.watermark is not None and choices.once_in(8)
            )
            if id is not None:
                plan.last = asked
            session.run(asked)


class Intruder(Writer):
    """Opens the directory if it can, writes a little, and goes. `removing` it first takes the lock's file away, so that
    there are two writers until one of them is fenced."""

    def intrude(self, removing: bool, writing: bool) -> None:
        oracle = self.oracle
        if removing and oracle.opened:
            try:
                oracle.machine.files.unlink(PATH / "writer.lock")
            except FileNotFoundError:
                return
            oracle.removals += 1
            oracle.machine.note("removes writer.lock")
        with suppress(Refused):
            self.session.open()
            for _ in range(self.choices.of((0, 1, 2, 6)) if writing else 0):
                self.session.run(BatchRequest(self.plan.batch()))
        if self.session.db is not None:
            self.session.close()
