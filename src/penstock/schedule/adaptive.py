"""A batch that looks at itself: those before it tell what an event costs, its graph what can run at the same time.

Most batches are small or cheap, and are run serially without a look. The parallel kernels are compiled in the
background when they first seem worth it; until they are there the stream goes on serially.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from penstock.execute.native import BatchContext, Kernel
from penstock.execute.order import LATE
from penstock.schedule.alike import Alike
from penstock.schedule.choose import LITTLE, Choice, Chooser, Features, policy, too_little
from penstock.schedule.costs import Costs
from penstock.schedule.executors import Executors
from penstock.schedule.graph import Graph
from penstock.schedule.graph_executor import Batch
from penstock.schedule.policy import Policy, RunSummary
from penstock.schedule.price import SAME, STOPPED, Price
from penstock.schedule.retry import Retry

# The first events of a batch, run serially, tell what one costs: few if they are dear; in a small batch, none. A sample
# should take so many times what calling the kernel does.
_SAMPLES, _SAMPLED, _TIMES = (4, 16, 64, 256), 2048, 4
# While batches are alike, of those that are looked at one in so many is learned from.
_LEARNS = 3
# A batch that is too small for a graph teaches nothing if it took as long as was thought, to within this ratio; nor if
# it did not and is the first: perhaps it was held up. So many in a row are heard, and the one behind them.
_ABOUT, _HEARD = 0.7, 2
# A graph that much larger than any before lies in memory that is touched for the first time: it says nothing of others.
_LARGER = 1.2

ALL_LATE = RunSummary(Policy.serial(), "all of it came too late to run")
_NOTHING = RunSummary(Policy.serial(), "")
_NONE = 0, _NOTHING, 0


class Adaptive:
    """One group of transactions: what its events cost and how they fare, and the policy that suits them."""

    def __init__(self, kernel: Kernel, compiled: Executors, costs: Costs) -> None:
        self.kernel, self.executors = kernel, compiled
        self.chooser = Chooser(costs)
        self.price, self.alike, self.retry = Price(), Alike(), Retry()
        self._lists = 1.0  # records that an event reaches, for each that is known without looking into its lists
        self._last = _NOTHING
        # The last batch, if it was too small for a graph: its events, what was said, odd ones in a row.
        self._little_one = _NONE
        self._worth = 0  # batches in a row that seemed worth a graph
        self._reached = 0.0  # records that an event of the last large batch reached, if its lists had one each
        self._largest = 0  # events of the largest graph so far

    def run(self, running: BatchContext, threads: int) -> RunSummary:
        cost = self.price.one
        if cost is not None and cost * running.count < LITTLE:
            return self._little(running, cost)
        self._little_one = _NONE
        late = _late(running.fixed["kind"])
        if late:
            self.kernel.run(running, 0, late)
        if late == running.count:
            return ALL_LATE
        self._last = self._run(running, threads, late)
        self.alike.ran(_aborted(running, late), running.count - late)
        if self.price.odd and self.price.looked:
            self.alike.none_follows()  # what was thought of it is not so
        return self._last

    def _run(self, running: BatchContext, threads: int, late: int) -> RunSummary:
        """late: events at the head that have nothing to do, and are through with it."""
        if threads < 2:
            return self._plainly(running, late, "there is one core")
        events, known = running.count - late, self.price.one is not None
        large = events >= _SAMPLED
        if not known and not large:
            return self._plainly(running, late, "the first batch shows what an event costs")
        self.price.looked = not (self.price.settled() and self.alike.as_the_last(events, threads))
        if not self.price.looked:
            return self._again(running, late)
        reached = self.executors.graph.accesses(running.fixed["kind"][late:])
        news = large and self._are_others(reached)
        features = self._features(events, threads, reached)
        kin = self.alike.look(events, threads)
        if self.retry.left(news or not kin, self.price.one or 0.0):
            return self._plainly(running, late, "by a graph, the last ones took longer than they would have without")
        if news:
            done = self._sample(running, late)
            return self._rest(running, self._features(running.count - done, threads, reached), done)
        if large and self.chooser.hopeless(features):
            self._settle()
            return self._too_dear(running, features, late)
        return self._rest(running, features, late)

    def _are_others(self, reached: float) -> bool:
        """Whether the transactions of a large batch reach more records than those of the last one, or fewer. What is
        known of those says nothing of these, and is dropped."""
        before, self._reached = self._reached, reached
        others = not SAME * before <= reached <= before / SAME
        if others:
            self.price.drop()
            self.chooser.found, self._lists = None, 1.0
        return others

    # -- as the last one --------------------------------------------------------------------

    def _settle(self) -> None:
        """Those like it run as it does; not if it is itself the first of its kind, whose cost is not known yet."""
        if not self.price.odd:
            self.alike.some_follow()

    def _again(self, running: BatchContext, late: int) -> RunSummary:
        policy, why = self._last.policy, self._last.why
        if policy.scheme == "serial":
            if not self._worth:
                self.retry.seems_dear()
            return self._serially(running, late, Choice(policy, why))
        batch = self.executors.graph.begin(running, policy, late, running.count)
        spent, _ = self._timed_graph(batch, batch.graph())
        self._hear(batch)
        return RunSummary(policy, why, spent)

    # -- without a graph --------------------------------------------------------------------

    def _little(self, running: BatchContext, cost: float) -> RunSummary:
        """The short way of a batch that no graph could be worth: one that takes 0.1 ms feels every line of Python."""
        took, thought = self._timed(running, 0, running.count), cost * running.count
        as_thought = _ABOUT * thought < took < thought / _ABOUT
        events, told, odd = self._little_one
        odd = 0 if as_thought and odd < _HEARD else odd + 1
        if events == running.count and odd < _HEARD:
            self._little_one = events, told, odd
            return told
        self._took(running, 0, took)
        self.alike.none_follows()
        self._worth, self.chooser.last = 0, "serial"
        told = RunSummary(policy("serial", 1), too_little(running.count, self.price.one or cost))
        self._little_one = running.count, told, 0 if as_thought else _HEARD
        return told

    def _plainly(self, running: BatchContext, done: int, why: str) -> RunSummary:
        return self._serially(running, done, self.chooser.serial(why))

    def _too_dear(self, running: BatchContext, features: Features, done: int) -> RunSummary:
        self._worth = 0
        ran = self._plainly(running, done, too_little(features.events, features.cost))
        self.retry.seems_dear()
        if self.retry.due and Chooser(Costs(), last="").worth_a_graph(features):
            self.retry.tries()
            self.alike.none_follows()
            self.chooser.forget(features)
        return ran

    def _serially(self, running: BatchContext, done: int, choice: Choice) -> RunSummary:
        self._took(running, done, self._timed(running, done, running.count))
        return RunSummary(choice.policy, choice.why)

    def _took(self, running: BatchContext, done: int, took: float) -> None:
        """The serial loop ran the rest of a batch."""
        self.retry.ran_without(took / (running.count - done))
        ratio = _aborted(running, done) if running.count >= _SAMPLED else self.alike.abort_ratio
        self.price.ran(took, running.count - done, ratio)

    def _sample(self, running: BatchContext, done: int) -> int:
        """Run the next events serially to see what one costs; where that ends."""
        self._timed(running, done, done + 1)  # the first call of all takes twice as long
        calling, one = self._timed(running, done + 1, done + 2), 0.0
        done += 2
        for count in _SAMPLES:
            took = self._timed(running, done, done + count)
            done += count
            # The call before shows what one costs that runs but one event.
            one = max(1e-9, (took - min(calling, took / 2)) / (count - 1))
            if took > _TIMES * calling:
                break
        self.price.sampled(one)
        return done

    def _timed(self, running: BatchContext, start: int, stop: int) -> float:
        begun = time.perf_counter()
        self.kernel.run(running, start, stop)
        return time.perf_counter() - begun

    def _timed_graph(self, batch: Batch, graph: Graph) -> tuple[dict[str, float], float]:
        """Thread-seconds by what they went to, and the seconds since the batch began."""
        spent = batch.run(graph)
        return spent, time.perf_counter() - batch.begun

    # -- with one ---------------------------------------------------------------------------

    def _features(self, events: int, threads: int, reached: float) -> Features:
        return Features(
            events=events,
            cost=self.price.one or 0.0,
            threads=threads,
            accesses=self._lists * reached,
            cut=self.executors.graph.splits.any,
            abort_ratio=self.alike.abort_ratio,
        )

    def _rest(self, running: BatchContext, features: Features, done: int) -> RunSummary:
        """What is left of a batch once the cost of an event is known."""
        small = self.alike.events < _SAMPLED
        if not self.chooser.worth_a_graph(features):
            if small:
                self._settle()
            return self._too_dear(running, features, done)
        self._worth += 1
        missing = self.executors.missing(features.threads, sure=self._worth > 1 or not small)
        if missing:
            return self._plainly(running, done, missing)
        if small:
            self._settle()
        any_graph = policy("bfs/transaction/eager", features.threads)
        batch = self.executors.graph.begin(running, any_graph, done, running.count)
        graph = batch.graph()
        found = batch.features(graph, features)
        if found.accesses and features.accesses:
            self._lists *= found.accesses / features.accesses
        before = self.chooser.last
        choice = self.chooser.choose(found)
        if choice.policy.scheme == "serial":
            return self._serially(running, done, choice)
        batch.policy = choice.policy
        spent, took = self._timed_graph(batch, graph)
        self.chooser.trials.ran(batch.policy.name, took / features.events, self.chooser.estimates)
        self._hear(batch)
        cost = self.price.one or 0.0
        paid = took < cost * features.events
        if paid:
            self.retry.paid()
        if features.events > _LARGER * self._largest:
            self._largest = features.events
        else:
            if not paid:
                self.retry.has_lost(cost, took / features.events)
            if not (paid and self.price.settled() and self.alike.looked % _LEARNS):
                self._learn(replace(features, cost=cost), batch, spent)
        if choice.tried:
            self.alike.none_follows()
        elif not paid:
            self.alike.fewer_follow()
        elif not small and self.chooser.last == before:
            self.alike.next_follows()
        return RunSummary(choice.policy, choice.why, spent)

    def _hear(self, batch: Batch) -> None:
        """What a batch that ran by a graph says of an event's cost."""
        one, ratio = batch.ran / batch.count, _aborted(batch.running, batch.start)
        if batch.policy.unit != "transaction":
            one *= 1 - STOPPED * ratio  # the serial loop would have stopped where a fragment aborts
        self.price.ran_by_graph(batch.policy.name, one, batch.accesses, ratio, batch.policy.threads)

    def _learn(self, features: Features, batch: Batch, spent: dict[str, float]) -> None:
        self.chooser.costs.learn(
            batch.policy.name,
            batch.policy.threads,
            events=features.events,
            entries=batch.entries,
            work=features.work,
            spent=spent,
        )


def _late(kind: Any) -> int:
    """How many events came too late: they are the first of their batch."""
    return int(np.count_nonzero(kind >= LATE)) if kind[0] >= LATE else 0


def _aborted(running: BatchContext, start: int) -> float:
    """The share of events, from one on, that aborted."""
    return float(np.count_nonzero(running.result.code[start:])) / (running.count - start)
