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

from penstock.execute.locked import Locked
from penstock.execute.native import Kernel, Running, cache_directory
from penstock.execute.order import order
from penstock.execute.versioned import Versioned
from penstock.plan.foresee import foresee
from penstock.schedule.choose import LITTLE, Choice, Chooser, Features, too_little
from penstock.schedule.costs import Costs
from penstock.schedule.policy import LOCKING, Policy
from penstock.state.tables import Tables

# The first events of a batch, run serially, tell what one costs: so many at most, and in so large a batch at least.
_SAMPLE, _SAMPLED = 512, 2048


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
        begun = time.thread_time()
        alone = self._alone(running)
        count = running.count
        if threads < 2 or len(alone) or (self.cost is not None and count * self.cost < LITTLE):
            self.kernel.run(running)
            self._measure(running, begun)
            return Conducted(Policy.serial(), self._plainly(running, threads, len(alone)))
        done = self._sample(running) if count >= _SAMPLED else 0
        if self.cost is None:  # a small batch, and the first
            self.kernel.run(running)
            self._measure(running, begun)
            return Conducted(Policy.serial(), "the first batch shows what an event costs")
        conducted = self._rest(running, threads, done, self.cost)
        self._remember(running)
        return conducted

    def _rest(self, running: Running, threads: int, done: int, cost: float) -> Conducted:
        """What is left of a batch once the cost of an event is known."""
        versioned = self.versioned
        features = Features(
            events=running.count - done,
            cost=cost,
            threads=threads,
            accesses=versioned.accesses(running.fixed["kind"]),
            cut=versioned.cuts.any,
            abort_ratio=self.abort_ratio,
        )
        if not self.chooser.worth_a_graph(features):
            return self._serially(running, done, self.chooser.serial(features, too_little(features)))
        if not self._compiled(threads):
            why = "the parallel kernels are being compiled meanwhile"
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
        return Conducted(choice.policy, choice.why, spent)

    def _serially(self, running: Running, done: int, choice: Choice) -> Conducted:
        self.kernel.run(running, done)
        return Conducted(choice.policy, choice.why)

    def _sample(self, running: Running) -> int:
        """Run the first events serially to see what one costs; how many that were."""
        count = min(_SAMPLE, running.count // 16)
        # By this thread's own clock: on a busy machine the wall's would speak of others.
        start = time.thread_time()
        self.kernel.run(running, 0, 1)
        calling = time.thread_time()
        self.kernel.run(running, 1, count)
        ended = time.thread_time()
        # The first call shows what a call costs that runs next to nothing.
        self.cost = max(1e-9, (ended - calling - min(calling - start, (ended - calling) / 2)) / (count - 1))
        return count

    def _measure(self, running: Running, begun: float) -> None:
        """A batch that ran serially has shown what an event costs."""
        if running.count:
            self.cost = (time.thread_time() - begun) / running.count
        self._remember(running)

    def _remember(self, running: Running) -> None:
        if running.count:
            seen = float(np.count_nonzero(running.result.code)) / running.count
            self.abort_ratio += 0.5 * (seen - self.abort_ratio)

    def _plainly(self, running: Running, threads: int, alone: int) -> str:
        if alone:
            return f"{alone} of {running.count} events have keys that only state can tell, and must run alone"
        if threads < 2:
            return "there is one core"
        return too_little(Features(running.count, self.cost or 0.0, threads))

    # -- compiling --------------------------------------------------------------------------

    def _compiled(self, threads: int) -> bool:
        """Whether the parallel kernels are there; if not, they are compiled in the background."""
        if self._warm:
            return True
        if self._compiling is None:
            self._compiling = threading.Thread(target=self.warm, args=(threads,), name="penstock-compile", daemon=True)
            self._compiling.start()
        return False

    def warm(self, threads: int = 2) -> None:
        """Compile what adaptive may choose: run nothing, on tables of its own."""
        other = Versioned(self.kernel)
        program = self.kernel.plan.program
        batch = order(program, [])
        tables = Tables(program)
        running = self.kernel.begin(tables, batch, self.kernel.encode(tables, batch), 0)
        for unit in ("transaction", "operation") if other.cuts.any else ("transaction",):
            for explore in ("dfs", "ready"):
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
