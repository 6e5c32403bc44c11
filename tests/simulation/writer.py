"""A process that opens the directory and writes: batches with and without an id, loads; it closes, opens again, is
refused, goes on after an error or starts anew."""

from __future__ import annotations

from dataclasses import dataclass, field

from simulation.app import Asked, Event, Row
from simulation.choices import Choices
from simulation.oracle import Oracle
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
    last: Asked | None = None
    source: str | None = None
    planned: dict[int, Asked] = field(default_factory=dict)  # a stream's batches, by id
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

    def load(self) -> Asked:
        """Keys that nothing else makes, so that they are new."""
        self.loads += 1
        rows: tuple[Row, ...] = ((f"l{self.loads}", self.loads),)
        return Asked(load=("Account", rows))


def options(choices: Choices) -> Options:
    return Options(
        retain=choices.of((0, 1, 2, 4)),
        snapshot_every=choices.of((3, 2, 1, 50)),
        background=choices.below(4) > 0,
        log="input" if choices.once_in(6) else "changes",
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
            self.write()
            self.session.close()

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

    def act(self) -> None:
        choices, plan, session = self.choices, self.plan, self.session
        how = choices.below(10)
        if how == 8:
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
            asked = Asked(plan.batch(), id, watermark=watermark, flush=plan.watermark is not None and choices.once_in(8))
            if id is not None:
                plan.last = asked
            session.run(asked)
