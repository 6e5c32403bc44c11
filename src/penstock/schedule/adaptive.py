"""The adaptive policy: batches before this one show what an event costs, its graph shows what can run at the same time.

Most batches are small or cheap, and run serially without being looked at. The parallel kernels are compiled in the
background when they first seem worth it. Until then the stream goes on serially.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from penstock.execute.native import BatchContext, Kernel
from penstock.execute.order import PASSED
from penstock.schedule.backoff import Backoff
from penstock.schedule.choose import LEAST_WORK, Choice, Chooser, Features, parse_policy, too_little_work
from penstock.schedule.costs import Costs
from penstock.schedule.event_cost import ABORT_SAVING, SAME, EventCost
from penstock.schedule.executors import Executors
from penstock.schedule.graph import Graph
from penstock.schedule.graph_executor import Batch
from penstock.schedule.policy import Policy, RunSummary
from penstock.schedule.similarity import Similarity

# A sample is the first events of a batch, run serially to see what one costs: so many events, one size after the other,
# until a size took more than so many times what a call of the kernel takes. Chosen by hand.
_SAMPLE_SIZES, _SAMPLE_CALLS = (4, 16, 64, 256), 4
# Events from which a batch is large: only large ones are sampled. Chosen by hand.
_LARGE = 2048
# While batches are similar, costs are learned from one in so many that are looked at. Chosen by hand.
_LEARN_INTERVAL = 3
# A batch of little work is ignored if it took as long as expected, to within this ratio. Chosen by hand.
_EXPECTED = 0.7
# It is also ignored if it did not and is the first: perhaps it was held up. So many in a row count, and the one after
# them. Chosen by hand.
_SURPRISES = 2
# A graph with more than so many times the events of the largest before lies in memory that is touched for the first
# time, so nothing is learned from it. Chosen by hand.
_LARGER_GRAPH = 1.2

NONE_RUNS = RunSummary(Policy.serial(), "all of it came too late to run, or has run already")
_NO_SUMMARY = RunSummary(Policy.serial(), "")
_NO_LITTLE = 0, _NO_SUMMARY, 0


class Adaptive:
    """One group of transactions: what its events cost, how its batches differ, and the policy that suits them."""

    def __init__(self, kernel: Kernel, compiled: Executors, costs: Costs) -> None:
        self.kernel, self.executors = kernel, compiled
        self.chooser = Chooser(costs)
        self.event_cost, self.similarity, self.backoff = EventCost(), Similarity(), Backoff()
        self._list_length = 1.0  # records that an event reaches, over those that are known without reading its lists
        self._last = _NO_SUMMARY
        # The last batch, if it was of little work: its events, its summary, surprises in a row.
        self._little = _NO_LITTLE
        self._promising = 0  # batches in a row that seemed worth a graph
        self._sites = 0.0  # records that an event of the last large batch reached, if its lists had one each
        self._largest_graph = 0  # events

    def run(self, running: BatchContext, threads: int) -> RunSummary:
        cost = self.event_cost.seconds
        if cost is not None and cost * running.count < LEAST_WORK:
            return self._run_little(running, cost)
        self._little = _NO_LITTLE
        late = _count_passed(running.fixed["kind"])
        if late:
            self.kernel.run(running, 0, late)
        if late == running.count:
            return NONE_RUNS
        self._last = self._run(running, threads, late)
        self.similarity.observe_aborts(_abort_ratio(running, late), running.count - late)
        if self.event_cost.mismatches and self.event_cost.looked_at:
            self.similarity.reset()  # it was not as expected
        return self._last

    def _run(self, running: BatchContext, threads: int, late: int) -> RunSummary:
        """late: events at the head of the batch that came too late; they have run."""
        if threads < 2:
            return self._run_without_graph(running, late, "there is one core")
        events, known = running.count - late, self.event_cost.seconds is not None
        large = events >= _LARGE
        if not known and not large:
            return self._run_without_graph(running, late, "the first batch shows what an event costs")
        self.event_cost.looked_at = not (self.event_cost.steady() and self.similarity.repeats(events, threads))
        if not self.event_cost.looked_at:
            return self._repeat(running, late)
        sites = self.executors.graph.accesses(running.fixed["kind"][late:])
        unknown = large and self._forget_other_transactions(sites)
        features = self._features(events, threads, sites)
        comparable = self.similarity.look(events, threads)
        if self.backoff.next_is_serial(unknown or not comparable, self.event_cost.seconds or 0.0):
            return self._run_without_graph(
                running, late, "by a graph, the last ones took longer than they would have without"
            )
        if unknown:
            done = self._sample(running, late)
            return self._run_rest(running, self._features(running.count - done, threads, sites), done)
        if large and self.chooser.serial_is_certain(features):
            self._allow_repeats()
            return self._skip_graph(running, features, late)
        return self._run_rest(running, features, late)

    def _forget_other_transactions(self, sites: float) -> bool:
        """Whether the transactions of a large batch reach more records than those of the last one, or fewer. What is
        known of those says nothing of these, and is forgotten."""
        before, self._sites = self._sites, sites
        others = not SAME * before <= sites <= before / SAME
        if others:
            self.event_cost.reset()
            self.chooser.last_features, self._list_length = None, 1.0
        return others

    # -- as the last one --------------------------------------------------------------------

    def _allow_repeats(self) -> None:
        """Similar batches repeat this one's policy. Not if it is the first of its kind, whose cost is not sure yet."""
        if not self.event_cost.mismatches:
            self.similarity.allow_repeats()

    def _repeat(self, running: BatchContext, late: int) -> RunSummary:
        policy, why = self._last.policy, self._last.why
        if policy.scheme == "serial":
            if not self._promising:
                self.backoff.record_skip()
            return self._run_serially(running, late, Choice(policy, why))
        batch = self.executors.graph.begin(running, policy, late, running.count)
        spent, _ = self._time_graph(batch, batch.graph())
        self._observe_graph(batch)
        return RunSummary(policy, why, spent)

    # -- without a graph --------------------------------------------------------------------

    def _run_little(self, running: BatchContext, cost: float) -> RunSummary:
        """The short way of a batch that no graph could be worth: one that takes 0.1 ms feels every line of Python."""
        took, expected = self._time_serial(running, 0, running.count), cost * running.count
        as_expected = _EXPECTED * expected < took < expected / _EXPECTED
        events, summary, surprises = self._little
        surprises = 0 if as_expected and surprises < _SURPRISES else surprises + 1
        if events == running.count and surprises < _SURPRISES:
            self._little = events, summary, surprises
            return summary
        self._observe_serial(running, 0, took)
        self.similarity.reset()
        self._promising, self.chooser.last = 0, "serial"
        summary = RunSummary(parse_policy("serial", 1), too_little_work(running.count, self.event_cost.seconds or cost))
        self._little = running.count, summary, 0 if as_expected else _SURPRISES
        return summary

    def _run_without_graph(self, running: BatchContext, done: int, why: str) -> RunSummary:
        """Events from `done` on are left to run, here and below."""
        return self._run_serially(running, done, self.chooser.serial(why))

    def _skip_graph(self, running: BatchContext, features: Features, done: int) -> RunSummary:
        """A graph seems too expensive. If that has been so for long, what was learned is forgotten."""
        self._promising = 0
        summary = self._run_without_graph(running, done, too_little_work(features.events, features.cost))
        self.backoff.record_skip()
        if self.backoff.retry_due and Chooser(Costs(), last="").graph_may_win(features):
            self.backoff.start_retry()
            self.similarity.reset()
            self.chooser.forget(features)
        return summary

    def _run_serially(self, running: BatchContext, done: int, choice: Choice) -> RunSummary:
        self._observe_serial(running, done, self._time_serial(running, done, running.count))
        return RunSummary(choice.policy, choice.why)

    def _observe_serial(self, running: BatchContext, done: int, took: float) -> None:
        """The serial loop ran the rest of a batch."""
        self.backoff.observe_serial(took / (running.count - done))
        aborted = _abort_ratio(running, done) if running.count >= _LARGE else self.similarity.abort_ratio
        self.event_cost.observe_serial(took, running.count - done, aborted)

    def _sample(self, running: BatchContext, done: int) -> int:
        """Run the next events serially to see what one costs. Returns where they end."""
        self._time_serial(running, done, done + 1)  # the first call of all takes twice as long
        call, seconds = self._time_serial(running, done + 1, done + 2), 0.0
        done += 2
        for count in _SAMPLE_SIZES:
            took = self._time_serial(running, done, done + count)
            done += count
            # The call before ran one event: it shows what a call costs.
            seconds = max(1e-9, (took - min(call, took / 2)) / (count - 1))
            if took > _SAMPLE_CALLS * call:
                break
        self.event_cost.observe_sample(seconds)
        return done

    def _time_serial(self, running: BatchContext, start: int, stop: int) -> float:
        """Run events serially. Returns the seconds that took."""
        begun = time.perf_counter()
        self.kernel.run(running, start, stop)
        return time.perf_counter() - begun

    def _time_graph(self, batch: Batch, graph: Graph) -> tuple[dict[str, float], float]:
        """Run a batch by its graph. Returns thread-seconds by what they went to, and seconds since the batch began."""
        spent = batch.run(graph)
        return spent, time.perf_counter() - batch.begun

    # -- with a graph -----------------------------------------------------------------------

    def _features(self, events: int, threads: int, sites: float) -> Features:
        return Features(
            events=events,
            cost=self.event_cost.seconds or 0.0,
            threads=threads,
            accesses=self._list_length * sites,
            splittable=self.executors.graph.splits.any,
            abort_ratio=self.similarity.abort_ratio,
        )

    def _run_rest(self, running: BatchContext, features: Features, done: int) -> RunSummary:
        """Run what is left of a batch once the cost of an event is known."""
        small = self.similarity.events < _LARGE
        if not self.chooser.graph_may_win(features):
            if small:
                self._allow_repeats()
            return self._skip_graph(running, features, done)
        self._promising += 1
        missing = self.executors.missing(features.threads, sure=self._promising > 1 or not small)
        if missing:
            return self._run_without_graph(running, done, missing)
        if small:
            self._allow_repeats()
        any_graph = parse_policy("bfs/transaction/eager", features.threads)
        batch = self.executors.graph.begin(running, any_graph, done, running.count)
        graph = batch.graph()
        found = batch.features(graph, features)
        if found.accesses and features.accesses:
            self._list_length *= found.accesses / features.accesses
        before = self.chooser.last
        choice = self.chooser.choose(found)
        if choice.policy.scheme == "serial":
            return self._run_serially(running, done, choice)
        batch.policy = choice.policy
        spent, took = self._time_graph(batch, graph)
        self.chooser.trials.observe(batch.policy.name, took / features.events, self.chooser.estimates)
        self._observe_graph(batch)
        cost = self.event_cost.seconds or 0.0
        paid = took < cost * features.events
        if paid:
            self.backoff.record_win()
        if features.events > _LARGER_GRAPH * self._largest_graph:
            self._largest_graph = features.events
        else:
            if not paid:
                self.backoff.record_loss(cost, took / features.events)
            if not (paid and self.event_cost.steady() and self.similarity.looks % _LEARN_INTERVAL):
                self._learn(replace(features, cost=cost), batch, spent)
        if choice.trial:
            self.similarity.reset()
        elif not paid:
            self.similarity.limit_repeats()
        elif not small and self.chooser.last == before:
            self.similarity.allow_repeat_of_large()
        return RunSummary(choice.policy, choice.why, spent)

    def _observe_graph(self, batch: Batch) -> None:
        """What a graph batch shows of an event's cost."""
        own, aborted = batch.ran / batch.count, _abort_ratio(batch.running, batch.start)
        if batch.policy.unit != "transaction":
            own *= 1 - ABORT_SAVING * aborted  # the serial loop would have stopped where a fragment aborts
        self.event_cost.observe_graph(batch.policy.name, own, batch.accesses, aborted, batch.policy.threads)

    def _learn(self, features: Features, batch: Batch, spent: dict[str, float]) -> None:
        self.chooser.costs.learn(
            batch.policy.name,
            batch.policy.threads,
            events=features.events,
            entries=batch.entries,
            work=features.work,
            spent=spent,
        )


def _count_passed(kind: Any) -> int:
    """How many events at the head of a batch do not run: those that came too late. Duplicates stand among the rest."""
    if kind[0] < PASSED:
        return 0
    runs = kind < PASSED
    return int(np.argmax(runs)) if runs.any() else kind.size


def _abort_ratio(running: BatchContext, start: int) -> float:
    """The share of a batch's events, from `start` on, that aborted."""
    return float(np.count_nonzero(running.result.code[start:])) / (running.count - start)
