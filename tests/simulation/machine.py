"""The machine: its file system and its processes, and what goes wrong with them.

Before each operation of a disk, by choice:

    kill        the process dies here, with all its tasks; what it has written can still be read
    power       all processes die, and the file system keeps what it must, and some of what it may
    fault       the operation fails: EIO, ENOSPC, EMFILE; once, or until some time has passed. It was not done, or it
                was done and nobody says so
    slow        an fsync takes its time, and others run meanwhile

How often is chosen for each history; and a history has no more than a few of each, so that it gets somewhere.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from simulation.choices import Choices
from simulation.files import ORDERS, FileSystem
from simulation.scheduler import STRATEGIES, Crashed, Process, Scheduler

# Which errors an operation may have, by the name that `Disk.step` gets.
ERRORS = {
    "create": (errno.EIO, errno.ENOSPC, errno.EMFILE),
    "open": (errno.EIO, errno.EMFILE),
    "write": (errno.EIO, errno.ENOSPC),
    "sync": (errno.EIO, errno.ENOSPC),
    "read": (errno.EIO,),
    "link": (errno.EIO, errno.ENOSPC),
    "rename": (errno.EIO, errno.ENOSPC),
    "remove": (errno.EIO,),
    "list": (errno.EIO, errno.EMFILE),
    "look at": (errno.EIO,),
    "cut": (errno.EIO,),
    "set the mode of": (errno.EIO,),
}
READING = {"open", "read", "list", "look at"}
# What a full disk refuses.
GROWING = {"create", "write", "link"}


@dataclass(frozen=True, slots=True)
class Weather:
    """How often things go wrong: once in so many operations, 0 for never."""

    kill: int = 0
    power: int = 0
    fault: int = 0
    slow: int = 0
    crashes_max: int = 4
    faults_max: int = 6

    @classmethod
    def choose(cls, choices: Choices) -> Weather:
        return cls(
            kill=choices.of((0, 0, 300, 100)),
            power=choices.of((0, 0, 300, 100)),
            fault=choices.of((0, 0, 0, 200, 60)),
            slow=choices.of((0, 8)),
        )


@dataclass(slots=True)
class Fault:
    number: int
    done: bool  # whether the operation was done all the same


@dataclass(slots=True)
class Counts:
    operations: int = 0
    crashes: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)


class Machine:
    def __init__(self, choices: Choices, weather: Weather | None = None, *, tracing: bool = False) -> None:
        self.choices = choices
        self.scheduler = Scheduler(choices, choices.of(STRATEGIES))
        self.files = FileSystem(choices, choices.of(ORDERS))
        self.weather = Weather.choose(choices) if weather is None else weather
        self.counts = Counts()
        self.processes: list[Process] = []
        self.descriptors = count(1 << 30)  # as no real one is
        self.locked: Counter[Process] = Counter()  # how often each got a lock
        self.trace: list[str] | None = [] if tracing else None
        self.calm = False  # nothing goes wrong any more
        # Who wants to know of it: of a new name, of a name that is gone, and of what is left after a loss of power.
        self.linked: Callable[[Path], None] = _nobody
        self.renamed: Callable[[Path], None] = _nobody
        self.removed: Callable[[Path], None] = _nobody
        self.lost_power: Callable[[], None] = _nobody
        self._full_until = 0
        self._crashes = self._faults = 0

    def process(self, name: str) -> Process:
        made = Process(name)
        self.processes = [p for p in self.processes if not p.dead] + [made]
        return made

    def operation(self, process: Process, what: str, path: Path) -> Fault | None:
        """One is about to be done: others may run first, and it may go wrong."""
        self.scheduler.pause()
        self.counts.operations += 1
        if self.trace is not None:
            self.note(f"{what} {path}")
        if self.calm:
            return None
        weather, choices = self.weather, self.choices
        if self._crashes < weather.crashes_max:
            if weather.kill and choices.once_in(weather.kill if what not in READING else 4 * weather.kill):
                self.kill(process)
            if weather.power and choices.once_in(weather.power if what not in READING else 4 * weather.power):
                self.lose_power()
        if weather.slow and what == "sync" and choices.once_in(weather.slow):
            self.counts.faults["slow"] += 1
            self.scheduler.sleep(choices.between(5, 200))
        return self._fault(process, what)

    def _fault(self, process: Process, what: str) -> Fault | None:
        number, done = 0, False
        if self.scheduler.clock < self._full_until and what in GROWING:
            number = errno.ENOSPC
        elif self.weather.fault and self._faults < self.weather.faults_max and self.choices.once_in(self.weather.fault):
            self._faults += 1
            number, done = self.choices.of(ERRORS[what]), bool(self.choices.below(2))
            if number == errno.ENOSPC and self.choices.below(2):
                self._full_until = self.scheduler.clock + self.choices.between(20, 500)
        if not number:
            return None
        name = errno.errorcode[number]
        self.note(f"  {name}" + (", but it was done" if done else ""))
        self.counts.faults[name] += 1
        process.faults += 1
        current = self.scheduler.current
        assert current is not None
        current.faults += 1
        return Fault(number, done)

    def kill(self, process: Process) -> None:
        """In a task of that process, it raises."""
        self._crashes += 1
        self.counts.crashes["kill"] += 1
        self.note(f"  {process.name} is killed")
        self._die(process)
        current = self.scheduler.current
        if current is not None and current.process is process:
            raise Crashed

    def lose_power(self) -> None:
        self._crashes += 1
        self.counts.crashes["power"] += 1
        self.note("  the power is lost")
        for process in self.processes:
            self._die(process)
        self.files.lose_power()
        self.lost_power()
        raise Crashed

    def _die(self, process: Process) -> None:
        self.scheduler.kill(process)
        self.files.locks = {number: who for number, who in self.files.locks.items() if who[0] is not process}

    def note(self, text: str) -> None:
        if self.trace is not None:
            current = self.scheduler.current
            self.trace.append(f"{self.scheduler.clock:6d} {current.name if current else '':22} {text}")


def _nobody(*_: object) -> None:
    pass


def error(number: int, path: Path) -> OSError:
    return OSError(number, os.strerror(number), str(path))
