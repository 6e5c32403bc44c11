"""Disagreements that random testing found, made small; each one stays, so that it does not come back."""

from pathlib import Path
from typing import Any

import pytest

import penstock as ps
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
