"""What a changed app knows does not depend on whether a snapshot was made before it changed: when records were written,
which ids have run. And what an Enum, or None, no longer allows is refused by name."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.errors import InputError, StateError


def visits(*, ttl: int | None = None, unique: int | None = None) -> ps.App:
    app = ps.App("visits")

    @app.table(ttl=ttl)
    class Guest:
        id: int = ps.key()
        times: int = 0

    @app.event
    class Visit:
        ts: int = ps.order()
        id: int = ps.id(unique=unique) if unique else ps.id()
        guest: int

    @app.transaction
    def visit(e: Visit):
        Guest.get(e.guest).times += 1

    return app


Row = tuple[int, int, int]  # ts, id, guest

STAGES: dict[str, list[tuple[dict[str, Any], Row]]] = {
    "a ttl that was left out": [({"ttl": 10}, (0, 1, 1)), ({}, (100, 2, 2)), ({"ttl": 10}, (101, 3, 3))],
    "unique that was left out": [({"unique": 10}, (0, 1, 1)), ({}, (1, 2, 2)), ({"unique": 10}, (2, 1, 3))],
    "a longer span": [({"unique": 10}, (0, 1, 1)), ({"unique": 10}, (100, 2, 2)), ({"unique": 500}, (101, 1, 3))],
    "a shorter span": [({"unique": 500}, (0, 1, 1)), ({"unique": 10}, (90, 2, 2)), ({"unique": 500}, (101, 1, 3))],
}


@pytest.mark.parametrize("every", [1, 50], ids=["snapshots", "no snapshot"])
@pytest.mark.parametrize("what", STAGES)
def test_what_is_known_of_time_is_the_references(what: str, every: int, tmp_path: Path) -> None:
    before = None
    for number, (kind, (ts, id_, guest)) in enumerate(STAGES[what]):
        app = visits(**kind)
        reference = app.reference()
        if number and before is not None:
            if STAGES[what][number - 1][0] == kind:
                reference = before
            else:
                reference.go_on(before)
        row = [{"ts": ts, "id": id_, "guest": guest}]
        with app.open(tmp_path, snapshot_every=every, background=False) as db:
            found = db.run({"Visit": row}, id=number).to_pylist()
            assert found == reference.run({"Visit": row}, id=number).to_pylist()
            assert sorted(db.table("Guest").to_pylist(), key=str) == sorted(
                reference.table("Guest").to_pylist(), key=str
            )
        before = reference


class Status(Enum):
    OPEN = "open"
    PAID = "paid"


class Fewer(Enum):
    OPEN = "open"


def orders(status: Any, note: Any = str | None, *, later: bool = False) -> ps.App:
    """later: what an event brings is stored by a timer."""
    app = ps.App("orders")
    notes = {"status": status, "note": note}
    Order: Any = app.table(
        type("Order", (), {"id": ps.key(), "__annotations__": {"id": int, "status": status}, "status": "open"})
    )
    Place: Any = app.event(
        type("Place", (), {"ts": ps.order(), "__annotations__": {"ts": int, "order": int, **notes}, "note": "-"})
    )
    if later:
        Store: Any = app.event(type("Store", (), {"__annotations__": {"order": int, **notes}}))

        def place(e: Any) -> None:
            ps.emit(Store(order=e.order, status=e.status, note=e.note), at=e.ts + 10)

        def store(e: Any) -> None:
            Order.get(e.order).status = e.status

        store.__annotations__["e"] = Store
        app.transaction(store)
    else:

        def place(e: Any) -> None:
            Order.get(e.order).status = e.status

    place.__annotations__["e"] = Place
    app.transaction(place)
    return app


PAID = {"Place": [{"ts": 1, "order": 7, "status": "paid", "note": None}]}
MADE: dict[str, tuple[bool, dict[str, Any], str]] = {
    "record": (False, {}, "records of table 'Order': status"),
    "held": (False, {"watermark": 5}, "'Place'.*: status"),
    "timer": (True, {}, "'Store'.*: status"),
}


@pytest.mark.parametrize("status", [Status, str], ids=["a member less", "an Enum now"])
@pytest.mark.parametrize("what", MADE)
def test_a_member_that_something_holds_cannot_go(what: str, status: Any, tmp_path: Path) -> None:
    later, options, wrong = MADE[what]
    app, fewer = orders(status, later=later), orders(Fewer, later=later)
    reference = app.reference()
    with app.open(tmp_path) as db:
        db.run(PAID, id=0, **options)
        reference.run(PAID, id=0, **options)
    with pytest.raises(StateError, match=rf"{wrong}, row 0: 'paid' is no Fewer; give 'open'; keep the member"):
        fewer.open(tmp_path)
    with pytest.raises(InputError, match="'paid', which is no member"):
        fewer.reference().go_on(reference)
    with app.open(tmp_path) as db:
        assert db.version == 1


def test_members_may_come_and_those_that_nothing_holds_may_go(tmp_path: Path) -> None:
    for version, status in ((0, Fewer), (1, Status), (2, Fewer), (2, Fewer)):
        with orders(status).open(tmp_path) as db:
            assert db.version == version


def test_a_timer_that_holds_none_needs_a_field_that_may(tmp_path: Path) -> None:
    app, strict = orders(str, later=True), orders(str, str, later=True)
    reference = app.reference()
    with app.open(tmp_path) as db:
        db.run(PAID)
        reference.run(PAID)
    with pytest.raises(StateError, match=r"timer.*'Store', and the field 'note' of one is None, which it may not be"):
        strict.open(tmp_path)
    with pytest.raises(InputError, match="note of a timer is None"):
        strict.reference().go_on(reference)
    with app.open(tmp_path) as db:
        db.run({"Place": [{"ts": 50, "order": 8, "status": "x", "note": "n"}]})
    with strict.open(tmp_path) as db:
        assert db.pending("Store").to_pylist() == [{"at": 60, "order": 8, "status": "x", "note": "n"}]
        assert db.version == 3
