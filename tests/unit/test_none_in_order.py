"""Where a None meets what is evaluated behind it: the first abort in Python's order wins."""

from decimal import Decimal
from typing import Any

import penstock as ps
from penstock.testing import check

WORDS = {None: "none", "a": "first"}

order = ps.App("order")


@order.event
class Ask:
    ts: int = ps.order()
    what: str
    n: int | None
    s: str | None = "a"
    zero: int = 0
    xs: list[int]


@order.transaction
def ask(e: Ask) -> dict[str, Any] | None:
    if e.what == "decimal":
        return {"d": Decimal(e.n) + Decimal("0.50")}
    if e.what == "slice":
        return {"k": len(e.xs[e.n : 1 // e.zero])}
    if e.what == "least":
        return {"k": min(e.n if x > 1 else 1 // x for x in e.xs)}
    if e.what == "most":
        return {"k": max(e.n if x > 1 else 1 // x for x in e.xs)}
    return {"word": WORDS[e.s]}


ASKED = [
    (Ask(ts=1, what="decimal", n=None, xs=[]), "null n"),
    (Ask(ts=2, what="decimal", n=2, xs=[]), None),
    (Ask(ts=3, what="slice", n=None, xs=[1]), "division by zero"),
    (Ask(ts=4, what="slice", n=None, xs=[1], zero=1), "null n"),
    (Ask(ts=5, what="least", n=None, xs=[1, 2, 0]), "null n"),
    (Ask(ts=6, what="most", n=None, xs=[1, 2, 0]), "null n"),
    (Ask(ts=7, what="least", n=None, xs=[2]), None),
    (Ask(ts=8, what="least", n=None, xs=[1, 0, 2]), "division by zero"),
    (Ask(ts=9, what="word", n=None, s=None, xs=[]), None),
    (Ask(ts=10, what="word", n=None, s="b", xs=[]), "missing key"),
]


def test_the_first_abort_wins() -> None:
    (out,) = check(order, batches=[[event for event, _ in ASKED]])
    assert out.column("reason").to_pylist() == [reason for _, reason in ASKED]
    assert out.column("d").to_pylist()[1] == Decimal("2.50")
    assert out.column("word").to_pylist()[8] == "none"
