"""Fields and columns that may be None, and defaults of events' fields: in bodies, at the door, and on disk."""

import datetime as dt
import importlib.util
from decimal import Decimal
from pathlib import Path
from typing import Any, Optional

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.execute import source_files
from penstock.testing import check

shop = ps.App("shop")


@shop.table
class Order:
    id: str = ps.key()
    count: int = 0
    coupon: str | None
    price: Decimal | None = ps.decimal(18, 2)
    paid: dt.datetime | None = None
    rating: Optional[float]  # noqa: UP045
    owner: str | None = ps.index()

    @ps.check("dear")
    def cheap(self) -> bool:
        return self.price is None or self.price < 1000


@shop.event
class Change:
    ts: int = ps.order()
    id: str
    what: str
    coupon: str | None
    price: Decimal | None = ps.decimal(18, 2)
    paid: dt.datetime | None = None
    price_then: Decimal | None = ps.decimal(18, 2, default=None)
    more: int = 1
    rating: float | None = None
    fresh: bool | None = None


@shop.transaction
def change(e: Change) -> dict[str, Any]:
    if e.what == "insert":
        made = Order.insert(e.id, count=e.more)
        return {"coupon": made.coupon, "price": made.price, "known": made.coupon is not None}
    order = Order.get(e.id)
    order.count += e.more
    if e.what == "set":
        order.coupon, order.price, order.paid = e.coupon, e.price, e.paid
        order.rating = e.rating
        order.owner = e.coupon
    elif e.what == "clear":
        order.coupon = None
        order.price = None if e.more > 1 else order.price
    elif e.what == "add":
        order.price += e.more
    elif e.what == "field":
        order.count += 1 if e.coupon < "b" else 0
    elif e.what == "key":
        order.count += Order[e.coupon].count
    elif e.what == "abort":
        ps.abort("as asked", coupon=e.coupon, price=order.price)
    best: int | None = None
    for other in Order.where(owner=e.coupon):
        if best is None or other.count > best:
            best = other.count
    text = order.coupon
    if text is None:
        text = "none"
    return {
        "coupon": order.coupon,
        "price": order.price,
        "known": order.coupon is not None and order.coupon == e.coupon,
        "text": text,
        "best": best,
        "true": 1 if e.fresh else 0 if order.paid else -1,
        "rating": order.rating,
    }


AT = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)
EVENTS = [
    Change(ts=1, id="a", what="set", coupon="x", price=Decimal("2.50"), paid=AT, rating=0.5),
    Change(ts=2, id="b", what="set", coupon=None, fresh=True),
    Change(ts=3, id="a", what="look", coupon="x", fresh=False),
    Change(ts=4, id="b", what="look", coupon=None),
    Change(ts=5, id="a", what="add", coupon=None),
    Change(ts=6, id="b", what="add", coupon=None),
    Change(ts=7, id="a", what="field", coupon=None),
    Change(ts=8, id="a", what="key", coupon=None),
    Change(ts=9, id="a", what="abort", coupon=None),
    Change(ts=10, id="a", what="set", coupon="x", price=Decimal(1000)),
    Change(ts=11, id="c", what="insert", coupon="y", more=4),
    Change(ts=12, id="a", what="clear", coupon=None, more=2),
    Change(ts=13, id="a", what="look", coupon=None),
]


def test_the_reference_says_what_none_means() -> None:
    rows = shop.reference().run(EVENTS).to_pylist()
    assert [row["reason"] for row in rows] == [
        *[None] * 5,
        "null price",
        "null coupon",
        "null coupon",
        "as asked",
        "dear",
        *[None] * 3,
    ]
    assert [row["price"] for row in rows[:5]] == [Decimal("2.50"), None, Decimal("2.50"), None, Decimal("3.50")]
    assert [row["known"] for row in rows[:4]] == [True, False, True, False]
    assert [row["text"] for row in rows[:4]] == ["x", "none", "x", "none"]
    assert [row["best"] for row in rows[:4]] == [1, 1, 2, 2]
    assert [row["true"] for row in rows[:4]] == [0, 1, 0, -1]
    assert (rows[8]["coupon"], rows[8]["price"]) == (None, Decimal("3.50"))
    assert (rows[10]["coupon"], rows[10]["price"], rows[10]["known"]) == (None, None, False)
    assert (rows[12]["coupon"], rows[12]["price"], rows[12]["best"]) == (None, None, 4)


@pytest.mark.parametrize(
    "policy",
    [
        ps.Policy.serial(),
        ps.Policy(explore="bfs", unit="operation", on_abort="eager", threads=2),
        ps.Policy(explore="dfs", unit="transaction", on_abort="lazy", threads=2),
        ps.Policy.locking("pat", threads=2),
    ],
    ids=str,
)
def test_native_equals_the_reference(policy: ps.Policy) -> None:
    """Of what does not scan too, so that the policies have something to do."""
    check(shop, batches=[EVENTS[:6], EVENTS[6:]], policy=policy)
    check(swaps, batches=[[Swap(ts=n, a="abc"[n % 3], b="bca"[n % 4 % 3]) for n in range(40)]], policy=policy)


swaps = ps.App("swaps")


@swaps.table
class Cell:
    id: str = ps.key()
    value: int | None
    name: str | None = "new"
    seen: bool | None


@swaps.event
class Swap:
    ts: int = ps.order()
    a: str
    b: str | None
    by: bool | None = None


@swaps.transaction
def swap(e: Swap) -> dict[str, Any]:
    a, b = Cell.get(e.a), Cell.get(e.a if e.b is None else e.b)
    a.value, b.value = b.value, a.value
    if a.value is None:
        a.value = e.ts
        b.name = None
    elif a.value > 9:
        a.value += b.value
        a.seen = e.by
        ps.require(b.seen is None, "seen", name=b.name)
    return {"value": b.value, "name": a.name}


@pytest.mark.parametrize("log", ["changes", "input"])
def test_none_survives_the_log_and_snapshots(tmp_path: Path, log: Any) -> None:
    reference = shop.reference()
    for number, batch in enumerate((EVENTS[:4], EVENTS[4:9], EVENTS[9:])):
        with shop.open(tmp_path / "state", log=log, snapshot_every=2) as db:
            wanted = reference.run(batch, watermark=2, flush=number == 2)
            assert db.run(batch, watermark=2, flush=number == 2).to_pylist() == wanted.to_pylist()
    with shop.open(tmp_path / "state", log=log) as db:
        found = db.table(Order).sort_by("id")
        assert found.to_pylist() == reference.table(Order).sort_by("id").to_pylist()
        assert found.column("coupon").null_count == 3
        none = db.sql('select id from "order" where coupon is null and paid is null order by id').to_pylist()
        assert none == [{"id": "b"}, {"id": "c"}]


def test_load_takes_none_and_leaves_it_out() -> None:
    with shop.open() as db:
        db.load(Order, [{"id": "a", "coupon": None, "price": 3}, {"id": "b"}])
        db.load(Order, pa.table({"id": ["c"], "owner": pa.array([None], pa.string()), "rating": [None]}))
        rows = db.table(Order).sort_by("id").to_pylist()
    assert [row["price"] for row in rows] == [Decimal("3.00"), None, None]
    assert (
        {row["coupon"] for row in rows} == {row["owner"] for row in rows} == {row["rating"] for row in rows} == {None}
    )
    with shop.open() as db, pytest.raises(ps.InputError, match=r"'count', row 0: is null"):
        db.load(Order, [{"id": "a", "count": None}])


def test_fields_that_are_left_out_take_their_default(tmp_path: Path) -> None:
    assert Change(ts=1, id="a", what="look").values["more"] == 1
    bare = pa.table({"ts": [1, 2], "id": ["a", "b"], "what": ["set", "set"], "coupon": ["p", None]})
    with shop.open() as db:
        db.run({Change: bare})
        db.run({Change: [{"ts": 3, "id": "b", "what": "look"}]})
        assert [row["count"] for row in db.table(Order).sort_by("id").to_pylist()] == [1, 2]
        with pytest.raises(ps.InputError, match=r"column 'what': is missing"):
            db.run({Change: bare.drop_columns("what")})
    pq.write_table(bare, tmp_path / "one.parquet")
    pq.write_table(bare.append_column("more", pa.array([5, None])), tmp_path / "two.parquet")
    event = next(e for e in shop.program.events if e.name == "Change")
    read = source_files.read(event, [str(tmp_path / "one.parquet"), str(tmp_path / "two.parquet")])
    assert (read.table if hasattr(read, "table") else read).column("more").to_pylist() == [1, 1, 5, None]


def test_a_null_in_a_field_with_a_default_stays_null() -> None:
    with shop.open() as db:
        out = db.run({Change: [{"ts": 1, "id": "a", "what": "look", "more": None}]})
    assert out.column("reason").to_pylist() == ["null more"]


def _noted(of: str, **default: Any) -> ps.App:
    app = ps.App("noted")
    columns = {"__annotations__": {"id": "str", "coupon": of}, "id": ps.key(), **default}
    app.table(type("Order", (), columns))
    return app


def test_a_column_may_become_nullable_and_not_the_other_way(tmp_path: Path) -> None:
    with _noted("str", coupon="none").open(tmp_path / "state") as db:
        db.load("Order", [{"id": "a"}, {"id": "b", "coupon": "x"}])
    with _noted("str | None").open(tmp_path / "state") as db:
        db.load("Order", [{"id": "c"}])
        rows = db.table("Order").sort_by("id").to_pylist()
        assert [row["coupon"] for row in rows] == ["none", "x", None]
    with pytest.raises(ps.StateError, match=r"'coupon' is str \| None in it.*may hold None"):
        _noted("str", coupon="none").open(tmp_path / "state")


flow = ps.App("flow")


@flow.table
class Last:
    id: int = ps.key()
    note: str | None
    count: int = 0


@flow.event
class Start:
    ts: int = ps.order()
    id: int
    note: str | None
    wait: int | None = None


@flow.event
class Told:
    key: int
    note: str | None
    count: int = 2


@flow.event
class Out:
    note: str | None
    at_all: int | None = None


@flow.transaction
def start(e: Start) -> None:
    if e.wait is not None:
        ps.emit(Told(key=e.id, note=e.note), at=e.ts + e.wait)
    else:
        ps.emit(Told(key=e.id, note=e.note, count=1))


@flow.transaction
def told(e: Told) -> dict[str, Any]:
    last = Last.get(e.key)
    before = last.note
    last.note = e.note
    last.count += e.count
    ps.emit(Out(note=before, at_all=None if e.note is None else e.count))
    ps.emit(Out(note=e.note))
    return {"before": before}


def test_events_that_are_emitted_carry_none(tmp_path: Path) -> None:
    events = [
        Start(ts=n, id=n % 3, note=None if n % 5 == 0 else f"n{n}", wait=n if n % 4 == 0 else None) for n in range(40)
    ]
    reference = flow.reference()
    for part in (events[:15], events[15:]):
        with flow.open(tmp_path / "state", snapshot_every=1) as db:
            assert db.run(part).to_pylist() == reference.run(part).to_pylist()
            assert db.pending(Told).to_pylist() == reference.pending(Told).to_pylist()
            assert db.emitted(Out).to_pylist() == reference.emitted(Out).to_pylist()
            assert db.call(Told(key=1, note=None)) == reference.call(Told(key=1, note=None))
            assert db.table(Last).to_pylist() == reference.table(Last).to_pylist()


PROGRAM = """
from decimal import Decimal
import penstock as ps
app = ps.App("a")
@app.table
class Order:
    id: str = ps.key()
    count: int = 0
    price: Decimal | None = ps.decimal(9, 2)
@app.event
class E:
    ts: int = ps.order()
    id: str
    coupon: str | None
    more: int = 1
@app.transaction
def f(e: E):
    {body}
"""


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("x = e.more is None", ["'more' is never None", "`| None`"]),
        ("x = e.coupon == None", ["`is None`"]),
        ("Order.get(e.id).count = None", ["'count' is int", "cannot take None"]),
        ("x = None + 1", ["None is not a value here"]),
        (
            "x = None\n    for other in Order:\n        if x is None or other.count > x:\n            x = 1",
            ["int | None"],
        ),
        ('for r in Order.top(3, by="price"):\n        r.count = 1', ["'price' may be None"]),
        ("x = Order[e.id] is None", ["record"]),
    ],
)
def test_what_is_refused_says_what_to_write(tmp_path: Path, body: str, words: list[str]) -> None:
    source = PROGRAM.format(body=body)
    (tmp_path / "refused_none.py").write_text(source)
    spec = importlib.util.spec_from_file_location("refused_none", tmp_path / "refused_none.py")
    assert spec is not None and spec.loader is not None
    with pytest.raises(ps.DeclarationError) as caught:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    assert all(word in str(caught.value) for word in words), str(caught.value)
