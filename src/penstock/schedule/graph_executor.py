"""A batch by its graph: every event's view of a record has a place of its own, and threads run what is ready.

    accesses   which records each event may reach, found in the index            (generated)
    link       the chains of the records                                         (graph.py)
    prepare    what threads take, and who waits for whom                         (fragments.py, tasks.py)
    work       threads explore the graph and run events on versions              (generated, explore.py)
    install    the last version of every record, to the tables                   (generated)

Nothing is written to the tables before `install`, and nothing can fail in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from penstock.execute.codegen.layout import CLOCK, Argument
from penstock.execute.native import BatchContext, Kernel
from penstock.execute.order import clocks_of
from penstock.plan.foresee import foresee
from penstock.plan.ir import Plan
from penstock.schedule import atomics, cores, explore, team
from penstock.schedule import graph as graphs
from penstock.schedule.choose import Features
from penstock.schedule.codegen.accesses import COUNT, FIND, PLACE
from penstock.schedule.codegen.fragments import VERDICT_BITS
from penstock.schedule.codegen.parallel import generate_state, generate_work, parallel_arguments
from penstock.schedule.codegen.work import SAMPLE
from penstock.schedule.explain import explain
from penstock.schedule.fragments import Splits
from penstock.schedule.generated import Generated
from penstock.schedule.graph import COMMITTED, Fragments, Graph, GraphBuffers, affected, begins, empty, link, outline
from penstock.schedule.policy import Policy, redone
from penstock.schedule.tasks import prepare, prepare_again
from penstock.schedule.team import Team
from penstock.state.lanes import dtype
from penstock.state.table import USED

_CALLED = (atomics, cores, explore, graphs, team)  # by generated source, or by what that calls
# How many events, or entries, are worth a thread: where each has to be looked up in memory, and where it is a few
# instructions on arrays.
HEAVY, LIGHT = 512, 2048
# How many events of a batch, or which share of them if that is more, tell how its paths and strata are.
FEW, SHARE = 2048, 8


class GraphExecutor:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.plan = kernel, kernel.plan
        self.team = Team()
        self.memory = GraphBuffers()
        self.jitter = 0
        self.wanted = parallel_arguments(self.plan)
        self.touched = [a.name for a in self.wanted].index("touched")
        self.splits = Splits(self.plan)
        self._lanes, self._handed = (
            [(a.name, dtype(a.type)) for a in self.wanted if a.owner == owner and a.type is not None]
            for owner in ("version", "handed")
        )
        self.sites, self.widths = _widths(self.plan)
        self._generated = Generated(kernel, self.wanted, _CALLED)
        self._stamp = 0

    # -- compiling --------------------------------------------------------------------------

    def function(self, name: str, *graph: Any) -> Any:
        """`accesses` or `install`."""
        generate = partial(generate_state, self.plan, self.kernel.layout)
        return self._generated.function("state", generate, name, graph, step=True)

    def work(self, cut: bool, graph: Graph, fragments: Fragments, state: explore.State) -> Any:
        generate = partial(generate_work, self.plan, self.kernel.layout, cut=cut)
        return self._generated.function(
            "cut" if cut else "whole", generate, "work", (graph, fragments, state), step=True
        )

    def adopt(self, other: GraphExecutor) -> None:
        """Take over what another has compiled."""
        self._generated.adopt(other._generated)

    # -- one batch --------------------------------------------------------------------------

    def begin(self, running: BatchContext, policy: Policy, start: int, stop: int) -> Batch:
        return Batch(self, running, policy, start, stop)

    def run(self, running: BatchContext, policy: Policy, start: int, stop: int) -> dict[str, float]:
        """Run these events; seconds of all threads together, by what they were spent on."""
        batch = self.begin(running, policy, start, stop)
        return batch.run(batch.graph())

    def warm(self, running: BatchContext, policy: Policy) -> None:
        """Compile all that such a policy, or looking at its graph, may call: run nothing."""
        batch = self.begin(running, policy, 0, 0)
        graph = batch.graph()
        outline(graph, 0, policy.threads)
        affected(graph, self.splits.fragments(batch, graph), batch.all)
        batch.run(graph)

    def accesses(self, kind: Any) -> float:
        """Records that an event reaches, on average, by some of them; lists are taken for one."""
        some = kind[:: max(1, kind.size // 4096)]
        return float(self.sites.take(some).sum()) / max(1, some.size)

    def stamp(self) -> int:
        """A number that no earlier batch used: chains are known by it."""
        self._stamp += 1
        return self._stamp


class Batch:
    """The steps of one batch, and the arguments that they share."""

    def __init__(self, executor: GraphExecutor, running: BatchContext, policy: Policy, start: int, stop: int) -> None:
        self.begun = time.perf_counter()
        self.executor, self.running, self.policy = executor, running, policy
        self.memory, self.team, self.threads = executor.memory, executor.team, policy.threads
        self.start, self.stop, self.count = start, stop, stop - start
        self.kind = running.fixed["kind"][start:stop]
        self.tables = [running.tables[t.name] for t in executor.plan.program.tables]
        for table in self.tables:
            table.forget_indexes()  # threads post nothing
        self.entries = 0
        self.ran = 0.0  # thread-seconds of the events' own code, but for what was redone
        self._arguments: list[Any] | None = None
        self.all = self.memory.take("all", self.count, np.uint8)
        self.all[:] = 1

    @property
    def accesses(self) -> float:
        """Records that an event reaches, on average; known when they are found."""
        return self.entries / max(1, self.count)

    def given(self, wanted: tuple[Argument, ...]) -> dict[str, Any]:
        """What does not change while these events run; what lies by event, from the first of them on."""
        out = self.running.arguments()
        for argument in wanted:
            if argument.owner == "out" or argument.part in ("kind", "pos", "code"):
                out[argument.name] = out[argument.name][self.start : self.stop]
            elif argument == CLOCK:
                out[argument.name] = clocks_of(out[argument.name], np.arange(self.start, self.stop))
        return out

    def arguments(self) -> list[Any]:
        """Of every step, after its own: made once the entries are counted and the tables have room."""
        if self._arguments is None:
            self._arguments = self._make_arguments()
        return self._arguments

    def _make_arguments(self) -> list[Any]:
        wanted = self.executor.wanted
        given = self.given(wanted)
        for name, kind in self.executor._lanes:
            given[name] = self.memory.take(name, self.entries, kind)
        given["mark"] = self.memory.take("mark", self.entries, np.uint8)
        given["rows"] = self.rows
        for name, kind in self.executor._handed:
            values = self.executor.splits.handed[name]
            given[name] = self.memory.take(name, values * self.count, kind).reshape(values, self.count)
        given["info"] = self.missing
        given["touched"] = self.missing  # only `work` lists what it touched
        return [given[a.name] for a in wanted]

    def together(self, step: Any, *arguments: Any, count: int | None = None, least: int = LIGHT) -> None:
        """A step by all threads; fewer where there are fewer than `least` events, or whatever is counted, for each."""
        threads = max(1, min(self.threads, (self.count if count is None else count) // least))
        self.team.run(step, threads, *arguments)

    def _lay_rows(self) -> None:
        """Number the rows of all tables through."""
        sizes = [0, *(t.capacity for t in self.tables)]
        self.rows = np.cumsum(sizes).astype(np.int64)
        self.missing = np.zeros(max(1, len(self.tables)), np.int64)
        self._arguments = None

    def run(self, graph: Graph) -> dict[str, float]:
        """Explore a graph and put what came of it into the tables; thread-seconds, from when the batch began."""
        cut = self.policy.unit != "transaction"
        fragments = self.executor.splits.fragments(self, graph)
        state = prepare(self, graph, fragments)
        built = time.perf_counter()
        self.work(graph, fragments, state)
        worked = done = time.perf_counter()
        out = spent(self.threads, state, worked - built)
        self.ran = out["useful"] + out["abort"]
        if cut and self.policy.on_abort == "lazy":
            self.redo(graph, fragments)
            done = time.perf_counter()
        if cut:
            self.report_aborts(graph)
        self.install(graph)
        building = built - self.begun + time.perf_counter() - done
        out["abort"] += (done - worked) * self.threads
        return out | {"construct": building * self.threads}

    def explain(self, titles: list[str], record: Callable[[Any, int], str]) -> str:
        """The graph and the schedule of these events, which do not run. record: a table and a row as text."""
        graph = self.graph()
        fragments = self.executor.splits.fragments(self, graph)
        state = prepare(self, graph, fragments)

        def named(entry: int) -> str:
            if graph.record[entry] < 0:
                return "a record that is not there"
            n = int(np.searchsorted(self.rows, graph.record[entry], side="right")) - 1
            return record(self.tables[n], int(graph.record[entry] - self.rows[n]))

        return explain(graph, fragments, self.policy, titles, named, state.task)

    def features(self, graph: Graph, known: Features) -> Features:
        """What the graph tells: the hottest record and, where it may matter, paths and strata."""
        chain = int(graph.rank.max(initial=-1)) + 1
        found = replace(known, accesses=self.accesses, chain=chain)
        if chain * self.threads * 4 > self.count:
            some = max(min(self.count, FEW), self.count // SHARE)
            path, strata, rounds = (self.count / some * k for k in outline(graph, some, self.threads))
            found = replace(found, path=path, strata=strata, rounds=rounds)
        return found

    # -- construct --------------------------------------------------------------------------

    def find(self) -> Graph:
        """The entries: which records each event may reach."""
        first = self.memory.take("first", self.count + 1)
        first[0] = 0
        self._lay_rows()
        counting = empty(self.memory, first, self.count, 0)
        accesses = self.executor.function("accesses", counting, 0)
        if self.executor.widths is None:
            self.together(accesses, counting, COUNT, *self.arguments(), least=HEAVY)
            np.cumsum(first, out=first)
        else:
            begins(self.executor.widths, self.kind, first)
        self.entries, self._arguments = int(first[-1]), None
        graph = empty(self.memory, first, self.count, self.entries)
        self._find(graph, accesses)
        return graph

    def graph(self) -> Graph:
        """The entries, and the chains of the records."""
        graph = self.find()
        stamp, total = self.executor.stamp(), int(self.rows[-1])
        tails, writers = self.memory.take("tails", total), self.memory.take("writers", total)
        self.tails = tails
        self.together(link, graph, tails, writers, stamp, count=self.entries)
        return graph

    def _find(self, graph: Graph, accesses: Any) -> None:
        """The record of every entry; keys that may come to be in this batch get a dead one."""
        arguments = self.arguments()
        self.together(accesses, graph, FIND, *arguments, least=HEAVY)
        if not self.missing.any():
            return
        full = False
        for table, missing in zip(self.tables, self.missing, strict=False):
            if missing and int(table.meta[USED]) + missing > table.capacity:
                table.reserve(int(missing))
                full = True
        if full:
            self._lay_rows()
            self._find(graph, accesses)
        else:
            self.team.run(accesses, 1, graph, PLACE, *arguments)

    # -- run --------------------------------------------------------------------------------

    def work(self, graph: Graph, fragments: Fragments, state: explore.State) -> None:
        widest = int(np.diff(graph.first).max(initial=0))
        function = self.executor.work(self.policy.unit != "transaction", graph, fragments, state)

        # Before the threads begin: one that finds no memory would leave the others waiting for it.
        arguments, place = self.arguments().copy(), self.executor.touched
        arguments[place] = self.memory.take("touched", self.threads * (2 * widest + 16))
        self.team.run(function, self.threads, graph, fragments, state, *arguments)

    def redo(self, graph: Graph, fragments: Fragments) -> None:
        """After running ahead: run again, cautiously, what aborted and all that saw it."""
        if (graph.verdict == COMMITTED).all():
            return
        active = self.memory.take("active", self.count, np.uint8)
        if affected(graph, fragments, active):
            careful = fragments._replace(cautious=np.ones(1, np.int64))
            by = redone(self.policy.explore, self.ran / fragments.owner.size, self.threads)
            self.work(graph, careful, prepare_again(self, graph, careful, active, by))

    def report_aborts(self, graph: Graph) -> None:
        """The reasons of events that aborted fragment by fragment; they return nothing."""
        aborted = np.flatnonzero(graph.verdict != COMMITTED)
        if aborted.size:
            result, places = self.running.result, aborted + self.start
            result.code[places] = graph.verdict[aborted] & ((1 << VERDICT_BITS) - 1)
            for values, given in result.fields:
                values[places], given[places] = 0, False

    def install(self, graph: Graph) -> None:
        function = self.executor.function("install", graph)
        self.together(function, graph, *self.arguments(), count=self.entries, least=HEAVY)


def _widths(plan: Plan) -> tuple[Any, Any]:
    """Kind of event -> its sites; and the same once more if that is all it takes to count entries, or None."""
    widths = np.zeros(256, np.int64)  # late events have kinds of their own, and no entries
    fixed = True
    for transaction in plan.transactions:
        foresight = foresee(transaction)
        if foresight is not None:
            fixed &= not foresight.loops
            widths[plan.program.kind(transaction.event)] = len(foresight.sites)
    return widths, widths if fixed else None


def spent(threads: int, state: explore.State, wall: float) -> dict[str, float]:
    """What the threads' clocks say, in seconds of all threads. Work is sampled, waiting is not."""
    own = state.own.reshape(threads, explore.OWN)
    second = max(1, int(own[:, explore.ALL].max())) / wall
    # One in so many is timed, the first of every thread among them.
    share = max(1.0, state.total / threads)
    times = share / np.ceil(share / SAMPLE)
    useful, abort = (times * own[:, k].sum() / second for k in (explore.USEFUL, explore.ABORTING))
    sync = own[:, explore.WAITING].sum() / second
    # A thread that comes late to a short batch has waited too.
    late = threads * wall - own[:, explore.ALL].sum() / second
    explored = max(0.0, threads * wall - useful - abort - sync - late)
    return {"useful": useful, "abort": abort, "explore": explored, "sync": sync + late}
