"""Keys that depend on state: chains of records, followed and rewritten; int ids."""

from hypothesis import strategies as st
from values import event, rows

import penstock as ps
from programs import Case

chase = ps.App("chase")


@chase.table
class Node:
    id: int = ps.key()
    next: int = 0
    name: str = "a"
    visits: int = 0


@chase.table
class Label:
    name: str = ps.key()
    node: int = 1
    count: int = 0

    @ps.check("worn out")
    def fresh(self):
        return self.count < 4


@chase.event
class Walk:
    ts: int = ps.order()
    id: int = ps.id()
    start: int
    steps: int


@chase.event
class Link:
    ts: int = ps.order()
    id: int = ps.id()
    label: str
    target: int


@chase.transaction
def walk(e: Walk):
    at = e.start
    for i in range(e.steps):
        node = Node[at]
        node.visits += 1
        at = node.next
        if at == e.start:
            return {"at": at, "steps": i}
    last = Label.get(Node[at].name)
    last.count += 1
    return {"at": at, "steps": last.count, "to": last.node}


@chase.transaction
def link(e: Link):
    label = Label[e.label]
    first = Node[label.node]
    label.node = e.target
    if label.node not in Node:
        Node.insert(label.node, next=first.id, name=label.name)
    second = Node[Label[first.name].node]
    first.next, second.next = second.id, first.next
    return {"at": second.next, "to": Node[first.next].next}


small = st.integers(0, 4)
label = st.sampled_from(["a", "a", "b", "é", ""])
CASE = Case(
    chase,
    {
        Node: rows(Node, [(i,) for i in range(4)], next=small, name=label),
        Label: rows(Label, [("a",), ("b",), ("é",)], node=small, count=st.integers(0, 3)),
    },
    st.one_of(
        event(Walk, id=st.integers(-2, 2), start=small, steps=st.integers(-1, 5)),
        event(Link, id=st.integers(-2, 2), label=label, target=small),
    ),
)
