"""Functions that numba compiles: ints, floats and bools; one raises; a costly one."""

import math

from hypothesis import strategies as st
from values import event, rows

import penstock as ps
from programs import Case

udfs = ps.App("udfs")


@ps.udf
def collatz(n, limit):
    steps = 0
    while n > 1 and steps < limit:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


@ps.udf
def distance(x, y):
    return math.sqrt(x * x + y * y)


@ps.udf
def strict(n):
    if n < 0:
        raise ValueError("negative")
    return n * 2


@ps.udf
def odd(n, flag):
    return n % 2 == 1 and flag


@udfs.table
class Spot:
    k: int = ps.key()
    n: int = 0
    x: float = 0.0
    y: float = 0.0
    odd: bool = False

    @ps.check("too far")
    def near(self):
        return distance(self.x, self.y) < 1e9


@udfs.event
class Move:
    ts: int = ps.order()
    k: int
    n: int
    dx: float
    dy: float
    flag: bool


@udfs.event
class Twice:
    ts: int = ps.order()
    k: int
    n: int


@udfs.transaction
def move(e: Move):
    spot = Spot.get(e.k)
    spot.x += e.dx
    spot.y -= e.dy
    spot.n = collatz(e.n, 50)
    spot.odd = odd(spot.n, e.flag)
    return {"far": distance(spot.x, spot.y), "n": spot.n, "odd": odd(e.n, spot.odd)}


@udfs.transaction
def twice(e: Twice):
    spot = Spot[e.k]
    if e.n != 0 and strict(e.n) > 4:
        spot.n = strict(spot.n) + strict(strict(e.n - 4))
    ps.require(odd(e.n, True) or spot.n < 20, "even")
    return {"n": spot.n, "far": distance(1.0, 0.5)}


key = st.sampled_from([1, 1, 2])
CASE = Case(
    udfs,
    {Spot: rows(Spot, [(1,), (3,)], n=st.integers(-2, 5))},
    st.one_of(event(Move, k=key), event(Twice, k=key, n=st.integers(-1, 9))),
)
