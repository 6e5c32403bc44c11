"""A batch that looks at itself: those before it tell what an event costs, its graph what can run at the same time.

Most batches are small or cheap, and are run serially without a look. The parallel kernels are compiled in the
background when they first seem worth it; until they are there the stream goes on serially.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from penstock.execute.native import Kernel, Running
from penstock.schedule.choose import LITTLE, STOPPED, Choice, Chooser, Features, policy, too_little
from penstock.schedule.compiled import Compiled
from penstock.schedule.costs import Costs
from penstock.schedule.policy import Conducted, Policy
from penstock.schedule.price import SAME, Price
from penstock.schedule.retry import Retry
from penstock.schedule.versioned import Batch

# The first events of a batch, run serially, tell what one costs: few if they are dear; in a small batch, none. A sample
# should take so many times what calling the kernel does.
_SAMPLES, _SAMPLED, _TIMES = (4, 16, 64, 256), 2048, 4
# How fast the ratio of aborts that is remembered follows the one that is seen.
_FOLLOW = 0.5
# While batches are alike, so many are not looked at if looking would take much of their time; of those that are, one in
# so many is learned from.
_TRUST, _LEARNS = 8, 3
# A large batch behind one that ran as those before it is not looked at: unless more of that one's events aborted than
# lately, or fewer, by this share of all.
_ONE, _MOVED = 1, 0.02
# A graph that much larger than any before lies in memory that is touched for the first time: it says nothing of others.
_LARGER = 1.2


class Adaptive:
    """One group of transactions: what its events cost and how they fare, and the policy that suits them."""

    def __init__(self, kernel: Kernel, compiled: Compiled, costs: Costs) -> None:
        self.kernel, self.compiled = kernel, compiled
        self.chooser = Chooser(costs)
        self.price, self.retry = Price(), Retry()
        self.abort_ratio = 0.0
        self._lists = 1.0  # records that an event reaches, for each that is known without looking into its lists
        self._last = Conducted(Policy.serial(), "")
        self._looked = 0  # batches that were looked at
        # The last of them: its size, its threads, and how many of those like it may yet run as it did.
        self._events, self._threads, self._alike = 0, 0, 0
        self._little_one = 0, 0.0, self._last  # events, their cost, and what was said of them
        self._worth = 0  # batches in a row that seemed worth a graph
        self._reached = 0.0  # records that an event of the last batch reached, but for its lists
        self._largest = 0  # events of the largest graph so far

    def run(self, running: Running, threads: int) -> Conducted:
        cost = self.price.one
        if cost is not None and 2 * cost * running.count < LITTLE:
            return self._little(running, cost)
        self._last = self._run(running, threads)
        moved = float(np.count_nonzero(running.result.code)) / running.count - self.abort_ratio
        self.abort_ratio += _FOLLOW * moved
        self.price.steady = abs(moved) < _MOVED
        if not self.price.steady or (self.price.odd and self.price.looked):
            self._alike = 0  # it was looked at as what came before, and is not like that
        return self._last

    def _run(self, running: Running, threads: int) -> Conducted:
        if threads < 2:
            return self._plainly(running, "there is one core")
        large, known = running.count >= _SAMPLED, self.price.one is not None
        if not known and not large:
            return self._plainly(running, "the first batch shows what an event costs")
        self.price.looked = not self._like_the_last(running, threads)
        if not self.price.looked:
            self._alike -= 1
            return self._again(running)
        self._looked += 1
        self._events, self._threads, self._alike = running.count, threads, 0
        features = self._features(running, threads)
        others = self._are_others(features)
        if self.retry.left(others, self.price.one or 0.0):
            return self._plainly(running, "by a graph, the last ones took longer than they would have without")
        if large and others:
            done = self._sample(running)
            return self._rest(running, replace(features, events=running.count - done, cost=self.price.one or 0.0), done)
        if large and self.chooser.hopeless(features):
            self._settle()
            return self._too_dear(running, features, 0)
        return self._rest(running, features, 0)

    def _are_others(self, features: Features) -> bool:
        """Whether transactions are no longer those of the last batch, so that it says nothing of this one."""
        before, self._reached = self._reached, features.accesses / self._lists
        others = not SAME * before <= self._reached <= before / SAME
        if others and features.events >= _SAMPLED:
            self.chooser.found, self.price.one, self.price.last = None, None, None
        return others

    # -- as the last one --------------------------------------------------------------------

    def _settle(self) -> None:
        """Those that are like this one run as it does, for a while: looking takes a tenth of a small or cheap batch.
        Not if it is itself the first of a new kind, whose cost is not known yet."""
        self._alike = 0 if self.price.odd else _TRUST

    def _like_the_last(self, running: Running, threads: int) -> bool:
        alike = threads == self._threads and SAME * self._events < running.count < self._events / SAME
        return self._alike > 0 and alike and self.price.settled()

    def _again(self, running: Running) -> Conducted:
        policy, why = self._last.policy, self._last.why
        if policy.scheme == "serial":
            if not self._worth:
                self.retry.seems_dear()
            return self._serially(running, 0, Choice(policy, why))
        batch = self.compiled.versioned.begin(running, policy, 0, running.count)
        spent = batch.run(batch.graph())
        self._hear(batch)
        return Conducted(policy, why, spent)

    # -- without a graph --------------------------------------------------------------------

    def _little(self, running: Running, cost: float) -> Conducted:
        """The short way of a batch that no graph could be worth: one that takes 0.1 ms feels every line of Python."""
        self._loop(running, 0)
        self._worth, self._alike = 0, 0
        events, known, told = self._little_one
        if events != running.count or not SAME * known < cost < known / SAME:
            told = Conducted(policy("serial", 1), too_little(running.count, cost))
            self._little_one = running.count, cost, told
        self.chooser.last = "serial"
        return told

    def _plainly(self, running: Running, why: str, done: int = 0) -> Conducted:
        return self._serially(running, done, self.chooser.serial(why))

    def _too_dear(self, running: Running, features: Features, done: int) -> Conducted:
        self._worth = 0
        ran = self._plainly(running, too_little(features.events, features.cost), done)
        self.retry.seems_dear()
        if self.retry.due and Chooser(Costs(), last="").worth_a_graph(features):
            self.retry.tries()
            self._alike = 0
            self.chooser.forget(features)
        return ran

    def _serially(self, running: Running, done: int, choice: Choice) -> Conducted:
        self._loop(running, done)
        return Conducted(choice.policy, choice.why)

    def _loop(self, running: Running, done: int) -> None:
        self.retry.ran_without()
        begun = time.perf_counter()
        self.kernel.run(running, done)
        self.price.ran(time.perf_counter() - begun, running.count - done)

    def _sample(self, running: Running) -> int:
        """Run the first events serially to see what one costs; how many that were."""
        self._timed(running, 0, 1)  # the first call of all takes twice as long
        done, calling, one = 2, self._timed(running, 1, 2), 0.0
        for count in _SAMPLES:
            if self.price.one is not None and count * self.price.one < _TIMES * calling and count < _SAMPLES[-1]:
                continue
            took = self._timed(running, done, done + count)
            done += count
            # The call before shows what one costs that runs but one event.
            one = max(1e-9, (took - min(calling, took / 2)) / (count - 1))
            if took > _TIMES * calling:
                break
        self.price.sampled(one)
        return done

    def _timed(self, running: Running, start: int, stop: int) -> float:
        begun = time.perf_counter()
        self.kernel.run(running, start, stop)
        return time.perf_counter() - begun

    # -- with one ---------------------------------------------------------------------------

    def _features(self, running: Running, threads: int) -> Features:
        versioned = self.compiled.versioned
        return Features(
            events=running.count,
            cost=self.price.one or 0.0,
            threads=threads,
            accesses=self._lists * versioned.accesses(running.fixed["kind"]),
            cut=versioned.cuts.any,
            abort_ratio=self.abort_ratio,
        )

    def _rest(self, running: Running, features: Features, done: int) -> Conducted:
        """What is left of a batch once the cost of an event is known."""
        small = running.count < _SAMPLED
        if not self.chooser.worth_a_graph(features):
            if small:
                self._settle()
            return self._too_dear(running, features, done)
        self._worth += 1
        missing = self.compiled.missing(features.threads, sure=self._worth > 1 or not small)
        if missing:
            return self._plainly(running, missing, done)
        if small:
            self._settle()
        any_graph = policy("bfs/transaction/eager", features.threads)
        batch = self.compiled.versioned.begin(running, any_graph, done, running.count)
        graph = batch.graph()
        found = batch.features(graph, features)
        if found.accesses and features.accesses:
            self._lists *= found.accesses / features.accesses
        before = self.chooser.last
        choice = self.chooser.choose(found)
        if choice.policy.scheme == "serial":
            return self._serially(running, done, choice)
        batch.policy = choice.policy
        spent = batch.run(graph)
        took = time.perf_counter() - batch.begun
        self._hear(batch)
        cost, settled = self.price.one or 0.0, self.price.settled()
        paid = took < cost * features.events
        if paid:
            self.retry.paid()
        if features.events > _LARGER * self._largest:
            self._largest = features.events
        else:
            if not paid:
                self.retry.has_lost(cost)
            if not paid or not settled or not self._looked % _LEARNS:
                self._learn(features, batch, spent)
        if paid and settled and not small and self.chooser.last == before:
            self._alike = _ONE
        return Conducted(choice.policy, choice.why, spent)

    def _hear(self, batch: Batch) -> None:
        one, ratio = batch.ran / batch.count, self.abort_ratio
        if batch.policy.unit != "transaction":
            one *= 1 - STOPPED * ratio  # the serial loop would have stopped where a piece aborts
        self.price.ran_by_graph(batch.policy.name, one, batch.accesses, ratio)

    def _learn(self, features: Features, batch: Batch, spent: dict[str, float]) -> None:
        self.chooser.costs.learn(
            batch.policy.name,
            batch.policy.threads,
            events=features.events,
            entries=batch.entries,
            work=features.work,
            spent=spent,
        )
