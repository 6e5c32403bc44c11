"""Tasks that take turns. Each is a thread, but only the one that holds the baton runs.

A task gives the baton away where it pauses: before each operation of its disk, where it waits for a mutex, for another
task or for a time, and at its end. Who gets it is a choice, by one of these strategies:

    random      any task that can run, every time
    runs        the same task goes on, with few switches (one in 4, one in 16 or one in 64)
    priorities  the task of the highest priority runs; now and then it falls to the lowest

Nothing else decides what happens next, so that a history depends on its choices alone.

The clock counts pauses. When nobody can run, it leaps to the next who sleeps; when nobody sleeps either, that is a
deadlock. Tasks of a process that died run first, and every pause raises `Crashed` in them until they end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from simulation.choices import Choices

STRATEGIES = ("runs 64", "runs 16", "runs 4", "random", "priorities")
# Far more than any history takes: who is still running then retries for ever.
STEPS_MAX = 300_000


class Crashed(BaseException):
    """Raised in every task of a process that died: it can change nothing any more."""


class Wrong(AssertionError):
    """A history that must not be."""


class Process:
    """What dies as a whole."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.faults = 0  # that were put into its operations


class Task:
    def __init__(self, name: str, process: Process, work: Callable[[], None], priority: int) -> None:
        self.name, self.process, self.work, self.priority = name, process, work, priority
        self.baton = threading.Lock()
        self.baton.acquire()
        self.ready, self.done = True, False
        self.waits: Any = None  # for what
        self.wakes: int | None = None  # at what time
        self.joined: list[Task] = []  # who waits for its end
        self.faults = 0


class Scheduler:
    def __init__(self, choices: Choices, strategy: str) -> None:
        self.choices = choices
        self.clock = self.steps = 0
        self.failure: BaseException | None = None
        self.current: Task | None = None
        self._tasks: list[Task] = []
        self._run_length = {"runs 64": 64, "runs 16": 16, "runs 4": 4}.get(strategy, 1)
        self._by_priority = strategy == "priorities"
        self._lowest = 0
        self._dead = False  # whether a process died whose tasks have not ended yet
        self._main = threading.Lock()
        self._main.acquire()

    # -- tasks ------------------------------------------------------------------------------

    def spawn(self, process: Process, name: str, work: Callable[[], None]) -> Task:
        task = Task(name, process, work, self.choices.below(1000) if self._by_priority else 0)
        self._tasks.append(task)
        _in_a_thread(partial(self._live, task))
        return task

    def run(self) -> None:
        """Until every task has ended; raises what was wrong."""
        first = self._next(None)
        if first is not None:
            self._hand(first)
            self._main.acquire()
        if self.failure is not None:
            raise self.failure

    def _live(self, task: Task) -> None:
        task.baton.acquire()
        try:
            if not task.process.dead and self.failure is None:
                task.work()
        except Crashed:
            pass
        except BaseException as error:
            self.fail(error)
        task.done, task.ready = True, False
        for other in task.joined:
            self._wake(other)
        self._tasks.remove(task)
        following = self._next(task)
        if following is None:
            self._main.release()
        else:
            self._hand(following)

    def fail(self, error: BaseException) -> None:
        """The first is what was wrong; all tasks then end as if the machine had died."""
        if self.failure is None:
            self.failure = error
        for task in self._tasks:
            task.process.dead = True
            self._wake(task)
        self._dead = True

    def kill(self, process: Process) -> None:
        process.dead = self._dead = True
        for task in self._tasks:
            if task.process is process:
                self._wake(task)

    # -- pauses -----------------------------------------------------------------------------

    def pause(self) -> None:
        """Perhaps another task runs first."""
        me = self.current
        assert me is not None
        if me.process.dead:
            raise Crashed
        self.clock += 1
        self.steps += 1
        if self.steps > STEPS_MAX:
            self.wrong(Wrong(f"{self.steps} steps, and no end: {self._who()}"))
        if self._run_length == 1 or self._dead or self.choices.once_in(self._run_length):
            self._switch(me)

    def sleep(self, ticks: int) -> None:
        me = self._must_live()
        me.ready, me.wakes, me.waits = False, self.clock + ticks, "a time"
        self._switch(me)

    def wait(self, task: Task) -> None:
        """Until the task has ended."""
        me = self._must_live()
        while not task.done:
            task.joined.append(me)
            self.block(f"the end of {task.name}")

    def block(self, waits: Any) -> None:
        """Until somebody wakes this task."""
        me = self._must_live()
        me.ready, me.waits = False, waits
        self._switch(me)

    def wake(self, tasks: list[Task]) -> None:
        for task in tasks:
            self._wake(task)

    def _must_live(self) -> Task:
        me = self.current
        assert me is not None
        if me.process.dead:
            raise Crashed
        return me

    def _wake(self, task: Task) -> None:
        if not task.done:
            task.ready, task.waits, task.wakes = True, None, None

    def _switch(self, me: Task) -> None:
        following = self._next(me)
        assert following is not None
        if following is not me:
            self._hand(following)
            me.baton.acquire()
        if me.process.dead:
            raise Crashed

    def _hand(self, task: Task) -> None:
        self.current = task
        task.baton.release()

    # -- who is next ------------------------------------------------------------------------

    def _next(self, me: Task | None) -> Task | None:
        """None when there are no tasks left."""
        if self._dead:
            for task in self._tasks:
                if task.process.dead:
                    return task
            self._dead = False
        clock = self.clock
        ready = []
        for task in self._tasks:
            if task.wakes is not None and task.wakes <= clock:
                self._wake(task)
            if task.ready:
                ready.append(task)
        if not ready:
            return self._leap(me)
        if len(ready) == 1:
            return ready[0]
        if self._by_priority:
            return self._highest(ready, me)
        if me is not None and me.ready:  # so that 0 is to go on
            ready.remove(me)
            ready.insert(0, me)
        return self.choices.of(ready)

    def _highest(self, ready: list[Task], me: Task | None) -> Task:
        if me is not None and me.ready and self.choices.once_in(50):
            self._lowest -= 1
            me.priority = self._lowest
        return max(ready, key=lambda task: task.priority)

    def _leap(self, me: Task | None) -> Task | None:
        sleeping = [task for task in self._tasks if task.wakes is not None]
        if sleeping:
            self.clock = min(task.wakes for task in sleeping if task.wakes is not None)
            return self._next(me)
        if not self._tasks:
            return None
        self.fail(Wrong(f"nobody can run: {self._who()}"))
        return self._next(me)

    def _who(self) -> str:
        return "; ".join(
            f"{task.name} " + (f"waits for {task.waits}" if task.waits else "could run") for task in self._tasks
        )

    def wrong(self, error: BaseException) -> NoReturn:
        self.fail(error)
        raise Crashed


class _Thread:
    """Does one piece of work after the other: a history has many short tasks, and to start a thread takes as long as
    several operations."""

    idle: list[_Thread] = []

    def __init__(self) -> None:
        self.given = threading.Lock()
        self.given.acquire()
        self.work: Callable[[], None] = lambda: None
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            self.given.acquire()
            self.work()
            self.idle.append(self)


def _in_a_thread(work: Callable[[], None]) -> None:
    thread = _Thread.idle.pop() if _Thread.idle else _Thread()
    thread.work = work
    thread.given.release()


class SimulatedMutex:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._owner: Task | None = None
        self._waiting: list[Task] = []

    def acquire(self) -> bool:
        scheduler = self._scheduler
        scheduler.pause()
        while self._owner is not None:
            self._waiting.append(scheduler.current)  # type: ignore[arg-type]
            scheduler.block(f"a mutex of {self._owner.name}")
        self._owner = scheduler.current
        return True

    def release(self) -> None:
        self._owner = None
        waiting, self._waiting = self._waiting, []
        self._scheduler.wake(waiting)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class SimulatedThread:
    """What is used of threading.Thread."""

    def __init__(self, scheduler: Scheduler, task: Task) -> None:
        self._scheduler, self._task = scheduler, task

    def join(self) -> None:
        self._scheduler.wait(self._task)

    def is_alive(self) -> bool:
        self._scheduler.pause()
        return not self._task.done
