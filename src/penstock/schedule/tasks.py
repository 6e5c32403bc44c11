"""What threads take, and who waits for whom, in the form that each exploration (explore.py) needs.

    bfs     the tasks by depth
    dfs     the same, and how many others each waits for
    ready   the tasks that wait for nothing, the longest path first, and how many others each of the rest waits for

A task is a fragment, or a chain: all fragments that touch one record (chains.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.schedule import explore
from penstock.schedule.chains import chains
from penstock.schedule.graph import Fragments, Graph, by_height, by_level, depths, gates, reaches, waits

if TYPE_CHECKING:
    from penstock.schedule.graph_executor import Batch

_EXPLORE = {"bfs": explore.BFS, "dfs": explore.DFS, "ready": explore.READY}


def prepare(batch: Batch, graph: Graph, fragments: Fragments) -> explore.State:
    """All events, by the batch's policy."""
    how = _EXPLORE[batch.policy.explore]
    if batch.policy.unit == "chain":
        return _state(batch, how, _chains(batch, graph, fragments, how))
    return _state(batch, how, _tasks(batch, graph, fragments, batch.all, how))


def prepare_again(batch: Batch, graph: Graph, fragments: Fragments, active: Any, by: str) -> explore.State:
    """Some of the events, fragment by fragment. by: how they are explored."""
    how = _EXPLORE[by]
    return _state(batch, how, _tasks(batch, graph, fragments, active, how))


def _state(batch: Batch, how: int, arrays: dict[str, Any]) -> explore.State:
    total = arrays.pop("total")
    return explore.state(batch.memory, batch.threads, how, batch.executor.jitter, total, **arrays)


def _tasks(batch: Batch, graph: Graph, fragments: Fragments, active: Any, how: int) -> dict[str, Any]:
    """Every fragment is a task."""
    tasks = fragments.owner.size
    pending = batch.memory.take("pending", tasks)
    arrays: dict[str, Any] = {"pending": pending}
    if how != explore.BFS:
        batch.together(waits, graph, fragments, active, pending)
        if fragments.cautious[0]:
            undecided = arrays["undecided"] = batch.memory.take("undecided", batch.count)
            gate = arrays["gate"] = batch.memory.take("gate", tasks)
            batch.together(gates, fragments, undecided, gate)
    if how == explore.READY:
        reach = batch.memory.take("reach", tasks)
        most = np.zeros(batch.threads, np.int64)
        batch.together(reaches, graph, fragments, batch.tails, reach, most)
        total = tasks if active is batch.all else int((pending >= 0).sum())
        return arrays | _by_height(batch, pending, reach, int(most.max())) | {"total": total}
    depth = batch.memory.take("depth", tasks)
    levels = int(depths(graph, fragments, active, depth, batch.memory.take("decided", batch.count)))
    return arrays | _by_depth(batch, depth, levels)


def _chains(batch: Batch, graph: Graph, fragments: Fragments, how: int) -> dict[str, Any]:
    """Chains are tasks."""
    found = chains(batch.memory, graph, fragments)
    arrays = {name: getattr(found, name) for name in ("task", "members", "run", "pending")}
    if how == explore.READY:
        longest = int(found.height.max(initial=0))
        return arrays | _by_height(batch, found.pending, found.height, longest) | {"total": found.pending.size}
    return arrays | _by_depth(batch, found.depth, int(found.depth.max(initial=-1)) + 1)


def _by_depth(batch: Batch, depth: Any, levels: int) -> dict[str, Any]:
    order, bounds = batch.memory.take("order", depth.size), batch.memory.take("bounds", levels + 1)
    by_level(depth, levels, order, bounds)
    total = int(bounds[levels])
    heads, arrived = batch.memory.zeros("heads", levels), batch.memory.zeros("arrived", levels)
    return {"order": order[:total], "bounds": bounds, "heads": heads, "arrived": arrived, "total": total}


def _by_height(batch: Batch, pending: Any, height: Any, longest: int) -> dict[str, Any]:
    """The tasks that wait for nothing, the longest path first."""
    bounds, order = batch.memory.take("bounds", longest + 2), batch.memory.take("order", pending.size)
    free = by_height(pending, height, longest, order, bounds)
    return {"priority": height, "order": order[:free]}
