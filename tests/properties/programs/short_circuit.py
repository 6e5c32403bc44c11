"""What is not evaluated cannot abort: and, or, chained comparisons and conditional expressions guard aborts."""

from hypothesis import strategies as st
from values import event, rows

import penstock as ps
from programs import Case

short_circuit = ps.App("short_circuit")


@short_circuit.table
class Thing:
    k: str = ps.key()
    n: int = 0
    f: float = 1.0


@short_circuit.event
class Guard:
    ts: int = ps.order()
    k: str
    other: str
    a: int
    b: int
    x: float
    d: ps.decimal(18, 2)
    flag: bool


@short_circuit.event
class Chain:
    ts: int = ps.order()
    k: str
    a: int
    b: int
    xs: list[int]


@short_circuit.transaction
def guard(e: Guard):
    if e.k in Thing and Thing[e.k].n > 0 and (e.other not in Thing or Thing[e.other].n == 1):
        Thing[e.k].n -= 1
    ratio = e.a // e.b if e.b else -1
    safe = e.flag or e.a / e.b > 2
    risky = e.flag and not e.x and Thing[e.other].f / e.x > 0
    if e.d and (e.a or e.k) and not (e.x or e.flag):
        ps.abort("all true")
    Thing.get(e.other).n = ratio if not risky else Thing[e.k].n
    ps.require(safe or e.a * e.a * e.a * e.a >= 0, "unsafe")
    return {"ratio": ratio, "safe": safe, "risky": risky}


@short_circuit.transaction
def chain(e: Chain):
    if 0 < e.a < 100 // e.b < 60:
        thing = Thing.get(e.k)
        thing.n = e.a
    if e.a == e.b == Thing[e.k].n or len(e.xs) > 2:
        Thing[e.k].f = 1 if e.a > 2 else 2.5
    late = Thing[e.k]
    late.n += 1 if len(e.xs) else 0
    return {"ratio": late.n}


key = st.sampled_from(["a", "a", "b", "c", ""])
small = st.sampled_from([0, 0, 1, 2, 3, 3000000000])
CASE = Case(
    short_circuit,
    {Thing: rows(Thing, [("a",), ("b",)], n=st.integers(0, 3))},
    st.one_of(
        event(Guard, k=key, other=key, a=small, b=small, x=st.sampled_from([0.0, -0.0, 1.0, 0.1])),
        event(Chain, k=key, a=small, b=small, xs=st.lists(small, max_size=3)),
    ),
)
