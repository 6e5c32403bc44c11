"""Locks that are granted in the order of events: the schemes that the papers compare with.

    lal    whose turn it is takes all its locks, waiting for them, and only then is it the next one's turn
    lwm    whose turn it is only notes what came before it at each record, and gives the turn away at once; then it
           waits until that much is done: the writes before a read, all accesses before a write
    pat    as lwm, but what is locked is a partition of the records, and always for writing
    none   no locks: what the others could reach at best. Its results may be wrong

Thread t runs the events t, t + threads, … in this order, and an event waits only for earlier ones. So the earliest
that has not ended can always go on: there is no deadlock.

    claim   one lock of one event: lock * 2, or lock * 2 + 1 to share it. An event claims a lock once, and for writing
            if any of its accesses may write; its claims lie where its entries lie, and -1 after the last

Nothing is held between batches: locks are 0, and as many accesses have ended as began. So nothing is cleared. A batch
in which a thread failed is the last: then nobody waits any more, and nobody runs what he waited for.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from penstock.schedule import atomics
from penstock.schedule.graph import Graph, GraphBuffers
from penstock.schedule.team import ALL, dispatch, entry_point, share
from penstock.state.hashing import mix
from penstock.state.jit import borrowed, inlined, kernel

LAL, LWM, NONE = range(3)
SCHEMES = {"lal": LAL, "lwm": LWM, "pat": LWM, "none": NONE}
# A lock is free (0), shared by so many, or taken.
_TAKEN = -1
_MANY = 1 << 62
# A lock's counts: writes and reads that began, and that ended. Side by side, since they are used together.
WRITES, READS, WRITTEN, READ, COUNTS = range(5)
# A thread's own: whether it holds the locks of the event that it is at, its cycles by what they were spent on.
OWN = 16
HOLDS, SYNC, LOCK, USEFUL, ABORTING, RANDOM = range(6)
# Every so many events a thread looks at its clock.
SAMPLE = 16
# Behind the turn, on a cache line of its own that is only written when all is lost: whether a thread has failed.
FAILED = 8


class Locks(NamedTuple):
    scheme: Any
    threads: Any
    jitter: Any  # tests only: give the core away one time in so many; 0: never
    first: Any  # event -> where its claims begin; one more at the end
    claims: Any
    held: Any  # lal: lock -> who has it
    counts: Any  # lwm: lock -> its counts
    writes: Any  # lwm: claim -> the writes before it
    reads: Any  # lwm: claim -> the reads before it
    turn: Any  # the event whose turn it is, alone on its cache line; and FAILED
    own: Any


def locks(memory: GraphBuffers, g: Graph, scheme: str, threads: int, size: int, jitter: int) -> Locks:
    """Locks for a batch whose claims are still to be found. size: how many things can be locked."""
    nothing = np.zeros(0, np.int64)
    how, entries = SCHEMES[scheme], g.record.size
    own = np.zeros(threads * OWN, np.int64)
    own[RANDOM::OWN] = np.arange(1, threads + 1) * 0x9E3779B97F4A7C1
    return Locks(
        scheme=how,
        threads=threads,
        jitter=jitter,
        first=g.first,
        claims=nothing if how == NONE else memory.take("claims", entries),
        held=memory.take("held", size) if how == LAL else nothing,
        counts=memory.take("counts", size * COUNTS) if how == LWM else nothing,
        writes=memory.take("writes before", entries) if how == LWM else nothing,
        reads=memory.take("reads before", entries) if how == LWM else nothing,
        turn=np.zeros(24, np.int64)[8:],
        own=own,
    )


@kernel
def claim(box: Any, me: Any, threads: Any, g: Graph, claims: Any, partitions: Any) -> Any:
    """What these events lock: records, or partitions of them where there are any."""
    if me == ALL:
        return dispatch(box, threads, entry_point((box, me, threads, g, claims, partitions)))
    g = borrowed(g)
    start, stop = share(g.first.size - 1, me, threads)
    for i in range(start, stop):
        begin, end = g.first[i], g.first[i + 1]
        n = begin
        for e in range(begin, end):
            r = g.record[e]
            if r < 0:
                continue
            if partitions:
                claims[n] = np.int64(mix(r) % np.uint64(partitions)) * 2
            else:
                claims[n] = r * 2 + (g.writes[e] == 0)
            n += 1
        _sort(claims, begin, n)
        kept = begin
        for c in range(begin, n):
            if kept == begin or claims[c] >> 1 != claims[kept - 1] >> 1:
                claims[kept] = claims[c]
                kept += 1
        if kept < end:
            claims[kept] = -1
    return 0


@kernel
def _sort(a: Any, begin: Any, end: Any) -> None:
    """Shell's sort: an event's claims are few, but a list may make them many."""
    gap = (end - begin) >> 1
    while gap > 0:
        for k in range(begin + gap, end):
            x = a[k]
            while k >= begin + gap and a[k - gap] > x:
                a[k] = a[k - gap]
                k -= gap
            a[k] = x
        gap >>= 1


def fail(s: Locks) -> None:
    """One thread will not come back: let the others end."""
    s.turn[FAILED] = 1


@inlined
def acquire(s: Locks, me: Any, i: Any) -> Any:
    """Wait until event i may run; the clock, where this event is looked at. It may hold its locks already.

    -1: it may never run, since a thread has failed.
    """
    own = me * OWN
    if s.scheme != NONE and not s.own[own + HOLDS]:
        if s.jitter:
            atomics.stagger(s.own, own + RANDOM, s.jitter)
        _until(s, own + SYNC, s.turn, 0, i, i)
        if s.scheme == LAL:
            _take(s, own, i)
            atomics.store(s.turn, 0, i + 1)
        else:
            _register(s, i)
            atomics.store(s.turn, 0, i + 1)
            _await(s, own, i)
        s.own[own + HOLDS] = 1
    if atomics.load(s.turn, FAILED):
        return np.int64(-1)
    if s.jitter:
        atomics.stagger(s.own, own + RANDOM, s.jitter)
    return atomics.cycles() if i // s.threads % SAMPLE == 0 else np.int64(0)


@inlined
def release(s: Locks, me: Any, i: Any, code: Any, begun: Any) -> None:
    """Event i has run. code: what became of it; begun: what acquire said."""
    own = me * OWN
    if begun:
        s.own[own + (ABORTING if code else USEFUL)] += atomics.cycles() - begun
    if s.jitter:
        atomics.stagger(s.own, own + RANDOM, s.jitter)
    if s.scheme == NONE:
        return
    s.own[own + HOLDS] = 0
    for c in range(s.first[i], s.first[i + 1]):
        claim = s.claims[c]
        if claim < 0:
            break
        lock, shared = claim >> 1, claim & 1
        if s.scheme == LWM:
            atomics.add(s.counts, lock * COUNTS + (READ if shared else WRITTEN), 1)
        elif shared:
            atomics.add(s.held, lock, -1)
        else:
            atomics.store(s.held, lock, 0)


@inlined
def _take(s: Locks, own: Any, i: Any) -> None:
    """All locks of an event whose turn it is: others can only give locks back meanwhile."""
    for c in range(s.first[i], s.first[i + 1]):
        claim = s.claims[c]
        if claim < 0:
            break
        lock, shared = claim >> 1, claim & 1
        _until(s, own + LOCK, s.held, lock, 0, _MANY if shared else 0)
        if shared:
            atomics.add(s.held, lock, 1)
        else:
            atomics.store(s.held, lock, _TAKEN)


@inlined
def _register(s: Locks, i: Any) -> None:
    """Note what came before an event whose turn it is, and that it comes now."""
    for c in range(s.first[i], s.first[i + 1]):
        claim = s.claims[c]
        if claim < 0:
            break
        at = (claim >> 1) * COUNTS
        s.writes[c] = s.counts[at + WRITES]
        s.reads[c] = s.counts[at + READS]
        s.counts[at + (READS if claim & 1 else WRITES)] += 1


@inlined
def _await(s: Locks, own: Any, i: Any) -> None:
    """What came before has ended. What comes after has not, since it waits for this event."""
    for c in range(s.first[i], s.first[i + 1]):
        claim = s.claims[c]
        if claim < 0:
            break
        at = (claim >> 1) * COUNTS
        _until(s, own + LOCK, s.counts, at + WRITTEN, s.writes[c], s.writes[c])
        if claim & 1 == 0:
            _until(s, own + LOCK, s.counts, at + READ, s.reads[c], s.reads[c])


@inlined
def _until(s: Locks, account: Any, array: Any, at: Any, least: Any, most: Any) -> None:
    """Wait until a shared number is within bounds, or a thread has failed; who pays for the time."""
    if least <= atomics.load(array, at) <= most:
        return
    begun = atomics.cycles()
    looks = 0
    while not least <= atomics.load(array, at) <= most and not atomics.load(s.turn, FAILED):
        looks = atomics.pause(looks)
    s.own[account] += atomics.cycles() - begun


@kernel
def clock() -> Any:
    """The clock that threads look at, for comparing it with the wall's."""
    return atomics.cycles()
