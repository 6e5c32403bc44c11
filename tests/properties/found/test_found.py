"""Disagreements that random testing found, made small; each one stays, so that it does not come back."""

from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.schedule.policy import Policy
from penstock.testing import check

floats = ps.App("floats")


@floats.table
class Cell:
    k: int = ps.key()
    f: float = 0.0


@floats.event
class Divide:
    ts: int = ps.order()
    x: float
    y: float


@floats.transaction
def divide(e: Divide):
    Cell.get(0).f = e.x % e.y
    return {"floor": e.x // e.y}


def test_float_floor_and_modulo() -> None:
    pairs = [(7.0, 2.0), (-7.0, 2.0), (7.0, -2.0), (-0.0, 3.0), (1e308, 1e-308), (5.0, float("inf")), (1.0, 0.0)]
    check(floats, batches=[[Divide(ts=n, x=x, y=y) for n, (x, y) in enumerate(pairs)]])


named = ps.App("named")


@named.table
class Count:
    k: int = ps.key()
    n: int = 0


@named.event
class Add:
    ts: int = ps.order()
    id: str = ps.id()
    n: int


@named.transaction
def add(e: Add):
    Count.get(0).n += e.n


@pytest.mark.parametrize("batch", [[], {}, {Add: []}, {Add: Add.definition.arrow().empty_table()}])
def test_empty_batch(batch: Any) -> None:
    check(named, batches=[batch, [Add(ts=1, id="a", n=1)], batch])


compared = ps.App("compared")


@compared.table
class Same:
    k: int = ps.key()
    n: int = 0


@compared.event
class Compare:
    ts: int = ps.order()
    n: int
    x: float


@compared.transaction
def compare(e: Compare):
    return {"same": e.n == e.x, "less": e.x < e.n}


def test_smallest_int_compared_with_float() -> None:
    """CPython compares an int with a float of as many bits by negating the int, which a checked int refuses."""
    check(
        compared, batches=[[Compare(ts=1, n=-(2**63), x=-(2.0**63)), Compare(ts=2, n=-(2**63), x=-(2.0**63) - 2048.0)]]
    )


def test_a_record_made_and_deleted_in_one_batch_survives_a_reopen(tmp_path: Path) -> None:
    brief = ps.App("brief")

    @brief.table
    class Visit:
        id: int = ps.key()

    @brief.event
    class Come:
        ts: int = ps.order()
        id_: int

    @brief.event
    class Go:
        ts: int = ps.order()
        id_: int

    @brief.transaction
    def come(e: Come):
        Visit.insert(e.id_)

    @brief.transaction
    def go(e: Go):
        del Visit[e.id_]

    for log in ("changes", "input"):
        with brief.open(tmp_path / log, log=log) as db:
            db.run([Come(ts=1, id_=1), Go(ts=2, id_=1), Come(ts=3, id_=2)])
        with brief.open(tmp_path / log, log=log) as db:
            assert db.table(Visit).to_pylist() == [{"id": 2}]


def test_constants_that_overflow_abort_and_still_compile() -> None:
    large = ps.App("large")

    @large.event
    class Number:
        ts: int = ps.order()
        d: ps.decimal(18, 2)

    @large.transaction
    def add(e: Number):
        if e.d > 0:
            return {"sum": e.d + BIG}
        if e.d < -5:
            return {"sum": -SMALLEST}
        return {"sum": BIG + BIG}

    check(large, batches=[[Number(ts=n, d=d) for n, d in enumerate((1, 0, -9))]])


BIG, SMALLEST = 2**62, -(2**63)


spans = ps.App("spans")
LOWEST, HIGHEST = -(2**63), 2**63 - 1


@spans.table
class Walked:
    id: int = ps.key()
    last: int = 0
    turns: int = 0


@spans.event
class Span:
    ts: int = ps.order()
    a: int
    b: int


@spans.transaction
def walk(e: Span):
    walked = Walked.get(e.ts)
    for i in range(e.a, e.b):
        walked.turns += 1
        walked.last = i
        if walked.turns == 5:
            break
    for i in range(e.a, e.b, 3):
        walked.turns += 1
        walked.last = max(walked.last, i)
        if walked.turns >= 10:
            break
    n = 0
    for i in range(e.b, e.a, -2):
        n += 1
        walked.last = i
        if n == 5:
            break
    for i in range(e.a, e.b, 9223372036854775807):
        walked.turns += 100
        n = i
    for i in range(e.b, e.a, -9223372036854775808):
        walked.turns += 1000
        n = i
    return {"n": n, "turns": walked.turns, "last": walked.last}


@pytest.mark.parametrize("policy", ["serial", "ready/transaction/eager", "tstream"])
def test_a_range_as_wide_as_all_ints(policy: str) -> None:
    """More turns than an int64 counts, and items at both ends of it."""
    ends = [LOWEST, LOWEST + 1, LOWEST + 2, -(2**62), -1, 0, 1, 2**62, HIGHEST - 2, HIGHEST - 1, HIGHEST]
    events = [Span(ts=n, a=a, b=b) for n, (a, b) in enumerate((a, b) for a in ends for b in ends)]
    check(spans, batches=[events], policy=Policy.parse(policy, 2))


def test_a_range_between_constants_at_the_ends() -> None:
    ends = ps.App("ends")

    @ends.event
    class Go:
        ts: int = ps.order()
        most: int

    @ends.transaction
    def go(e: Go):
        n, last = 0, 0
        for i in range(LOWEST, HIGHEST):
            n, last = n + 1, i
            if n == e.most:
                break
        for _ in range(HIGHEST, LOWEST, -1):
            n += 1
            if n >= 2 * e.most:
                break
        for _ in range(HIGHEST, HIGHEST):
            n += 100
        for i in range(HIGHEST - 1, HIGHEST):
            n, last = n + 1, last + i
        return {"n": n, "last": last}

    check(ends, batches=[[Go(ts=1, most=1), Go(ts=2, most=3)]])
