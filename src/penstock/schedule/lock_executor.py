"""A batch under locks: threads run events on the tables themselves, each under the locks of the records it may reach.

    accesses   which records each event may reach, found in the index                (generated, codegen/accesses.py)
    claim      what it has to lock                                                   (schedule/locks.py)
    locked     threads take their events in turn, lock, run, unlock                  (generated, codegen/locked.py)
    merge      what the threads listed as written or dead, to the tables

A key that a growing table does not have was given a dead record when accesses were found, so threads never change
where the index keeps what; they only say of a record whether it lives.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import numpy as np

from penstock.execute import steps
from penstock.execute.codegen.layout import LOG_SIZE
from penstock.execute.native import BatchContext
from penstock.schedule import atomics, cores, graph, locks, team
from penstock.schedule.codegen.locked import generate_locked
from penstock.schedule.generated import Generated
from penstock.schedule.graph import Graph
from penstock.schedule.graph_executor import Batch, GraphExecutor
from penstock.schedule.locks import Locks
from penstock.schedule.policy import Policy
from penstock.state import hashing
from penstock.state.jit import borrowed, kernel
from penstock.state.table import DIRTY, TOMBSTONES

_CALLED = (atomics, cores, graph, locks, team)  # by generated source, or by what that calls
_LOG = ("undo_what", "undo_at", "undo_old", "touched")


class LockExecutor:
    def __init__(self, executor: GraphExecutor) -> None:
        self.executor, self.kernel = executor, executor.kernel
        self.wanted = self.kernel.layout.arguments
        ops = [op for t in self.kernel.plan.transactions for op in t.block.walk()]
        self.mortal = {op.table for op in ops if "presence" in op.traits.writes}
        self.jitter = 0
        self._generated = Generated(self.kernel, self.wanted, _CALLED)
        self._logs: list[list[Any]] = []

    def run(self, running: BatchContext, policy: Policy, start: int, stop: int) -> dict[str, float]:
        """Run these events; seconds of all threads together, by what they were spent on."""
        begun = time.perf_counter()
        batch = Batch(self.executor, running, policy.with_threads(min(policy.threads, stop - start)), start, stop)
        graph = batch.find()
        held = self._locks(batch, graph, policy)
        if policy.scheme == "none":
            self._announce(batch, graph)
        built = time.perf_counter(), locks.clock()
        self._work(batch, held)
        worked = time.perf_counter(), locks.clock()
        if policy.scheme == "none":
            self._mend_index(batch, graph)
        ended = time.perf_counter()
        rate = (worked[0] - built[0]) / max(1, worked[1] - built[1])
        construct = (built[0] - begun + ended - worked[0]) * batch.threads
        return _spent(held, batch.count, rate) | {"construct": construct}

    def _locks(self, batch: Batch, graph: Graph, policy: Policy) -> Locks:
        partitions = (policy.partitions or policy.threads) if policy.scheme == "pat" else 0
        size = partitions or int(batch.rows[-1])
        held = locks.locks(batch.memory, graph, policy.scheme, batch.threads, size, self.jitter)
        if policy.scheme != "none":
            batch.together(locks.claim, graph, held.claims, partitions)
        return held

    # -- threads ----------------------------------------------------------------------------

    def _work(self, batch: Batch, held: Locks) -> None:
        function = self._function(held)
        while len(self._logs) < batch.threads:
            self._logs.append(_log(LOG_SIZE))
        lists = [self._lists(batch, me) for me in range(batch.threads)]

        def one(me: int) -> None:
            given = batch.given(self.wanted) | lists[me]
            # What scans runs alone.
            given |= {"info": np.zeros(1, np.int64), "scanned": np.zeros(0, np.int64), "start": me, "stop": batch.count}
            while given["start"] < batch.count:
                given |= zip(_LOG, self._logs[me], strict=True)
                given["start"] = int(function(held, me, *[given[a.name] for a in self.wanted]))
                if given["start"] < batch.count:  # only the log can be full
                    self._logs[me] = _log(2 * self._logs[me][0].size)

        batch.team.each(batch.threads, one, lambda: locks.fail(held))
        _merge(batch, lists)

    def _function(self, held: Locks) -> Any:
        generate = partial(generate_locked, self.kernel.plan, self.kernel.layout)
        return self._generated.function("locked", generate, "locked", (held, 0))

    def _lists(self, batch: Batch, me: int) -> dict[str, Any]:
        """A thread's own lists of what it wrote and what died, and their counts."""
        out = {}
        for n, table in enumerate(batch.tables):
            # Each thread lists a record at most once, and only records that its events may write.
            most = min(table.capacity, batch.entries) + 1
            for part in ("dirty", "tombstones"):
                out[f"t{n}_{part}"] = batch.memory.take(f"{part} {n} of {me}", most)
            out[f"t{n}_meta"] = table.meta.copy()
            out[f"t{n}_meta"][[DIRTY, TOMBSTONES]] = 0
        return out

    # -- without locks ----------------------------------------------------------------------

    def _announce(self, batch: Batch, graph: Graph) -> None:
        """Before threads run that would not agree: what may be written counts as written, what may die is listed."""
        number = batch.running.fixed["batch"]
        for n, table in enumerate(batch.tables):
            low, high = batch.rows[n], batch.rows[n + 1]
            mortal = table.definition.name in self.mortal
            announce(
                graph, low, high, number, mortal, table.written, table.dirty, table.flags, table.tombstones, table.meta
            )

    def _mend_index(self, batch: Batch, graph: Graph) -> None:
        """Two threads may have left a record's flag and its slot in the index at odds."""
        for table in batch.tables:
            if table.definition.name in self.mortal:
                rows = table.tombstones[: table.meta[TOMBSTONES]]
                hashing.mend_index(table.slots, table.stored, table.flags, rows)


def _log(size: int) -> list[Any]:
    return [np.zeros(size, np.int64) for _ in _LOG]


@kernel
def announce(
    g: Graph,
    low: Any,
    high: Any,
    batch: Any,
    mortal: Any,
    written: Any,
    dirty: Any,
    flags: Any,
    tombstones: Any,
    meta: Any,
) -> None:
    g = borrowed(g)
    d, n = meta[DIRTY], meta[TOMBSTONES]
    for e in range(g.record.size):
        if not g.writes[e] or g.record[e] < low or g.record[e] >= high:
            continue
        row = g.record[e] - low
        d = steps.touch(written, dirty, d, row, batch)
        if mortal and flags[row] & hashing.LISTED == 0:
            flags[row] |= hashing.LISTED
            tombstones[n] = row
            n += 1
    meta[DIRTY], meta[TOMBSTONES] = d, n


def _merge(batch: Batch, lists: list[dict[str, Any]]) -> None:
    """What the threads listed, to the tables. No two list the same record: whoever lists it marks it."""
    for n, table in enumerate(batch.tables):
        for own in lists:
            for part, place in (("dirty", DIRTY), ("tombstones", TOMBSTONES)):
                count, before = own[f"t{n}_meta"][place], table.meta[place]
                getattr(table, part)[before : before + count] = own[f"t{n}_{part}"][:count]
                table.meta[place] += count


def _spent(held: Locks, events: int, rate: float) -> dict[str, float]:
    """Seconds by what they were spent on. Waiting is measured, running is sampled."""
    own = held.own.reshape(held.threads, locks.OWN)
    ran = (events - np.arange(held.threads) + held.threads - 1) // held.threads
    more = ran / np.maximum(1, (ran + locks.SAMPLE - 1) // locks.SAMPLE)
    return {
        "useful": float((own[:, locks.USEFUL] * more).sum()) * rate,
        "abort": float((own[:, locks.ABORTING] * more).sum()) * rate,
        "lock": float(own[:, locks.LOCK].sum()) * rate,
        "sync": float(own[:, locks.SYNC].sum()) * rate,
    }
