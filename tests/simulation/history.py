"""One history: its options and its processes, by choice; then a calm end, at which everything is looked at again."""

from __future__ import annotations

import gc
import itertools
import logging
import random
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any
from unittest.mock import patch

from penstock import engine
from penstock.check.scrub import Scrub
from penstock.execute.native import Kernel
from penstock.schedule.policy import Policy, RunSummary
from penstock.store import durable as store
from simulation.app import TABLES, app
from simulation.choices import Choices
from simulation.driver import Driver
from simulation.machine import Counts, Machine, Weather
from simulation.oracle import PATH, Oracle
from simulation.readers import Beside, Elsewhere
from simulation.scheduler import Process
from simulation.session import Options
from simulation.writer import Intruder, Plan, Writer, options


@dataclass(frozen=True, slots=True)
class Focus:
    """What is not left to choice, so that something rare is met more often."""

    weather: Weather | None = None
    writer: type[Writer] | None = None
    intruders: bool = False


@dataclass(slots=True)
class Result:
    seed: int
    focus: Focus
    counts: Counts
    choices: list[int]
    commits: int = 0
    answers: int = 0
    wrong: BaseException | None = None
    trace: list[str] = field(default_factory=list)


class Serial:
    """A Scheduler that measures nothing: batches are small, and a history must not depend on the real clock."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def run(self, running: Any, policy: Policy) -> RunSummary:
        self._kernel.run(running)
        return RunSummary(Policy.serial(), "as asked")

    def close(self) -> None:
        pass


@cache
def _kernel() -> Kernel:
    return Kernel(app.plan)


class Log(logging.Handler):
    """What Penstock logs: an error is one of a process that had a fault, or a rival."""

    def __init__(self, oracle: Oracle) -> None:
        super().__init__()
        self._oracle = oracle

    def emit(self, record: logging.LogRecord) -> None:
        task = self._oracle.machine.scheduler.current
        self._oracle.machine.note(f"  logs: {record.getMessage()}")
        if record.exc_info and task is not None and not task.process.faults and not self._oracle.removals:
            self._oracle.wrong(f"{record.getMessage()}: {record.exc_info[1]!r}")


@contextmanager
def logged(oracle: Oracle) -> Iterator[None]:
    logger, handler = logging.getLogger("penstock"), Log(oracle)
    logger.addHandler(handler)
    try:
        with patch.object(logger, "propagate", False):
            yield
    finally:
        logger.removeHandler(handler)


@contextmanager
def deterministic(machine: Machine) -> Iterator[None]:
    """What a database takes from elsewhere than its disk: its kernel, made once; tokens; the time and the order of a
    scrub; and when what lies in cycles is thrown away."""
    scheduler, count = machine.scheduler, itertools.count(1)

    def token(n: int) -> str:
        return f"{next(count):08x}" * (n // 4)

    def wait(seconds: float) -> bool:
        scheduler.pause()
        return False

    def clock() -> float:
        return scheduler.clock  # so that the first scrub is due after 300 operations

    def scrub(*arguments: Any) -> Scrub:
        return Scrub(*arguments, clock=clock, wait=wait, chance=random.Random(machine.choices.seed))

    with (
        patch.object(engine, "Kernel", lambda plan: _kernel().twin()),
        patch.object(engine, "Scheduler", Serial),
        patch.object(store, "Scrub", scrub),
        patch.object(secrets, "token_hex", token),
    ):
        gc.disable()
        try:
            yield
        finally:
            gc.enable()


class History:
    def __init__(
        self, seed: int, given: Sequence[int] | None = None, focus: Focus | None = None, *, tracing: bool = False
    ) -> None:
        self.choices = Choices(seed, given)
        self.focus = focus or Focus()
        self.machine = Machine(self.choices, self.focus.weather, tracing=tracing)
        self.oracle = Oracle(self.machine)
        self.operator = Process("operator")  # never dies
        self.machine.files.mkdir(PATH.parent)
        self.machine.files.fsync_dir(self.machine.files.root)

    def run(self) -> Result:
        choices = self.choices
        result = Result(choices.seed, self.focus, self.machine.counts, choices.made)
        with deterministic(self.machine), logged(self.oracle):
            self.machine.scheduler.spawn(self.operator, "operator", self._operate)
            try:
                self.machine.scheduler.run()
            except BaseException as error:
                if not isinstance(error, Exception):
                    raise
                result.wrong = error
        result.commits, result.answers = self.oracle.linked, self.oracle.judged
        result.trace = self.machine.trace or []
        return result

    def _operate(self) -> None:
        choices, scheduler = self.choices, self.machine.scheduler
        plan = Plan(
            choices,
            batches=choices.between(2, 7),
            readers=choices.below(3),
            watermark=choices.of((None, None, 2)),
            with_ids=bool(choices.below(2)),
        )
        opened = options(choices)
        kind = self.focus.writer or choices.of((Writer, Writer, Driver))
        roles = [scheduler.spawn(self.operator, "the writers", partial(self._writers, kind, plan, opened))]
        for k in range(choices.below(3)):
            roles.append(scheduler.spawn(self.operator, f"the readers {k}", partial(self._readers, k)))
        if self.focus.intruders or choices.once_in(5):
            roles.append(scheduler.spawn(self.operator, "the intruders", partial(self._intruders, kind, plan, opened)))
        for role in roles:
            scheduler.wait(role)
        self.machine.calm = True
        self._in_a_process("last", partial(self._look_at_all, kind, plan, opened))

    def _in_a_process(self, name: str, work: Callable[[Process], None]) -> Process:
        """Until it has ended, or died."""
        process = self.machine.process(name)
        scheduler = self.machine.scheduler
        scheduler.wait(scheduler.spawn(process, name, partial(work, process)))
        return process

    def _writers(self, kind: type[Writer], plan: Plan, opened: Options) -> None:
        life = 0
        while plan.batches > 0:
            life += 1
            self._in_a_process(f"writer {life}", lambda p: kind(self.oracle, p, opened, plan).work())

    def _intruders(self, kind: type[Writer], plan: Plan, opened: Options) -> None:
        """A stream's versions are its own: there nobody else writes."""
        writing = kind is Writer
        for life in range(1 + self.choices.below(2)):
            self.machine.scheduler.sleep(self.choices.between(40, 400))
            removing = bool(self.choices.below(2))
            self._in_a_process(
                f"intruder {life}", lambda p, r=removing: Intruder(self.oracle, p, opened, plan).intrude(r, writing)
            )

    def _readers(self, k: int) -> None:
        for life in range(1 + self.choices.below(2)):
            count = self.choices.between(1, 4)
            self._in_a_process(f"reader {k}.{life}", lambda p, n=count: Elsewhere(self.oracle, p).work(n))

    def _look_at_all(self, kind: type[Writer], plan: Plan, opened: Options, process: Process) -> None:
        """Nothing goes wrong any more: what is retained must be there."""
        oracle, last = self.oracle, kind(self.oracle, process, opened, plan)
        session = last.session
        session.open()
        asker, reader = Beside(session), Elsewhere(oracle, process)
        since = oracle.since(session.handle)
        version = self.choices.between(oracle.floor, oracle.newest.version)
        view = session.db.view(version)
        for name in TABLES:
            asker.judge_table(name, version, view.tables[name], since)
        for questions in (asker.questions(), reader.questions()):
            self.choices.of(questions)()
        last.look_at_all()
        session.close()
        oracle.check(not session.disk.open_files and not reader.disk.open_files, "files are left open")


def run(seed: int, given: Sequence[int] | None = None, focus: Focus | None = None, *, tracing: bool = False) -> Result:
    return History(seed, given, focus, tracing=tracing).run()
