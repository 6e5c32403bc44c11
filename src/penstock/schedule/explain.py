"""A small batch's graph and schedule as text that a person can follow; golden files keep it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.schedule.graph import Fragments, Graph, depths
from penstock.schedule.policy import Policy


def explain(
    graph: Graph,
    fragments: Fragments,
    policy: Policy,
    titles: list[str],
    record: Callable[[int], str],
    task: Any,
) -> str:
    """titles: each event as text; record: an entry's record as text; task: fragment -> task, empty if each is one."""
    return "\n".join(_Explainer(graph, fragments, policy, titles, record, task).lines()) + "\n"


class _Explainer:
    def __init__(
        self,
        graph: Graph,
        fragments: Fragments,
        policy: Policy,
        titles: list[str],
        record: Callable[[int], str],
        task: Any,
    ) -> None:
        self.g, self.p, self.policy, self.titles, self.record, self.task = (
            graph,
            fragments,
            policy,
            titles,
            record,
            task,
        )

    def lines(self) -> list[str]:
        events = len(self.titles)
        out = [f"{events} events, {self.g.record.size} accesses; {self.policy.name} on {self.policy.threads} threads"]
        out += ["", "events"]
        for i, title in enumerate(self.titles):
            out += self.event(i, title)
        out += ["", "chains", *self.chains(), "", *self.schedule()]
        return out

    def event(self, i: int, title: str) -> list[str]:
        cut = self.p.shape[i] > 0
        out = [f"  #{i} {title}"]
        for e in range(self.g.first[i], self.g.first[i + 1]):
            place = f" in {self.fragment(self.p.of[e])}" if cut else ""
            out.append(
                f"      [{e}] {'writes' if self.g.writes[e] else 'reads'} {self.record(e)}{place}: {self.sees(e)}"
            )
        shape = self.p.shape[i]
        for d in range(self.p.edges[shape], self.p.edges[shape + 1]):
            a, b = (self.fragment(self.p.first[i] + k) for k in (self.p.source[d], self.p.target[d]))
            out.append(f"      {b} needs what {a} computes (parametric)")
        if cut and self.p.cautious[0]:
            deciding = [
                self.fragment(self.p.first[i] + k) for k in range(self.p.size[shape]) if self.p.decides[shape, k]
            ]
            if deciding:
                out.append(f"      decided once {', '.join(deciding)} have run (logical)")
        return out

    def sees(self, e: int) -> str:
        if self.g.canon[e] != e:
            return f"the same record as [{self.g.canon[e]}]"
        w = self.g.prev[e]
        return "sees the state before the batch" if w < 0 else f"after [{w}] of #{self.g.event[w]} (temporal)"

    def fragment(self, fragment: Any) -> str:
        i = int(self.p.owner[fragment])
        return f"#{i}.{fragment - int(self.p.first[i])}" if self.p.shape[i] else f"#{i}"

    def chains(self) -> list[str]:
        out = []
        tails = set(self.g.next[self.g.canon == np.arange(self.g.canon.size)].tolist())
        for e in range(self.g.record.size):
            if self.g.canon[e] == e and e not in tails:
                links, at = [], e
                while at >= 0:
                    links.append(f"[{at}]")
                    at = int(self.g.next[at])
                out.append(f"  {self.record(e)}: {' '.join(links)}")
        return out

    def schedule(self) -> list[str]:
        if self.task.size:
            return self.groups()
        depth = np.zeros(self.p.owner.size, np.int64)
        everything = np.ones(len(self.titles), np.uint8)
        levels = int(depths(self.g, self.p, everything, depth, np.zeros(len(self.titles), np.int64)))
        strata = [[self.fragment(k) for k in np.flatnonzero(depth == level)] for level in range(levels)]
        match self.policy.explore:
            case "bfs":
                return ["strata, with a barrier after each", *(f"  {k}: {' '.join(s)}" for k, s in enumerate(strata))]
            case "dfs":
                order = [name for stratum in strata for name in stratum]
                dealt = [order[t :: self.policy.threads] for t in range(self.policy.threads)]
                return ["dealt out by depth", *(f"  thread {t}: {' '.join(s)}" for t, s in enumerate(dealt))]
        return ["ready at once, then what these make ready", f"  {' '.join(strata[0]) if strata else ''}"]

    def groups(self) -> list[str]:
        out = ["chains as tasks; who waits for whom in a circle is one"]
        for task in range(int(self.task.max(initial=-1)) + 1):
            out.append(f"  task {task}: {' '.join(self.fragment(k) for k in np.flatnonzero(self.task == task))}")
        return out
