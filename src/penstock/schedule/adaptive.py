"""A batch that looks at itself: its first events tell what one costs, its graph what can run at the same time.

Most batches are small or cheap, and are run serially without a look. The parallel kernels are compiled in the
background when they first seem worth it; until they are there the stream goes on serially.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from penstock.execute.native import Kernel, Running
from penstock.schedule.choose import LITTLE, Choice, Chooser, Features, policy, too_little
from penstock.schedule.compiled import Compiled
from penstock.schedule.costs import Costs
from penstock.schedule.policy import Conducted, Policy

# The first events of a batch, run serially, tell what one costs: few if they are dear; in a small batch, none.
_SAMPLES, _SAMPLED = (4, 16, 64, 256), 2048
# If that is about what it was, it counts for this much; else for all.
_ABOUT, _COUNTS = 2.0, 0.3
# While batches say of themselves that they are as the last that was sampled, to within this ratio, so many are not. Nor
# are so many small ones looked at: they run as the last one did.
_SAME, _TRUST = 0.85, 8
# A batch tells what an event costs, and not only what it costs at most, if calling the kernel is but a little of it.
_TELLING, _TELLS = 512, 0.5e-3
# How fast the ratio of aborts that is remembered follows the one that is seen.
_FOLLOW = 0.5
# After so many batches for which a graph seemed too dear, what it was learned to cost is forgotten, and it is tried. If
# it was in vain, after twice as many; and so on.
_RETRY, _SELDOM = 4, 64
# A graph that much larger than any before lies in memory that is touched for the first time: it says nothing of others.
_LARGER = 1.2


class Adaptive:
    """One group of transactions: what its events cost and how they fare, and the policy that suits them."""

    def __init__(self, kernel: Kernel, compiled: Compiled, costs: Costs) -> None:
        self.kernel, self.compiled = kernel, compiled
        self.chooser = Chooser(costs)
        self.cost: float | None = None  # seconds of one event, lately
        self._before: float | None = None  # the same, as the last batch that ran serially showed it
        self.abort_ratio = 0.0
        self._said, self._same, self._unsampled = ("", 0.0), False, 0
        self._last, self._events, self._threads = Conducted(Policy.serial(), ""), 0, 0  # the last batch
        self._lists = 1.0  # records that an event reaches, for each that is known without looking into its lists
        self._told = self._last, 0, 0.0  # what was said of the last little batch, of so many events of this cost
        self._worth = 0  # batches in a row that seemed worth a graph
        self._largest = 0  # events of the largest graph so far
        self._dear, self._retry = 0, _RETRY  # batches for which a graph seemed too dear, and after how many it is tried

    def run(self, running: Running, threads: int) -> Conducted:
        if self.cost is not None and 2 * self.cost * running.count < LITTLE:
            return self._little(running, self.cost)
        conducted = self._run(running, threads)
        self._last, self._events, self._threads = conducted, running.count, threads
        seen = float(np.count_nonzero(running.result.code)) / running.count
        self.abort_ratio += _FOLLOW * (seen - self.abort_ratio)
        return conducted

    def _run(self, running: Running, threads: int) -> Conducted:
        if threads < 2:
            return self._plainly(running, "there is one core")
        samples = running.count >= _SAMPLED
        if self.cost is None and not samples:
            return self._plainly(running, "the first batch shows what an event costs")
        if not samples and self._as_large(running, threads) and self._steady():
            return self._again(running)
        features = self._features(running, threads)
        if samples and self.cost is not None and self.chooser.last == "serial" and self.chooser.hopeless(features):
            return self._too_dear(running, features, 0)
        done = self._sample(running) if samples and not self._steady() else 0
        if done:
            features = replace(features, events=running.count - done, cost=self.cost or 0.0)
        return self._rest(running, features, done)

    # -- without a graph --------------------------------------------------------------------

    def _little(self, running: Running, known: float) -> Conducted:
        """The short way of a batch that no graph could be worth: one that takes 0.1 ms feels every line of Python."""
        self._loop(running, 0)
        told, count, cost = self._told
        if count != running.count or not _SAME * cost < known < cost / _SAME:
            choice = self.chooser.serial(too_little(running.count, known))
            told = Conducted(choice.policy, choice.why)
            self._told = told, running.count, known
        self.chooser.last = "serial"
        return told

    def _plainly(self, running: Running, why: str, done: int = 0) -> Conducted:
        return self._serially(running, done, self.chooser.serial(why))

    def _too_dear(self, running: Running, features: Features, done: int) -> Conducted:
        self._worth = 0
        self._dear += 1
        if self._dear >= self._retry:
            self._dear, self._retry = 0, min(2 * self._retry, _SELDOM)
            self.chooser.costs.forget(features.threads, features.events)
        return self._plainly(running, too_little(features.events, features.cost), done)

    def _serially(self, running: Running, done: int, choice: Choice) -> Conducted:
        one = self._loop(running, done)
        if one:
            self._hear("serial", one)
        return Conducted(choice.policy, choice.why)

    def _loop(self, running: Running, done: int) -> float:
        """The serial loop; what an event cost, or 0 where that cannot be told."""
        # By the wall clock: a thread's own takes longer to read than a small batch can spare. Of two batches the
        # quicker counts, since what else runs on the machine can only make them slower.
        begun = time.perf_counter()
        self.kernel.run(running, done)
        took, events = time.perf_counter() - begun, running.count - done
        one = took / events
        if events < _TELLING and took <= _TELLS:
            self.cost = min(one, self.cost or one)
            return 0.0
        self.cost, self._before = min(one, self._before or one), one
        return one

    def _sample(self, running: Running) -> int:
        """Run the first events serially to see what one costs; how many that were."""
        done, calling, one = 1, self._timed(running, 0, 1), 0.0
        for count in _SAMPLES:
            took = self._timed(running, done, done + count)
            done += count
            # The first call shows what a call costs that runs but one event.
            one = max(1e-9, (took - min(calling, took / 2)) / (count - 1))
            if took > 2 * calling:
                break
        known = self.cost or one
        about = known / _ABOUT < one < known * _ABOUT
        self.cost = known + (_COUNTS if about else 1.0) * (one - known)
        self._unsampled = 0
        return done

    def _steady(self) -> bool:
        """Whether the last batch said the same of itself as the last that was sampled, so that this one need not be."""
        self._unsampled += 1
        return self._same and self._unsampled <= _TRUST

    def _as_large(self, running: Running, threads: int) -> bool:
        """Whether the last batch was about as large."""
        return threads == self._threads and _SAME * self._events < running.count < self._events / _SAME

    def _hear(self, policy: str, one: float) -> None:
        """What a batch says an event cost; by a graph that is work on versions, comparable only with the like."""
        before, said = self._said
        self._same = before == policy and _SAME * said < one < said / _SAME
        if before == policy != "serial" and not self._same and self.cost is not None:
            self.cost *= one / said  # events have become dearer, or cheaper, by as much
        if not self._same or self._unsampled == 0:
            self._said = policy, one

    def _timed(self, running: Running, start: int, stop: int) -> float:
        begun = time.perf_counter()
        self.kernel.run(running, start, stop)
        return time.perf_counter() - begun

    # -- with one ---------------------------------------------------------------------------

    def _features(self, running: Running, threads: int) -> Features:
        versioned = self.compiled.versioned
        return Features(
            events=running.count,
            cost=self.cost or 0.0,
            threads=threads,
            accesses=self._lists * versioned.accesses(running.fixed["kind"]),
            cut=versioned.cuts.any,
            abort_ratio=self.abort_ratio,
        )

    def _again(self, running: Running) -> Conducted:
        """As the last batch: looking at a small one takes a tenth of its time."""
        policy, why = self._last.policy, self._last.why
        if policy.scheme == "serial":
            self._dear += 1
            return self._serially(running, 0, Choice(policy, why))
        begun = time.perf_counter()
        batch = self.compiled.versioned.begin(running, policy, 0, running.count)
        spent = batch.run(batch.graph(), begun)
        self._hear_graph(running, policy, spent)
        return Conducted(policy, why, spent)

    def _rest(self, running: Running, features: Features, done: int) -> Conducted:
        """What is left of a batch once the cost of an event is known."""
        if not done and running.count < _SAMPLED:
            self._unsampled = 0
        if not self.chooser.worth_a_graph(features):
            return self._too_dear(running, features, done)
        self._worth += 1
        missing = self.compiled.missing(features.threads, sure=self._worth > 1 or running.count >= _SAMPLED)
        if missing:
            return self._plainly(running, missing, done)
        begun = time.perf_counter()
        any_graph = policy("bfs/transaction/eager", features.threads)
        batch = self.compiled.versioned.begin(running, any_graph, done, running.count)
        graph = batch.graph()
        found = batch.features(graph, features)
        self._lists *= found.accesses / max(1e-9, features.accesses)
        choice = self.chooser.choose(found)
        if choice.policy.scheme == "serial":
            return self._serially(running, done, choice)
        batch.policy = choice.policy
        spent = batch.run(graph, begun)
        if time.perf_counter() - begun < features.work:
            self._dear, self._retry = 0, _RETRY
        if features.events > _LARGER * self._largest:
            self._largest = features.events
        else:
            self._learn(choice.policy, features, batch, spent)
        self._hear_graph(running, choice.policy, spent, done)
        return Conducted(choice.policy, choice.why, spent)

    def _hear_graph(self, running: Running, policy: Policy, spent: dict[str, float], done: int = 0) -> None:
        one = (spent["useful"] + spent["abort"]) / (running.count - done)
        self._hear(policy.name, one)
        if running.count < _SAMPLED:  # there is nothing better
            self.cost = one

    def _learn(self, policy: Policy, features: Features, batch: Any, spent: dict[str, float]) -> None:
        self.chooser.costs.learn(
            policy.name,
            policy.threads,
            events=features.events,
            entries=batch.entries,
            work=features.work,
            spent=spent,
        )
