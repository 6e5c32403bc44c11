"""Chains as tasks: all fragments that touch one record, in order; chains that wait for each other in a circle are one.

Two fragments on one record are in one task whatever they wait for, so only what fragments of one event owe each other
leads from chain to chain: values that are handed over and, where a version may be seen only once its event is
decided, decisions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from penstock.schedule.graph import Fragments, Graph, GraphBuffers
from penstock.state.jit import borrowed, kernel


class Chains(NamedTuple):
    task: Any  # fragment -> task; tasks are numbered so that who waits comes after
    members: Any  # task -> where its fragments begin in `run`; one more at the end
    run: Any  # fragments by task, each task's in order
    depth: Any
    height: Any  # fragments on the longest path that begins with a task
    pending: Any  # how often a task will be told that something it waits for is done
    cyclic: Any  # whether chains had to be merged


def chains(memory: GraphBuffers, g: Graph, p: Fragments) -> Chains:
    fragments = p.owner.size
    group = memory.take("group", fragments)
    groups = int(_groups(g, p, group))
    source, target = _edges(p, group)
    first = np.zeros(groups + 1, np.int64)
    np.add.at(first, source + 1, 1)
    np.cumsum(first, out=first)
    target = target[np.argsort(source, kind="stable")]
    component, count = _components(first, target)
    # Components come in the order in which they are left, so that who waits has the lower number: turn it round.
    task = (count - 1) - component[group]
    members = np.zeros(count + 1, np.int64)
    np.add.at(members, task + 1, 1)
    np.cumsum(members, out=members)
    run = np.argsort(task, kind="stable")
    depth, height, pending = _paths(p, task, members)
    return Chains(task, members, run, depth, height, pending, count < groups)


@kernel
def _groups(g: Graph, p: Fragments, group: Any) -> Any:
    """Fragments that touch the same record have the same group; how many groups there are."""
    g, p = borrowed(g), borrowed(p)
    parent = np.arange(group.size)
    for e in range(g.record.size):
        if g.canon[e] == e and g.next[e] >= 0:
            a, b = _root(parent, p.of[e]), _root(parent, p.of[g.next[e]])
            parent[max(a, b)] = min(a, b)
    count = 0
    for k in range(group.size):
        if _root(parent, k) == k:
            group[k] = count
            count += 1
        else:
            group[k] = group[_root(parent, k)]
    return count


@kernel
def _root(parent: Any, k: Any) -> Any:
    while parent[k] != k:
        parent[k] = parent[parent[k]]
        k = parent[k]
    return k


@kernel
def _edges(p: Fragments, group: Any) -> Any:
    """From group to group, for every event that is cut."""
    n = 0
    source, target = np.empty(0, np.int64), np.empty(0, np.int64)
    for filling in range(2):
        if filling:
            source, target = np.empty(n, np.int64), np.empty(n, np.int64)
            n = 0
        for i in range(p.shape.size):
            shape, p0 = p.shape[i], p.first[i]
            for d in range(p.edges[shape], p.edges[shape + 1]):
                a, b = group[p0 + p.source[d]], group[p0 + p.target[d]]
                if filling:
                    source[n], target[n] = a, b
                n += 1
            if not (shape and p.cautious[0]):
                continue
            for k in range(p.size[shape]):
                if p.decides[shape, k]:
                    for j in range(p.size[shape]):
                        if filling:
                            source[n], target[n] = group[p0 + k], group[p0 + j]
                        n += 1
    return source, target


@kernel
def _components(first: Any, target: Any) -> Any:
    """Tarjan's strongly connected components, without recursion; the number of each node's, and how many there are."""
    nodes = first.size - 1
    index = np.full(nodes, -1, np.int64)
    low = np.zeros(nodes, np.int64)
    component = np.full(nodes, -1, np.int64)
    stack, path, at = np.empty(nodes, np.int64), np.empty(nodes, np.int64), first[:-1].copy()
    held, seen, count = 0, 0, 0
    for root in range(nodes):
        if index[root] >= 0:
            continue
        depth = 0
        path[0] = root
        while depth >= 0:
            v = path[depth]
            if index[v] < 0:
                index[v] = low[v] = seen
                seen += 1
                stack[held] = v
                held += 1
            deeper = False
            while at[v] < first[v + 1]:
                w = target[at[v]]
                at[v] += 1
                if index[w] < 0:
                    depth += 1
                    path[depth] = w
                    deeper = True
                    break
                if component[w] < 0:
                    low[v] = min(low[v], index[w])
            if deeper:
                continue
            if low[v] == index[v]:
                while True:
                    held -= 1
                    w = stack[held]
                    component[w] = count
                    if w == v:
                        break
                count += 1
            depth -= 1
            if depth >= 0:
                low[path[depth]] = min(low[path[depth]], low[v])
    return component, count


@kernel
def _paths(p: Fragments, task: Any, members: Any) -> Any:
    """Depth, height and what is waited for, task by task: an edge leads from a lower number to a higher one."""
    p = borrowed(p)
    tasks = members.size - 1
    depth, height, pending = np.zeros(tasks, np.int64), np.zeros(tasks, np.int64), np.zeros(tasks, np.int64)
    source, target = _edges(p, task)
    first = np.zeros(tasks + 2, np.int64)
    for d in range(source.size):
        first[source[d] + 2] += 1
    for k in range(tasks + 1):
        first[k + 1] += first[k]
    to = np.empty(source.size, np.int64)
    for d in range(source.size):
        to[first[source[d] + 1]] = target[d]
        first[source[d] + 1] += 1
    for a in range(tasks):
        for d in range(first[a], first[a + 1]):
            if to[d] != a:
                depth[to[d]] = max(depth[to[d]], depth[a] + 1)
                pending[to[d]] += 1
    for a in range(tasks - 1, -1, -1):
        for d in range(first[a], first[a + 1]):
            if to[d] != a:
                height[a] = max(height[a], height[to[d]])
        height[a] += members[a + 1] - members[a]
    return depth, height, pending
