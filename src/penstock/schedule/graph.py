"""The graph of a batch, in flat arrays: which event's access to a record waits for which.

    entry    one access of one event to one record, the event's entries side by side, in order of events
    chain    the entries of one record in order, linked by `next`: temporal dependencies
    prev     the last entry before this one that may write the record: what it will see. Readers of one version do
             not wait for each other, nor does a writer wait for readers, since every version has a place of its own
    fragment the part of an event that runs in one go: the whole event, or one record's share of it. What one of them
             of an event computes and another needs is a parametric dependency
    task     what a thread takes: a fragment, or all fragments of one or several chains

An event that may abort is decided when those of its fragments that can abort it have run: what others see of it before
is a guess (logical dependencies).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from penstock.schedule.team import ALL, dispatch, entry_point, share
from penstock.state.jit import borrowed, inlined, kernel


class Graph(NamedTuple):
    first: Any  # event -> its first entry; one more at the end
    event: Any  # entry -> event
    record: Any  # entry -> record, all tables' rows counted through; negative where there is none and can be none
    writes: Any  # entry -> whether it may write (uint8)
    canon: Any  # entry -> the first entry of the same event and record
    prev: Any  # entry -> the entry whose version it sees, if that event commits; -1: the state before the batch
    next: Any  # entry -> the next entry of its record's chain; -1: none
    rank: Any  # entry -> how many entries come before it in the chain
    last: Any  # entry -> whether no later entry of the chain may write (uint8)
    source: Any  # entry -> where its version was loaded from, once it has run
    verdict: Any  # event in fragments -> the first place of the program that aborted it, and why; or COMMITTED


COMMITTED = 1 << 62


class GraphBuffers:
    """Arrays that one batch leaves to the next."""

    def __init__(self) -> None:
        self._kept: dict[str, Any] = {}

    def take(self, name: str, size: int, dtype: Any = np.int64) -> Any:
        """An array of this size with anything in it."""
        kept = self._kept.get(name)
        if kept is None or kept.size < size or kept.dtype != dtype:
            kept = self._kept[name] = np.zeros(max(size, 64) * 5 // 4, dtype)
        return kept[:size]

    def zeros(self, name: str, size: int, dtype: Any = np.int64) -> Any:
        out = self.take(name, size, dtype)
        out[:] = 0
        return out


@kernel
def begins(widths: Any, kind: Any, first: Any) -> None:
    """Where each event's entries begin; widths: how many an event of a kind has."""
    first[0] = 0
    for i in range(kind.size):
        first[i + 1] = first[i] + widths[kind[i]]


def empty(memory: GraphBuffers, first: Any, events: int, entries: int) -> Graph:
    """A graph to be filled in."""
    names = ("event", "record", "canon", "prev", "next", "rank", "source")
    whole = {name: memory.take(name, entries) for name in names}
    small = {name: memory.zeros(name, entries, np.uint8) for name in ("writes", "last")}
    verdict = memory.take("verdict", events)
    verdict[:] = COMMITTED
    return Graph(first=first, verdict=verdict, **whole, **small)


# What is known of a record's chain while it is linked: the entry, and beside it the batch, so that nothing need be
# cleared between batches.
_SHIFT = 32
_ENTRY = (1 << _SHIFT) - 1


@kernel
def link(box: Any, me: Any, threads: Any, g: Graph, tails: Any, writers: Any, stamp: Any) -> Any:
    """The chains of one share of the records. Threads link disjoint shares."""
    if me == ALL:
        return dispatch(box, threads, entry_point((box, me, threads, g, tails, writers, stamp)))
    g = borrowed(g)
    tagged = stamp << _SHIFT
    for e in range(g.record.size):
        r = g.record[e]
        if r < 0:
            if me == 0:
                g.canon[e] = e
                g.prev[e] = g.next[e] = -1
                g.rank[e] = 0
            continue
        # Neighbouring records belong to one share, so that two threads do not write to one cache line. Threads pass
        # over most entries here, so this must be cheap: a division would take as long as all the rest.
        if (((r >> 6) & 1023) * threads) >> 10 != me:
            continue
        tail = tails[r]
        g.rank[e] = 0
        if tail >> _SHIFT == stamp:
            tail &= _ENTRY
            if g.event[tail] == g.event[e]:
                g.canon[e] = tail
                if g.writes[e] > g.writes[tail]:
                    g.writes[tail] = 1
                    g.last[tail] = 1
                    if g.prev[tail] >= 0:
                        g.last[g.prev[tail]] = 0
                    writers[r] = tagged | tail
                continue
            g.next[tail] = e
            g.rank[e] = g.rank[tail] + 1
        g.canon[e] = e
        g.next[e] = -1
        writer = writers[r]
        g.prev[e] = writer & _ENTRY if writer >> _SHIFT == stamp else -1
        tails[r] = tagged | e
        if g.writes[e]:
            g.last[e] = 1
            if g.prev[e] >= 0:
                g.last[g.prev[e]] = 0
            writers[r] = tagged | e
    return 0


@kernel
def owners(g: Graph, start: Any, stop: Any) -> None:
    """The event of every entry."""
    g = borrowed(g)
    for i in range(start, stop):
        for e in range(g.first[i], g.first[i + 1]):
            g.event[e] = i


@inlined
def visible(g: Graph, e: Any) -> Any:
    """The version that an entry sees; -1: the state before the batch."""
    return standing(g, g.prev[e])


@inlined
def standing(g: Graph, w: Any) -> Any:
    """This version, or past those whose events aborted, the one before. (An event that runs whole and aborts leaves
    its versions as it found them.)"""
    while w >= 0 and g.verdict[g.event[w]] != COMMITTED:
        w = g.source[w]
    return w


# -- fragments -------------------------------------------------------------------------------------


class Fragments(NamedTuple):
    """How the events are cut. A whole event is one fragment; shape 0 means whole, others index the plan's splits."""

    of: Any  # entry -> fragment
    first: Any  # event -> its first fragment; one more at the end
    owner: Any  # fragment -> event
    shape: Any  # event -> shape (uint8)
    size: Any  # shape -> fragments
    edges: Any  # shape -> its first edge; one more at the end
    source: Any  # edge -> fragment of the event that computes what another needs; the earlier one
    target: Any  # edge -> the fragment that needs it
    decides: Any  # shape, fragment of the event -> whether it can abort the event (uint8)
    cautious: Any  # whether a version may be seen only once its event is decided (int64[1])


@kernel
def shapes(
    box: Any, me: Any, threads: Any, g: Graph, kind: Any, shape_of: Any, size: Any, shape: Any, first: Any
) -> Any:
    """Which events are cut, and into how many fragments. One that means the same record twice stays whole."""
    if me == ALL:
        return dispatch(box, threads, entry_point((box, me, threads, g, kind, shape_of, size, shape, first)))
    g = borrowed(g)
    start, stop = share(shape.size, me, threads)
    for i in range(start, stop):
        found = shape_of[kind[i]] if kind[i] < shape_of.size else 0
        for e in range(g.first[i], g.first[i + 1]):
            if g.canon[e] != e:
                found = 0
        shape[i] = found
        first[i + 1] = size[found]
    return 0


@kernel
def deal(box: Any, me: Any, threads: Any, g: Graph, p: Fragments, home: Any) -> Any:
    """The fragment of every entry, and the event of every fragment. home: shape, site -> fragment of the event."""
    if me == ALL:
        return dispatch(box, threads, entry_point((box, me, threads, g, p, home)))
    g, p = borrowed(g), borrowed(p)
    start, stop = share(p.shape.size, me, threads)
    for i in range(start, stop):
        p0 = p.first[i]
        for k in range(p0, p.first[i + 1]):
            p.owner[k] = i
        for e in range(g.first[i], g.first[i + 1]):
            p.of[e] = p0 + (home[p.shape[i], e - g.first[i]] if p.shape[i] else 0)
    return 0


@kernel
def gates(box: Any, me: Any, threads: Any, p: Fragments, undecided: Any, gate: Any) -> Any:
    """What has to happen before a fragment's versions may be seen."""
    if me == ALL:
        return dispatch(box, threads, entry_point((box, me, threads, p, undecided, gate)))
    p = borrowed(p)
    start, stop = share(p.shape.size, me, threads)
    for i in range(start, stop):
        n = 0
        for k in range(p.size[p.shape[i]]):
            n += p.decides[p.shape[i], k]
        undecided[i] = n
        for k in range(p.first[i], p.first[i + 1]):
            gate[k] = 1 + (n > 0)
    return 0


@kernel
def affected(g: Graph, p: Fragments, active: Any) -> Any:
    """The events that must run again after running ahead: those that aborted in fragments, and all that saw them."""
    g, p = borrowed(g), borrowed(p)
    count = 0
    for i in range(active.size):
        found = p.shape[i] > 0 and g.verdict[i] != COMMITTED
        for e in range(g.first[i], g.first[i + 1]):
            w = g.prev[e]
            if not found and g.canon[e] == e and w >= 0:
                found = active[g.event[w]] > 0
        active[i] = found
        if found:
            count += 1
            g.verdict[i] = COMMITTED
    return count


@kernel
def waits(box: Any, me: Any, threads: Any, g: Graph, p: Fragments, active: Any, pending: Any) -> Any:
    """How many versions, and fragments of its own event, each waits for; those of events not active wait forever."""
    if me == ALL:
        return dispatch(box, threads, entry_point((box, me, threads, g, p, active, pending)))
    g, p = borrowed(g), borrowed(p)
    start, stop = share(p.shape.size, me, threads)
    for i in range(start, stop):
        for k in range(p.first[i], p.first[i + 1]):
            pending[k] = 0 if active[i] else -1
        if not active[i]:
            continue
        for e in range(g.first[i], g.first[i + 1]):
            w = g.prev[e]
            pending[p.of[e]] += g.canon[e] == e and w >= 0 and active[g.event[w]] > 0
        for d in range(p.edges[p.shape[i]], p.edges[p.shape[i] + 1]):
            pending[p.first[i] + p.target[d]] += 1
    return 0


@kernel
def depths(g: Graph, p: Fragments, active: Any, depth: Any, decided: Any) -> Any:
    """Each fragment's stratum: one more than the deepest that it waits for; the number of strata."""
    g, p = borrowed(g), borrowed(p)
    levels = 0
    for i in range(p.shape.size):
        shape, p0 = p.shape[i], p.first[i]
        decided[i] = -1
        for k in range(p0, p.first[i + 1]):
            depth[k] = 0 if active[i] else -1
        if not active[i]:
            continue
        for e in range(g.first[i], g.first[i + 1]):
            w = g.prev[e]
            if g.canon[e] == e and w >= 0:
                seen = max(depth[p.of[w]], decided[g.event[w]])
                depth[p.of[e]] = max(depth[p.of[e]], seen + 1)
        for d in range(p.edges[shape], p.edges[shape + 1]):
            a, b = p0 + p.source[d], p0 + p.target[d]
            depth[b] = max(depth[b], depth[a] + 1)
        for k in range(p.first[i + 1] - p0):
            if p.cautious[0] and p.decides[shape, k]:
                decided[i] = max(decided[i], depth[p0 + k])
            levels = max(levels, depth[p0 + k] + 1)
    return levels


@kernel
def reaches(box: Any, me: Any, threads: Any, g: Graph, p: Fragments, tails: Any, reach: Any, most: Any) -> Any:
    """How much of a chain still lies ahead of each fragment, on the longest of its chains; most: of each thread's.

    A path through the graph may change chains and be longer; but it is the hot record's chain that must not wait,
    and unlike paths, chains can be measured by many threads at once.
    """
    if me == ALL:
        return dispatch(box, threads, entry_point((box, me, threads, g, p, tails, reach, most)))
    g, p = borrowed(g), borrowed(p)
    found = 1
    start, stop = share(p.shape.size, me, threads)
    for i in range(start, stop):
        for k in range(p.first[i], p.first[i + 1]):
            reach[k] = 1
        for e in range(g.first[i], g.first[i + 1]):
            if g.record[e] >= 0:
                ahead = g.rank[tails[g.record[e]] & _ENTRY] - g.rank[g.canon[e]] + 1
                reach[p.of[e]] = max(reach[p.of[e]], ahead)
                found = max(found, ahead)
    most[me] = found
    return 0


@kernel
def outline(g: Graph, events: Any, threads: Any) -> Any:
    """Of so many whole events, the first ones: the longest path; the strata; and how long threads take that go through
    them stratum by stratum. An event counts by how many records it reaches; 1.0 is the average event."""
    g = borrowed(g)
    reached, level = np.zeros(events, np.int64), np.zeros(events, np.int64)
    most, strata = 0, 0
    for i in range(events):
        for e in range(g.first[i], g.first[i + 1]):
            if g.canon[e] == e and g.prev[e] >= 0:
                before = g.event[g.prev[e]]
                reached[i] = max(reached[i], reached[before])
                level[i] = max(level[i], level[before] + 1)
        reached[i] += g.first[i + 1] - g.first[i]
        most, strata = max(most, reached[i]), max(strata, level[i] + 1)
    total, largest = np.zeros(strata, np.int64), np.zeros(strata, np.int64)
    for i in range(events):
        own = g.first[i + 1] - g.first[i]
        total[level[i]] += own
        largest[level[i]] = max(largest[level[i]], own)
    rounds = 0.0
    for k in range(strata):  # in the end, threads wait for half of an event, on average
        rounds += max(largest[k], total[k] / threads + largest[k] * (1 - 1 / threads) / 2)
    average = max(1, g.first[events]) / max(1, events)
    return most / average, strata, rounds / average


@kernel
def by_height(pending: Any, height: Any, most: Any, order: Any, bounds: Any) -> Any:
    """A counting sort of the tasks that wait for nothing, the highest first; how many there are."""
    bounds[: most + 2] = 0
    for task in range(pending.size):
        if pending[task] == 0:
            bounds[most - height[task] + 1] += 1
    for k in range(most + 1):
        bounds[k + 1] += bounds[k]
    found = bounds[most + 1]
    for task in range(pending.size):
        if pending[task] == 0:
            at = bounds[most - height[task]]
            order[at] = task
            bounds[most - height[task]] = at + 1
    return found


@kernel
def by_level(level: Any, levels: Any, order: Any, bounds: Any) -> None:
    """A counting sort: the tasks of each level, in order, and where each level begins. Level -1 is left out."""
    bounds[: levels + 1] = 0
    for d in level:
        if d >= 0:
            bounds[d + 1] += 1
    for k in range(levels):
        bounds[k + 1] += bounds[k]
    at = bounds[:levels].copy()
    for task in range(level.size):
        if level[task] >= 0:
            order[at[level[task]]] = task
            at[level[task]] += 1
