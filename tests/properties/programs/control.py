"""Flow: nested ifs, early returns, loops with break and continue, chained comparisons, conditional expressions."""

from hypothesis import strategies as st
from values import event, rows

import penstock as ps
from programs import Case

LIMIT = 3

control = ps.App("control")


@control.table
class Cell:
    k: int = ps.key()
    n: int = 0
    s: str = "none"
    ok: bool = True


@control.event
class Step:
    ts: int = ps.order()
    k: int
    a: int
    b: int
    word: str
    flag: bool


@control.event
class Count:
    ts: int = ps.order()
    k: int
    start: int
    stop: int


@control.transaction
def step(e: Step):
    cell = Cell.get(e.k)
    if e.a < e.b:
        if e.flag:
            cell.n += 1
            if cell.n > LIMIT:
                return {"how": "over", "n": cell.n}
        elif e.word:
            cell.s = e.word
        else:
            ps.abort("no word")
    elif e.a == e.b:
        cell.ok = not cell.ok
        return
    elif 0 <= e.b < e.a <= 10 != cell.n:
        size = e.a if cell.ok else e.b
        cell.n = size - (1 if size > 2 else -1)
    else:
        if not (cell.ok or e.flag):
            ps.abort("not ok")
        cell.s = "big" if e.a > 100 else "small" if e.a > 0 else "negative"
    ps.require(cell.n != 4 or e.flag, "four")
    if cell.n and cell.s:
        return {"how": cell.s, "n": cell.n, "same": cell.s == e.word}
    return {"how": None, "n": cell.n, "same": None}


@control.transaction
def count(e: Count):
    cell = Cell[e.k]
    total = 0
    for i in range(e.start, e.stop):
        if i == 2:
            continue
        if i > 6:
            break
        total += i
    for i in range(e.stop, e.start, -3):
        for j in range(3):
            if j > i:
                break
            if i * j == 4:
                cell.n = i
                return {"how": "inside", "n": total}
            total -= j
    for i in range(0, 10, 4):
        total += i
        if total > 20:
            ps.abort("too far")
    else_ = total % 5 if total > 0 else 0
    cell.n = else_
    return {"how": "end", "n": total, "same": cell.n == total}


small = st.integers(-2, 9)
key = st.sampled_from([0, 0, 1, 2])
CASE = Case(
    control,
    {Cell: rows(Cell, [(0,), (1,)], n=small)},
    st.one_of(
        event(Step, k=key, a=st.one_of(small, st.just(101)), b=small, word=st.sampled_from(["", "big", "w"])),
        event(Count, k=key, start=small, stop=st.integers(-5, 30)),
    ),
)
