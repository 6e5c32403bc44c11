"""A batch by its graph: every event's view of a record has a place of its own, and threads run what is ready.

    accesses   which records each event may reach, found in the index            (generated)
    link       the chains of the records, and who waits for whom                 (schedule/graph.py)
    work       threads explore the graph and run events on versions              (generated, schedule/explore.py)
    install    the last version of every record, to the tables                   (generated)

Nothing is written to the tables before `install`, and nothing can fail in it.
"""

from __future__ import annotations

import time
from typing import Any

import numba as nb
import numpy as np
from numba import types

from penstock.execute.codegen.layout import Argument
from penstock.execute.codegen.parallel import COUNT, FIND, PLACE, SAMPLE, generate_parallel, lanes_of
from penstock.execute.native import Kernel, Running, load_module, numba_type
from penstock.execute.team import Team
from penstock.schedule import explore
from penstock.schedule.graph import Graph, Memory, Pieces, by_level, depths, empty, heights, link, owners, waits
from penstock.schedule.policy import Policy
from penstock.state.lanes import dtype
from penstock.state.table import GRAVES, USED

_EXPLORE = {"bfs": explore.BFS, "dfs": explore.DFS, "ready": explore.READY}


class Versioned:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.plan = kernel, kernel.plan
        self.team = Team()
        self.memory = Memory()
        self.jitter = 0
        self.source, self.wanted = generate_parallel(self.plan, kernel.layout)
        self._lanes = [(name, dtype(type_)) for name, type_ in lanes_of(self.plan)]
        self._module: Any = None
        self._stamp = 0

    # -- compiling --------------------------------------------------------------------------

    def _function(self, name: str, *graph: Any) -> Any:
        """A function of the generated module, compiled for these arguments before the batch's own."""
        if self._module is None:
            self._module = load_module(self.source, self.kernel.names())
        function = getattr(self._module, name)
        signature = (*(nb.typeof(g) for g in graph), *(numba_type(a) for a in self.wanted))
        if signature not in function.overloads:
            function.compile(signature)
        return function

    # -- one batch --------------------------------------------------------------------------

    def run(self, running: Running, policy: Policy, start: int, stop: int) -> dict[str, float]:
        """Run these events; seconds of all threads together, by what they were spent on."""
        begun = time.perf_counter()
        batch = Batch(self, running, policy, start, stop)
        graph = batch.graph()
        pieces = batch.whole(graph)
        state = batch.prepare(graph, pieces)
        built = time.perf_counter()
        batch.work(graph, pieces, state)
        worked = time.perf_counter()
        batch.install(graph)
        ended = time.perf_counter()
        return _spent(policy.threads, state, worked - built) | {
            "construct": (built - begun + ended - worked) * policy.threads
        }

    def stamp(self) -> int:
        """A number that no earlier batch used: chains are known by it."""
        self._stamp += 1
        return self._stamp


class Batch:
    """The steps of one batch, and the arguments that they share."""

    def __init__(self, versioned: Versioned, running: Running, policy: Policy, start: int, stop: int) -> None:
        self.versioned, self.running, self.policy = versioned, running, policy
        self.memory, self.team, self.threads = versioned.memory, versioned.team, policy.threads
        self.start, self.stop, self.count = start, stop, stop - start
        self.tables = [running.tables[t.name] for t in versioned.plan.program.tables]
        self.entries = 0

    def given(self, wanted: tuple[Argument, ...]) -> dict[str, Any]:
        """What does not change while these events run; what lies by event, from the first of them on."""
        out = self.running.arguments(wanted)
        for argument in wanted:
            if argument.owner == "out" or argument.part in ("kind", "pos", "code"):
                out[argument.name] = out[argument.name][self.start : self.stop]
        return out

    def arguments(self, touched: Any = None) -> list[Any]:
        wanted = self.versioned.wanted
        given = self.given(wanted)
        for name, kind in self.versioned._lanes:
            given[name] = self.memory.take(name, self.entries, kind)
        given["mark"] = self.memory.take("mark", self.entries, np.uint8)
        given["rows"] = self.rows
        given["info"] = self.missing
        given["touched"] = self.missing if touched is None else touched
        return [given[a.name] for a in wanted]

    def _lay_rows(self) -> None:
        """Number the rows of all tables through."""
        sizes = [0, *(t.capacity for t in self.tables)]
        self.rows = np.cumsum(sizes).astype(np.int64)
        self.missing = np.zeros(max(1, len(self.tables)), np.int64)

    # -- construct --------------------------------------------------------------------------

    def find(self) -> Graph:
        """The entries: which records each event may reach."""
        first = self.memory.take("first", self.count + 1)
        first[0] = 0
        self._lay_rows()
        counting = empty(self.memory, first, self.count, 0)
        accesses = self.versioned._function("accesses", counting, 0, 0, 0)
        arguments = self.arguments()
        self.team.split(self.threads, self.count, lambda a, b: accesses(counting, COUNT, a, b, *arguments))
        np.cumsum(first, out=first)
        self.entries = int(first[-1])
        graph = empty(self.memory, first, self.count, self.entries)
        self._find(graph, accesses)
        return graph

    def graph(self) -> Graph:
        """The entries, and the chains of the records."""
        graph = self.find()
        stamp, total = self.versioned.stamp(), int(self.rows[-1])
        tails, writers = self.memory.take("tails", total), self.memory.take("writers", total)
        shares = max(1, min(self.threads, self.entries // 1024))
        self.team.each(shares, lambda k: link(graph, tails, writers, stamp, k, shares))
        return graph

    def _find(self, graph: Graph, accesses: Any) -> None:
        """The record of every entry; keys that may come to be in this batch get a dead one."""
        arguments = self.arguments()

        def find(a: int, b: int) -> None:
            owners(graph, a, b)
            accesses(graph, FIND, a, b, *arguments)

        self.team.split(self.threads, self.count, find)
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
            accesses(graph, PLACE, 0, self.count, *arguments)

    # -- explore ----------------------------------------------------------------------------

    def whole(self, graph: Graph) -> Pieces:
        """Every event is one piece."""
        numbers = self.memory.take("numbers", self.count + 1)
        numbers[:] = np.arange(self.count + 1)
        none = np.zeros(0, np.int64)
        return Pieces(
            of=graph.event,
            first=numbers,
            owner=numbers,
            shape=self.memory.zeros("shape", self.count, np.uint8),
            size=np.ones(1, np.int64),
            edges=np.zeros(2, np.int64),
            source=none,
            target=none,
            decides=np.zeros((1, 1), np.uint8),
            cautious=np.zeros(1, np.int64),
        )

    def prepare(self, graph: Graph, pieces: Pieces) -> explore.State:
        tasks = int(pieces.first[self.count])
        how = _EXPLORE[self.policy.explore]
        arrays: dict[str, Any] = {"pending": self.memory.take("pending", tasks)}
        if how == explore.READY:
            self.team.split(self.threads, self.count, lambda a, b: waits(graph, pieces, arrays["pending"], a, b))
            arrays["priority"] = height = self.memory.take("height", tasks)
            longest = heights(graph, pieces, height)
            arrays["order"] = _sources(self.memory, arrays["pending"], height, longest)
        else:
            if how == explore.DFS:
                self.team.split(self.threads, self.count, lambda a, b: waits(graph, pieces, arrays["pending"], a, b))
            depth = self.memory.take("depth", tasks)
            levels = int(depths(graph, pieces, depth, self.memory.take("decided", self.count)))
            arrays["order"] = self.memory.take("order", tasks)
            arrays["bounds"] = self.memory.take("bounds", levels + 1)
            by_level(depth, levels, arrays["order"], arrays["bounds"])
            arrays["heads"] = self.memory.zeros("heads", levels)
            arrays["arrived"] = self.memory.zeros("arrived", levels)
        return explore.state(self.memory, self.threads, how, self.versioned.jitter, tasks, **arrays)

    def work(self, graph: Graph, pieces: Pieces, state: explore.State) -> None:
        widest = int(np.diff(graph.first).max(initial=0))
        function = self.versioned._function("work", graph, pieces, state, 0)

        def one(me: int) -> None:
            touched = np.empty(2 * widest + 2, np.int64)
            function(graph, pieces, state, me, *self.arguments(touched))

        self.team.each(self.threads, one)

    def install(self, graph: Graph) -> None:
        for table in self.tables:
            table.dirty = _room(table.dirty, table.capacity + 1)
        function = self.versioned._function("install", graph, 0, 0)
        arguments = self.arguments()
        self.team.split(self.threads, self.entries, lambda a, b: function(graph, a, b, *arguments))


def _room(array: Any, size: int) -> Any:
    return array if array.size >= size else np.concatenate([array, np.zeros(size - array.size, array.dtype)])


def _sources(memory: Memory, pending: Any, height: Any, longest: int) -> Any:
    """The tasks that wait for nothing, the longest path first."""
    free = np.flatnonzero(pending == 0)
    bounds, order = memory.take("bounds", longest + 2), memory.take("order", free.size)
    by_level(longest - height[free], longest + 1, order, bounds)
    return free[order]


def _spent(threads: int, state: explore.State, wall: float) -> dict[str, float]:
    """What the threads' clocks say, in seconds. Work is sampled, waiting is not."""
    own = state.own.reshape(threads, explore.OWN)
    return {"wall": wall}


__all__ = ["Batch", "Versioned"]
_ = (SAMPLE, GRAVES, types)
