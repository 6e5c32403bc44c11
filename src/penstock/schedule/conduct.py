"""A batch under a policy: serially, by its graph, or under locks; `adaptive` looks at the batch and chooses.

An event whose records cannot be foreseen runs alone: what comes before it runs first, what comes after it last.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.execute.native import Kernel, Running, cache_directory
from penstock.execute.order import order
from penstock.plan.foresee import foresee
from penstock.schedule.choose import LITTLE, Choice, Chooser, Features, too_little
from penstock.schedule.costs import Costs
from penstock.schedule.locked import Locked
from penstock.schedule.policy import LOCKING, Policy
from penstock.schedule.versioned import Versioned
from penstock.state.tables import Tables

# The first events of a batch, run serially, tell what one costs: few if they are dear; in a small batch, none.
_SAMPLES, _SAMPLED = (16, 256), 2048
# A batch tells what an event costs if it is not so small that calling the kernel is most of it.
_TELLING, _TELLS = 512, 2e-3


@dataclass(frozen=True, slots=True)
class Conducted:
    """How a batch was run."""

    policy: Policy
    why: str
    spent: dict[str, float] = field(default_factory=dict)  # thread-seconds by what they went to


class Conductor:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        numbers = {e.name: n for n, e in enumerate(kernel.plan.program.events)}
        self.unforeseen = [numbers[t.event] for t in kernel.plan.transactions if foresee(t) is None]
        self.chooser = Chooser(Costs(cache_directory()))
        self.cost: float | None = None  # seconds of one event, lately
        self.abort_ratio = 0.0
        self._versioned: Versioned | None = None
        self._warm = False
        self._broken = ""
        self._compiling: threading.Thread | None = None
        self._locked: Locked | None = None

    @property
    def versioned(self) -> Versioned:
        if self._versioned is None:
            self._versioned = Versioned(self.kernel)
        return self._versioned

    @property
    def locked(self) -> Locked:
        if self._locked is None:
            self._locked = Locked(self.versioned)
        return self._locked

    def run(self, running: Running, policy: Policy) -> Conducted:
        if policy.scheme == "serial":
            self.kernel.run(running)
            return Conducted(policy, "as asked")
        if policy.scheme == "adaptive":
            return self._adaptive(running, policy.threads)
        way = self.locked if policy.scheme in LOCKING else self.versioned
        spent = self._in_parts(running, lambda a, b: way.run(running, policy, a, b))
        why = "as asked" if policy.scheme != "none" else "as asked; without locks its results may be wrong"
        return Conducted(policy, why, spent)

    def explain(self, running: Running, policy: Policy, titles: list[str], record: Callable[[Any, int], str]) -> str:
        """What a graph policy would do with a batch, part by part; nothing runs."""
        out, start = [], 0
        for alone in [*self._alone(running), running.count]:
            if start < alone:
                batch = self.versioned.begin(running, policy, start, int(alone))
                out.append(batch.explain(titles[start:alone], record))
            if alone < running.count:
                out.append(f"alone, since its keys come from state: {titles[alone]}\n")
            start = int(alone) + 1
        return "\n".join(out)

    def close(self) -> None:
        self.chooser.costs.keep()
        if self._versioned is not None:
            self._versioned.team.close()

    # -- adaptive ---------------------------------------------------------------------------

    def _adaptive(self, running: Running, threads: int) -> Conducted:
        alone = self._alone(running)
        if threads < 2 or len(alone) or self._hopeless(running, threads):
            why = self._plainly(running, threads, len(alone))
            took = self._timed(running, 0, running.count)
            if running.count >= _TELLING or took > _TELLS:
                self.cost = took / running.count
            self.chooser.last = "serial"
            conducted = Conducted(Policy.serial(), why)
        else:
            conducted = self._rest(running, threads, self._sample(running) if running.count >= _SAMPLED else 0)
        self._remember(running)
        return conducted

    def _hopeless(self, running: Running, threads: int) -> bool:
        """Whether there is no need to look: most batches are small, or their events cheap."""
        if self.cost is None or 2 * self.cost * running.count < LITTLE:
            return True
        return self.chooser.hopeless(self._features(running, threads, 0))

    def _features(self, running: Running, threads: int, done: int) -> Features:
        return Features(
            events=running.count - done,
            cost=self.cost or 0.0,
            threads=threads,
            accesses=self.versioned.accesses(running.fixed["kind"]),
            cut=self.versioned.cuts.any,
            abort_ratio=self.abort_ratio,
        )

    def _rest(self, running: Running, threads: int, done: int) -> Conducted:
        """What is left of a batch once the cost of an event is known."""
        versioned, features = self.versioned, self._features(running, threads, done)
        if not self.chooser.worth_a_graph(features):
            return self._serially(running, done, self.chooser.serial(features, too_little(features)))
        if not self._compiled(threads):
            why = self._broken or "the parallel kernels are being compiled meanwhile"
            return self._serially(running, done, self.chooser.serial(features, why))
        begun = time.perf_counter()
        batch = versioned.begin(running, Policy(threads=threads), done, running.count)
        graph = batch.graph()
        choice = self.chooser.choose(batch.features(graph, features))
        if choice.policy.scheme == "serial":
            return self._serially(running, done, choice)
        batch.policy = choice.policy
        spent = batch.run(graph, begun)
        self.chooser.costs.learn(
            choice.policy.name,
            threads,
            events=features.events,
            entries=batch.entries,
            tasks=batch.tasks,
            spent=spent,
        )
        if not done:  # no sample was taken: what the threads did is the best there is
            self.cost = (spent["useful"] + spent["abort"]) / features.events
        return Conducted(choice.policy, choice.why, spent)

    def _serially(self, running: Running, done: int, choice: Choice) -> Conducted:
        self.kernel.run(running, done)
        return Conducted(choice.policy, choice.why)

    def _sample(self, running: Running) -> int:
        """Run the first events serially to see what one costs; how many that were."""
        # By this thread's own clock: on a busy machine the wall's would speak of others.
        done, calling = 1, self._timed(running, 0, 1)
        for count in _SAMPLES:
            took = self._timed(running, done, done + count)
            done += count
            # The first call shows what a call costs that runs next to nothing.
            self.cost = max(1e-9, (took - min(calling, took / 2)) / count)
            if took > 4 * calling:
                break
        return done

    def _timed(self, running: Running, start: int, stop: int) -> float:
        begun = time.thread_time()
        self.kernel.run(running, start, stop)
        return time.thread_time() - begun

    def _remember(self, running: Running) -> None:
        if running.count:
            seen = float(np.count_nonzero(running.result.code)) / running.count
            self.abort_ratio += 0.5 * (seen - self.abort_ratio)

    def _plainly(self, running: Running, threads: int, alone: int) -> str:
        if alone:
            return f"{alone} of {running.count} events have keys that only state can tell, and must run alone"
        if threads < 2:
            return "there is one core"
        if self.cost is None:
            return "the first batch shows what an event costs"
        return too_little(Features(running.count, self.cost, threads))

    # -- compiling --------------------------------------------------------------------------

    def _compiled(self, threads: int) -> bool:
        """Whether the parallel kernels are there; if not, they are compiled in the background."""
        if self._warm:
            return True
        if self._compiling is None:
            name, work = "penstock-compile", self._warm_or_say_why
            self._compiling = threading.Thread(target=work, args=(threads,), name=name, daemon=True)
            self._compiling.start()
        return False

    def _warm_or_say_why(self, threads: int) -> None:
        try:
            self.warm(threads)
        except Exception as error:  # the stream goes on without
            self._broken = f"the parallel kernels did not compile: {error}"

    def warm(self, threads: int = 2) -> None:
        """Compile what adaptive may choose: run nothing, on tables of its own."""
        other = Versioned(self.kernel)
        program = self.kernel.plan.program
        batch = order(program, [])
        tables = Tables(program)
        running = self.kernel.begin(tables, batch, self.kernel.encode(tables, batch), 0)
        for unit in ("transaction", "operation") if other.cuts.any else ("transaction",):
            for explore in ("bfs", "dfs", "ready"):
                other.run(running, Policy(explore=explore, unit=unit, on_abort="eager", threads=threads), 0, 0)
        self.versioned.adopt(other)
        self._warm = True

    # -- parts ------------------------------------------------------------------------------

    def _in_parts(self, running: Running, run: Callable[[int, int], dict[str, float]]) -> dict[str, float]:
        """Run what can be foreseen in parts, and between them, alone, what cannot."""
        spent: dict[str, float] = {}
        start = 0
        for alone in [*self._alone(running), running.count]:
            if start < alone:
                for name, seconds in run(start, int(alone)).items():
                    spent[name] = spent.get(name, 0.0) + seconds
            if alone < running.count:
                self.kernel.run(running, int(alone), int(alone) + 1)
            start = int(alone) + 1
        return spent

    def _alone(self, running: Running) -> Any:
        if not self.unforeseen:
            return []
        return np.flatnonzero(np.isin(running.fixed["kind"], self.unforeseen))
