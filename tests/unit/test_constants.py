"""`or` and `and` as values, `in` constants, and lookups in constant dicts."""

import enum
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.testing import check


class Kind(enum.Enum):
    CARD = "card"
    CASH = "cash"
    OTHER = "other"


RATES = {"card": Decimal("0.05"), Kind.CASH.value: 0, "other": Decimal("0.125")}
FEES = {Kind.CARD: 1, Kind.CASH: 2}
FACTORS = {1: 0.5, 2: 3}
PLACES = {Decimal("1.5"): "low", 2: "high"}
CHEAP = frozenset({"cash", "other"})
LEVELS = [1, 2, 3]

till = ps.App("till")


@till.table
class Paid:
    kind: str = ps.key()
    level: int = ps.key()
    total: Decimal = ps.decimal(18, 4, default=0)
    note: str | None
    count: int = 0


@till.event
class Pay:
    ts: int = ps.order()
    kind: Kind
    amount: Decimal = ps.decimal(18, 2)
    note: str | None = None
    level: int = 0
    by: int | None = None


@till.transaction
def pay(e: Pay) -> dict[str, Any]:
    paid = Paid.get(e.kind, FEES.get(e.kind, 9))
    rate = RATES[e.kind]
    paid.total += e.amount * rate
    paid.note = e.note or paid.note or None
    paid.count += FEES.get(e.kind) or 10
    if e.kind in (Kind.CARD, Kind.CASH) and e.level not in LEVELS:
        paid.count += 1
    known = e.note in ("x", "y", None)
    factor = FACTORS[e.level] if e.level else 0.0
    return {
        "note": e.note or "none",
        "both": e.level and e.by,
        "either": e.by or e.level or -1,
        "rate": rate,
        "cheap": e.kind in CHEAP,
        "known": known,
        "factor": factor,
        "place": PLACES.get(e.amount),
        "listed": e.by in {1, 2},
        "true": bool(e.note) or bool(e.by),
        "within": 0 < e.level <= 2 <= e.level + 1,
        "fee": FEES[e.kind] if e.level else None,
    }


EVENTS = [
    Pay(ts=1, kind=Kind.CARD, amount=Decimal("10.00"), note="x", level=1, by=1),
    Pay(ts=2, kind=Kind.CASH, amount=Decimal("1.50"), level=2, by=0),
    Pay(ts=3, kind=Kind.OTHER, amount=Decimal(2), note=""),
    Pay(ts=4, kind=Kind.CARD, amount=Decimal("0.10"), note="y", level=3),
    Pay(ts=5, kind=Kind.OTHER, amount=Decimal(8), note="z", level=1, by=2),
    Pay(ts=6, kind=Kind.CARD, amount=Decimal(8), level=2),
]


def test_the_reference_gives_what_python_gives() -> None:
    rows = till.reference().run(EVENTS).to_pylist()
    assert [row["reason"] for row in rows] == [None, None, None, "missing key", "missing key", None]
    rows = [row for row in rows if row["reason"] is None]
    assert [row["note"] for row in rows] == ["x", "none", "none", "none"]
    assert [row["both"] for row in rows] == [1, 0, 0, None]
    assert [row["either"] for row in rows] == [1, 2, -1, 2]
    assert [row["rate"] for row in rows] == [Decimal("0.050"), Decimal(0), Decimal("0.125"), Decimal("0.050")]
    assert [row["cheap"] for row in rows] == [False, True, True, False]
    assert [row["known"] for row in rows] == [True, True, False, True]
    assert [row["factor"] for row in rows] == [0.5, 3.0, 0.0, 3.0]
    assert [row["place"] for row in rows] == [None, "low", "high", None]
    assert [row["listed"] for row in rows] == [True, False, False, False]
    assert [row["true"] for row in rows] == [True, False, False, False]
    assert [row["within"] for row in rows] == [True, True, False, True]
    assert [row["fee"] for row in rows] == [1, 2, None, 1]


@pytest.mark.parametrize("policy", [ps.Policy.serial(), ps.Policy(threads=2), ps.Policy.locking("pat", threads=2)])
def test_native_equals_the_reference(policy: ps.Policy) -> None:
    """Keys that a constant dict gives are foreseen."""
    assert "alone" not in str(till.explain())
    check(till, batches=[EVENTS, EVENTS[::-1]], policy=policy)


PRELUDE = """
import penstock as ps
RATES = {"a": 1, "b": "c"}
NESTED = {"a": {"b": 1}}
LONG = set(range(101))
app = ps.App("a")
@app.event
class E:
    ts: int = ps.order()
    n: int
    f: float
    g: float | None
    s: str
@app.transaction
def f(e: E):
    x = """


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("e.s or 1", "'or'"),
        ("RATES[e.s]", "values of one type"),
        ("NESTED[e.s]", "a collection inside of a collection"),
        ("e.n in LONG", "100 items at most"),
        ("e.f in (e.f, 1.0)", "constants"),
        ("e.g in (e.g, 1.0)", "constants"),
        ('e.n in ("a", "b")', "do not compare"),
        ("RATES.items()", "RATES.get(k, default)"),
    ],
)
def test_what_is_refused_says_why(tmp_path: Path, body: str, words: str) -> None:
    import importlib.util

    (tmp_path / "refused_constants.py").write_text(PRELUDE + body + "\n")
    spec = importlib.util.spec_from_file_location("refused_constants", tmp_path / "refused_constants.py")
    assert spec is not None and spec.loader is not None
    with pytest.raises(ps.DeclarationError) as caught:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    assert words in str(caught.value), str(caught.value)
