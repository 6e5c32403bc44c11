"""How events are split into fragments: what the plan says of each kind of event, and what becomes of a batch by it.

    shape     how the events of one kind are split; 0 is a whole event
    home      the fragment that each site of a shape belongs to
    decides   whether a fragment of a shape may abort the event
    edges     where the dependencies of a shape begin: fragments (source) and those that need what they compute (target)

A kind of event that cannot be split has shape 0, and so has an event that means one record twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.plan.ir import Plan
from penstock.schedule.codegen.fragments import handed, splits
from penstock.schedule.graph import Fragments, Graph, deal, shapes

if TYPE_CHECKING:
    from penstock.schedule.graph_executor import Batch


class Splits:
    """A plan's splits as arrays, by shape."""

    def __init__(self, plan: Plan) -> None:
        found = splits(plan)
        shapes_of = [(plan.program.kind(t.event), found[t.name]) for t in plan.transactions if t.name in found]
        self.any = bool(shapes_of)
        self.handed = handed(plan)
        self.of_kind = np.zeros(max(1, len(plan.program.events)), np.int64)
        most = max((len(c.fragments) for _, c in shapes_of), default=1)
        sites = max((len(p.sites) for _, c in shapes_of for p in c.fragments), default=0) * most
        self.size = np.ones(len(shapes_of) + 1, np.int64)
        self.home = np.zeros((len(shapes_of) + 1, max(1, sites)), np.int64)
        self.decides = np.zeros((len(shapes_of) + 1, most), np.uint8)
        edges: list[tuple[int, int]] = []
        starts = [0, 0]
        for shape, (kind, one) in enumerate(shapes_of, 1):
            self.of_kind[kind] = shape
            self.size[shape] = len(one.fragments)
            for number, fragment in enumerate(one.fragments):
                self.decides[shape, number] = fragment.may_abort
                self.home[shape, list(fragment.sites)] = number
            edges += one.edges
            starts.append(len(edges))
        self.edges = np.array(starts, np.int64)
        self.source = np.array([a for a, _ in edges], np.int64)
        self.target = np.array([b for _, b in edges], np.int64)

    def fragments(self, batch: Batch, graph: Graph) -> Fragments:
        """How a batch's events are split: not at all, or as far as the plan's splits go."""
        memory, count = batch.memory, batch.count
        shape = memory.zeros("shape", count, np.uint8)
        if batch.policy.unit == "transaction" or not self.any:
            numbers = memory.take("numbers", count + 1)
            numbers[:] = np.arange(count + 1)
            return self._fragments(of=graph.event, first=numbers, owner=numbers[:-1], shape=shape, cautious=False)
        first = memory.take("fragments", count + 1)
        first[0] = 0
        batch.together(shapes, graph, batch.kind, self.of_kind, self.size, shape, first)
        np.cumsum(first, out=first)
        of, owner = memory.take("of", batch.entries), memory.take("owner", int(first[-1]))
        cautious = batch.policy.on_abort == "eager"
        found = self._fragments(of=of, first=first, owner=owner, shape=shape, cautious=cautious)
        batch.together(deal, graph, found, self.home)
        return found

    def _fragments(self, *, cautious: bool, **arrays: Any) -> Fragments:
        fixed = {"size": self.size, "edges": self.edges, "source": self.source, "target": self.target}
        return Fragments(**arrays, **fixed, decides=self.decides, cautious=np.array([cautious], np.int64))
