"""Ranges between any two ints, which only a break ends; lists of no item and of one; a table of one row, and an event
that touches none."""

from hypothesis import strategies as st
from values import INT_EDGES, event, rows

import penstock as ps
from programs import Case

LOWEST, HIGHEST = -(2**63), 2**63 - 1

spans = ps.App("spans")


@spans.table
class Only:
    id: int = ps.key()
    turns: int = 0
    last: int = 0


@spans.event
class Span:
    ts: int = ps.order()
    a: int
    b: int
    most: int
    xs: list[int]


@spans.event
class Ends:
    ts: int = ps.order()
    most: int


@spans.transaction
def span(e: Span):
    only = Only[0]
    n = 0
    for i in range(e.a, e.b):
        only.last = i
        n += 1
        if n >= e.most:
            break
    for i in range(e.b, e.a, -2):
        if n >= 2 * e.most:
            break
        only.last = max(only.last, i)
        n += 1
    for i in range(e.a, e.b, 3):
        n += 1
        if i > 0 or n >= 3 * e.most:
            only.turns += 1
            break
    for x in e.xs:
        for i in range(x, e.b, 4611686018427387904):
            n += 1
            only.last = i
    for _ in range(e.b, e.a, -9223372036854775808):
        n += 100
    return {"n": n, "last": only.last}


@spans.transaction
def ends(e: Ends):
    n = 0
    last = 0
    for i in range(LOWEST, HIGHEST):
        n += 1
        last = i
        if n > e.most:
            break
    for i in range(HIGHEST, LOWEST, -3):
        n += 1
        last = max(i, last)
        if n > 2 * e.most:
            break
    return {"n": n, "last": last}


any_int = st.one_of(st.integers(-3, 3), st.sampled_from(INT_EDGES), st.integers(LOWEST, HIGHEST))
few = st.integers(-1, 4)
CASE = Case(
    spans,
    {Only: rows(Only, [(0,)])},
    st.one_of(event(Span, a=any_int, b=any_int, most=few, xs=st.lists(any_int, max_size=2)), event(Ends, most=few)),
    size=12,
)
