"""How threads find the next task: by strata, by waiting, or by what is ready.

    bfs     all tasks of one depth, then a barrier, then the next depth
    dfs     the tasks in order of depth are dealt out; each thread runs its own in turn and waits where it must
    ready   count-down latches: whoever makes a task ready runs it next or leaves it in a common heap, from which
            threads without work take. Tasks that begin the longest paths go first: a record that everyone wants is
            a path that all threads together cannot make shorter, so it must never wait

`take` gives the next task, `finish` says that a fragment has run.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from penstock.schedule import atomics
from penstock.schedule.graph import Fragments, Graph, GraphBuffers
from penstock.state.jit import inlined

BFS, DFS, READY = range(3)
# Numbers that threads share, each on a cache line of its own.
LINE = 8
HEAD, LOCK, TOP, FILLED, DONE, _SHARED = (k * LINE for k in range(6))
# A thread's own: what it has finished but not told, where it stands, its cycles by what they were spent on.
OWN = 16
COUNT, CURSOR, LEVEL, USEFUL, WAITING, ABORTING, ALL, RANDOM, LIMIT = range(9)
# Tasks of `order` that a thread takes at a time: what lies side by side in memory is best run by one thread. Of a wide
# stratum up to so many.
HANDFUL, _MANY = 4, 16


class State(NamedTuple):
    explore: Any
    threads: Any
    total: Any  # tasks
    jitter: Any  # tests only: give the core away one time in so many; 0: never
    task: Any  # fragment -> task; empty where every fragment is a task
    members: Any  # task -> where its fragments begin in `run`; empty likewise
    run: Any
    pending: Any  # task -> what it still waits for
    undecided: Any  # event -> fragments that may still abort it
    gate: Any  # fragment -> 2, less 1 for having run, less 1 for its event's being decided
    priority: Any  # task -> the longest path that begins with it
    order: Any  # tasks: by depth, or for `ready` those that wait for nothing, longest path first
    bounds: Any  # depth -> where its tasks begin in order
    heads: Any  # depth -> tasks taken
    arrived: Any  # depth -> threads that are through with it
    shared: Any
    heap: Any
    own: Any


def state(memory: GraphBuffers, threads: int, explore: int, jitter: int, tasks: int, **arrays: Any) -> State:
    nothing = np.zeros(0, np.int64)
    given = {name: arrays.get(name, nothing) for name in State._fields}
    given |= {
        "explore": explore,
        "threads": threads,
        "total": tasks,
        "jitter": jitter,
        "shared": np.zeros(_SHARED, np.int64),
        "own": np.zeros(threads * OWN, np.int64),
        "heap": memory.take("heap", tasks + 1) if explore == READY else nothing,
    }
    given["shared"][TOP] = -1
    given["own"][RANDOM::OWN] = np.arange(1, threads + 1) * 0x9E3779B97F4A7C1
    return State(**given)


@inlined
def take(s: State, me: Any, hint: Any) -> Any:
    """The next task of a thread; -1: there is none any more. hint: a task that it made ready itself, or -1."""
    if s.jitter:
        _jitter(s, me)
    if s.explore == READY:
        return _take_ready(s, me, hint)
    if s.explore == BFS:
        return _take_stratum(s, me)
    return _take_own(s, me)


@inlined
def _jitter(s: State, me: Any) -> None:
    atomics.stagger(s.own, me * OWN + RANDOM, s.jitter)


@inlined
def _take_stratum(s: State, me: Any) -> Any:
    own = me * OWN
    at = s.own[own + CURSOR]
    if at < s.own[own + LIMIT]:
        s.own[own + CURSOR] = at + 1
        return s.order[at]
    while True:
        level = s.own[own + LEVEL]
        if level + 1 >= s.bounds.size:
            return -1
        start, stop = s.bounds[level], s.bounds[level + 1]
        left = max(0, stop - start - atomics.load(s.heads, level))
        many = min(_MANY, 1 + left // (8 * s.threads))
        at = start + atomics.add(s.heads, level, many)
        if at < stop:
            s.own[own + CURSOR], s.own[own + LIMIT] = at + 1, min(at + many, stop)
            return s.order[at]
        atomics.add(s.arrived, level, 1)
        begun = atomics.cycles()
        looks = 0
        while atomics.load(s.arrived, level) < s.threads:
            looks = atomics.pause(looks)
        s.own[own + WAITING] += atomics.cycles() - begun
        s.own[own + LEVEL] += 1


@inlined
def _take_own(s: State, me: Any) -> Any:
    own = me * OWN
    turn = s.own[own + CURSOR]
    many = HANDFUL if s.order.size > 8 * HANDFUL * s.threads else 1
    at = (turn // many * s.threads + me) * many + turn % many
    if at >= s.order.size:
        return -1
    s.own[own + CURSOR] = turn + 1
    task = s.order[at]
    if atomics.load(s.pending, task) != 0:
        begun = atomics.cycles()
        looks = 0
        while atomics.load(s.pending, task) != 0:
            looks = atomics.pause(looks)
        s.own[own + WAITING] += atomics.cycles() - begun
    return task


@inlined
def _take_ready(s: State, me: Any, hint: Any) -> Any:
    own = me * OWN
    looks, begun = 0, np.int64(0)
    while True:
        top = atomics.load(s.shared, TOP)
        if hint >= 0:
            if top <= s.priority[hint]:
                return hint
            _push(s, hint)
            hint = -1
        if s.own[own + CURSOR] == s.own[own + LIMIT]:
            _fill(s, own, top)
        at = s.own[own + CURSOR]
        if at < s.own[own + LIMIT] and top < s.priority[s.order[at]]:
            s.own[own + CURSOR] = at + 1
            task = s.order[at]
            break
        task = _pop(s) if top >= 0 else -1
        if task >= 0:
            break
        if task == -1 and s.own[own + COUNT]:
            atomics.add(s.shared, DONE, s.own[own + COUNT])
            s.own[own + COUNT] = 0
        if atomics.load(s.shared, DONE) == s.total:
            task = -1
            break
        if looks == 0:
            begun = atomics.cycles()
        looks = atomics.pause(looks)
    if looks:
        s.own[own + WAITING] += atomics.cycles() - begun
    return task


@inlined
def _fill(s: State, own: Any, top: Any) -> None:
    """Take a handful of the tasks that wait for nothing, or where they are few or not alike, one."""
    head = atomics.load(s.shared, HEAD)
    if head >= s.order.size or top >= s.priority[s.order[head]]:
        return
    end = head + HANDFUL
    alike = end + 8 * s.threads * HANDFUL < s.order.size and s.priority[s.order[end - 1]] == s.priority[s.order[head]]
    many = HANDFUL if alike else 1
    head = min(atomics.add(s.shared, HEAD, many), s.order.size)
    s.own[own + CURSOR], s.own[own + LIMIT] = head, min(head + many, s.order.size)


@inlined
def finish(g: Graph, p: Fragments, s: State, me: Any, fragment: Any, hint: Any) -> Any:
    """A fragment has run: tell what waits for it. The best of the tasks that are ready now, hint among them; or -1."""
    if s.explore == BFS:
        return -1
    if s.jitter:
        _jitter(s, me)
    i = p.owner[fragment]
    shape = p.shape[i]
    if shape == 0:
        return _release(g, p, s, fragment, hint)
    p0 = p.first[i]
    for d in range(p.edges[shape], p.edges[shape + 1]):
        if p0 + p.source[d] == fragment:
            hint = _signal(s, fragment, p0 + p.target[d], hint)
    if not p.cautious[0]:
        return _release(g, p, s, fragment, hint)
    if s.task.size:
        return _decide(p, s, fragment, hint)
    if p.decides[shape, fragment - p0] and atomics.add(s.undecided, i, -1) == 1:
        for k in range(p0, p.first[i + 1]):
            if atomics.add(s.gate, k, -1) == 1:
                hint = _release(g, p, s, k, hint)
    if atomics.add(s.gate, fragment, -1) == 1:
        hint = _release(g, p, s, fragment, hint)
    return hint


@inlined
def _decide(p: Fragments, s: State, fragment: Any, hint: Any) -> Any:
    """Chains as tasks: what follows the other fragments of an event in their chains waits for this one's decision."""
    i = p.owner[fragment]
    p0 = p.first[i]
    if p.decides[p.shape[i], fragment - p0]:
        for k in range(p0, p.first[i + 1]):
            hint = _signal(s, fragment, k, hint)
    return hint


@inlined
def _release(g: Graph, p: Fragments, s: State, fragment: Any, hint: Any) -> Any:
    """What a fragment wrote may be seen."""
    i = p.owner[fragment]
    for w in range(g.first[i], g.first[i + 1]):
        if p.of[w] != fragment or g.canon[w] != w or not g.writes[w]:
            continue
        e = g.next[w]
        while e >= 0:
            hint = _signal(s, fragment, p.of[e], hint)
            if g.writes[e]:
                break
            e = g.next[e]
    return hint


@inlined
def _signal(s: State, fragment: Any, waiting: Any, hint: Any) -> Any:
    if s.task.size:
        task = s.task[waiting]
        if task == s.task[fragment]:
            return hint  # within one task the order of its fragments is enough
    else:
        task = waiting
    if atomics.add(s.pending, task, -1) != 1 or s.explore != READY:
        return hint
    if hint < 0:
        return task
    if s.priority[task] > s.priority[hint]:
        hint, task = task, hint
    _push(s, task)
    return hint


# -- the common heap: the longest path on top ---------------------------------------------------


@inlined
def _push(s: State, task: Any) -> None:
    atomics.lock(s.shared, LOCK)
    n = s.shared[FILLED]
    s.shared[FILLED] = n + 1
    rank = s.priority[task]
    while n > 0 and s.priority[s.heap[(n - 1) >> 1]] < rank:
        s.heap[n] = s.heap[(n - 1) >> 1]
        n = (n - 1) >> 1
    s.heap[n] = task
    atomics.store(s.shared, TOP, s.priority[s.heap[0]])
    atomics.unlock(s.shared, LOCK)


@inlined
def _pop(s: State) -> Any:
    """The best task; or none, or -2: somebody else is at the heap, who will leave none to most that wait."""
    if not atomics.try_lock(s.shared, LOCK):
        return -2
    n = s.shared[FILLED] - 1
    if n < 0:
        atomics.unlock(s.shared, LOCK)
        return -1
    s.shared[FILLED] = n
    task, moved = s.heap[0], s.heap[n]
    rank = s.priority[moved]
    k = 0
    while 2 * k + 1 < n:
        child = 2 * k + 1
        if child + 1 < n and s.priority[s.heap[child + 1]] > s.priority[s.heap[child]]:
            child += 1
        if s.priority[s.heap[child]] <= rank:
            break
        s.heap[k] = s.heap[child]
        k = child
    s.heap[k] = moved
    atomics.store(s.shared, TOP, s.priority[s.heap[0]] if n else -1)
    atomics.unlock(s.shared, LOCK)
    return task
