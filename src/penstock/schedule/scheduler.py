"""A batch under a policy: serially, by its graph, or under locks; `adaptive` looks at the batch and chooses.

An event whose records cannot be foreseen, as those of a scan, runs alone: what comes before it runs first, what comes
after it last.
Groups of transactions that can never meet are looked at apart, and may run under different policies. An app that emits
runs serially under every policy, since its rounds do not overlap, unless each round is one transaction: plan/inline.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.execute import cache
from penstock.execute.native import BatchContext, Kernel
from penstock.plan.foresee import in_words, unforeseen
from penstock.schedule.adaptive import NONE_RUNS, Adaptive
from penstock.schedule.costs import Costs
from penstock.schedule.executors import Executors
from penstock.schedule.groups import groups, part, put_back
from penstock.schedule.policy import LOCKING, Policy, RunSummary

EMITS = "its transactions emit events, and what one event causes runs before the next event does"
EXPIRE = "its records expire by the clock, which moves from event to event"
SEVERAL = "one of its transactions takes several events, and only the serial loop runs such a transaction"


class Scheduler:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.executors = Executors(kernel)
        self.costs = Costs(cache.cache_directory(), hashlib.sha256(kernel.source.encode()).hexdigest()[:16])
        program = kernel.plan.program
        self.names = [e.name for e in program.events]
        # Kind of event -> what its transaction has that cannot be foreseen.
        found = {program.kind(t.event): set(unforeseen(t.block).values()) for t in kernel.plan.transactions}
        self.unforeseen = {kind: what for kind, what in found.items() if what}
        self.groups = [(kinds, Adaptive(kernel, self.executors, self.costs)) for kinds in groups(kernel.plan)]
        # Why the app runs serially under every policy; empty where it need not.
        self.serial = ""
        if program.flow is not None and not program.flow.emitted:
            self.serial = SEVERAL
        elif program.flow is not None:
            self.serial = f"{EMITS}; only groups run by a graph, but {kernel.serial_since}"
        elif any(table.ttl is not None for table in program.tables):
            self.serial = EXPIRE

    def warm(self) -> None:
        """Compile what the adaptive policy may choose."""
        if not self.serial:
            self.executors.warm()

    def run(self, running: BatchContext, policy: Policy) -> RunSummary:
        if self.serial:
            self.kernel.run(running)
            return RunSummary(Policy.serial(), self.serial)
        if policy.scheme == "serial":
            self.kernel.run(running)
            return RunSummary(policy, "as asked")
        if policy.scheme == "adaptive":
            return self._adaptive(running, policy.threads)
        way = self.executors.lock if policy.scheme in LOCKING else self.executors.graph
        spent = self._in_parts(running, lambda a, b: way.run(running, policy, a, b))
        why = "as asked" if policy.scheme != "none" else "as asked; without locks its results may be wrong"
        return RunSummary(policy, why, spent)

    def explain(
        self, running: BatchContext, policy: Policy, titles: list[str], record: Callable[[Any, int], str]
    ) -> str:
        """What a graph policy would do with a batch, part by part; nothing runs."""
        if self.serial:
            return f"serial: {self.serial}\n"
        out, start = [], 0
        for alone in [*self._alone(running), running.count]:
            if start < alone:
                batch = self.executors.graph.begin(running, policy, start, int(alone))
                out.append(batch.explain(titles[start:alone], record))
            if alone < running.count:
                what = in_words(self.unforeseen[int(running.fixed["kind"][alone])])
                out.append(f"alone, since it has {what}: {titles[alone]}\n")
            start = int(alone) + 1
        return "\n".join(out)

    def close(self) -> None:
        self.costs.save()
        self.executors.close()

    # -- adaptive ---------------------------------------------------------------------------

    def _adaptive(self, running: BatchContext, threads: int) -> RunSummary:
        if not running.count:
            return RunSummary(Policy.serial(), "there is nothing to run")
        alone = self._alone(running)
        if len(alone):
            self.kernel.run(running)
            what = in_words(set().union(*(self.unforeseen[k] for k in set(running.fixed["kind"][alone].tolist()))))
            why = f"{len(alone)} of {running.count} events have {what}, and must run alone"
            return RunSummary(Policy.serial(), why)
        if len(self.groups) == 1:
            return self.groups[0][1].run(running, threads)
        return self._by_groups(running, threads)

    def _by_groups(self, running: BatchContext, threads: int) -> RunSummary:
        """Each group of the batch on its own, one after the other."""
        found: list[tuple[str, RunSummary]] = []
        for kinds, adaptive in self.groups:
            places = np.flatnonzero(np.isin(running.fixed["kind"], kinds))
            if places.size == running.count:
                return adaptive.run(running, threads)
            if places.size:
                own = part(running, places)
                found.append((", ".join(self.names[k] for k in kinds), adaptive.run(own, threads)))
                put_back(running, places, own)
        return nested(found)

    # -- parts ------------------------------------------------------------------------------

    def _in_parts(self, running: BatchContext, run: Callable[[int, int], dict[str, float]]) -> dict[str, float]:
        """Run what can be foreseen in parts, and between them, alone, what cannot."""
        spent: dict[str, float] = {}
        start = 0
        for alone in [*self._alone(running), running.count]:
            if start < alone:
                _add(spent, run(start, int(alone)))
            if alone < running.count:
                self.kernel.run(running, int(alone), int(alone) + 1)
            start = int(alone) + 1
        return spent

    def _alone(self, running: BatchContext) -> Any:
        if not self.unforeseen:
            return []
        return np.flatnonzero(np.isin(running.fixed["kind"], list(self.unforeseen)))


def nested(found: list[tuple[str, RunSummary]]) -> RunSummary:
    """How groups were run, told as one."""
    if not found:
        return NONE_RUNS
    spent: dict[str, float] = {}
    for _, one in found:
        _add(spent, one.spent)
    widest = max((one.policy for _, one in found), key=lambda policy: policy.threads)
    name = " + ".join(dict.fromkeys(one.name for _, one in found))
    return RunSummary(widest, "; ".join(f"{who}: {one.name}, {one.why}" for who, one in found), spent, name)


def _add(spent: dict[str, float], more: dict[str, float]) -> None:
    for what, seconds in more.items():
        spent[what] = spent.get(what, 0.0) + seconds
