"""load: records that are there already, checks of what is brought, all or nothing, and what reads them afterwards."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.testing import assert_same_outcomes, assert_same_tables

shop = ps.App("shop")


@shop.table(ttl=10)
class Stock:
    place: str = ps.key()
    item: int = ps.key()
    owner: str = ps.index(default="nobody")
    count: int = 1
    price: Decimal = ps.decimal(18, 2, default=5)

    @ps.check("below zero")
    def positive(self) -> bool:
        return self.count >= 0

    @ps.check("too dear")
    def cheap(self) -> bool:
        return self.price * self.count < 1000 or self.item == 99


@shop.event
class Look:
    ts: int = ps.order()
    owner: str
    take: int


@shop.transaction
def look(e: Look) -> dict[str, int]:
    found = 0
    for one in Stock.where(owner=e.owner):
        found += one.count
        one.count -= e.take
    return {"found": found}


A, B = ({"place": "p", "item": 1}, {"place": "p", "item": 2, "owner": "ann", "count": 4})


def both(rows: Any, **options: Any) -> None:
    """The engine and the reference take the same rows, or refuse them with the same words and change nothing."""
    with shop.open() as db:
        reference = shop.reference()
        for side in (db, reference):
            side.load(Stock, [A, B])
        ends = []
        for side in (db, reference):
            before = side.table(Stock)
            try:
                side.load(Stock, rows, **options)
                ends.append("loaded")
            except ps.InputError as error:
                ends.append(str(error))
                assert side.table(Stock).equals(before)
        assert ends[0] == ends[1]
        assert_same_tables(db.table(Stock), reference.table(Stock), ["place", "item"])
        for ts in (1, 12):
            batch = [Look(ts=ts, owner="ann", take=1)]
            assert_same_outcomes(db.run(batch), reference.run(batch))
        if ends[0] != "loaded":
            raise ps.InputError(ends[0])


def test_a_key_that_is_there_is_refused_kept_or_replaced() -> None:
    new, again = {"place": "q", "item": 1, "owner": "ann", "count": 7}, {"place": "p", "item": 2, "price": 1}
    with pytest.raises(ps.InputError, match=r"key 'p', 2 is there already; .* on_conflict=\"keep\""):
        both([new, again])
    both([new, again], on_conflict="keep")
    both([new, again], on_conflict="replace")
    both([again], on_conflict="keep")
    with shop.open() as db:
        db.load(Stock, [A, B])
        db.load(Stock, [new, again], on_conflict="replace")
        found = {row["place"] + str(row["item"]): row for row in db.table(Stock).to_pylist()}
        assert found["p2"] == {"place": "p", "item": 2, "owner": "nobody", "count": 1, "price": Decimal("1.00")}
        db.load(Stock, [A, new, {**B, "item": 3}], on_conflict="keep")
        assert db.version == 0
        assert db.run([Look(ts=1, owner="ann", take=0)]).to_pylist()[0]["found"] == 11


def test_checks_hold_for_what_is_loaded_and_name_the_first_offender() -> None:
    rows = [{"place": "q", "item": n, "count": -n} for n in range(4)] + [{"place": "r", "item": 1, "price": 2000}]
    with pytest.raises(ps.InputError, match=r"the record with the key 'q', 1 breaks the check 'below zero'; nothing"):
        both(rows)
    with pytest.raises(ps.InputError, match="key 'r', 1 breaks the check 'too dear'"):
        both(rows[-1:])
    with pytest.raises(ps.InputError, match=r"key 'q', 1 breaks the check 'too dear' \(overflow\)"):
        both([{"place": "q", "item": 1, "count": 2**60}])
    both([{"place": "q", "item": 99, "price": 2000}])
    both(rows, check=False)
    both([{**A, "count": -1}], on_conflict="keep")  # it is not loaded
    with pytest.raises(ps.InputError, match="breaks"):
        both([{**A, "count": -1}], on_conflict="replace")


def test_a_key_twice_and_odd_options_are_refused() -> None:
    for way in ("fail", "keep", "replace"):
        with pytest.raises(ps.InputError, match="rows 0 and 1 have the same key"):
            both([A, A], on_conflict=way)
    with pytest.raises(ps.InputError, match="on_conflict='skip' does not say"):
        both([A], on_conflict="skip")
    with pytest.raises(ps.InputError, match="check='yes'; give True or False"):
        both([A], check="yes")


@pytest.mark.parametrize("log", ["changes", "input"])
def test_what_was_replaced_is_so_after_a_restart_in_views_and_in_history(tmp_path: Path, log: str) -> None:
    with shop.open(tmp_path, log=log, snapshot_every=1, background=False) as db:
        db.load(Stock, [A, B])
        view = db.view()
        db.run([Look(ts=1, owner="ann", take=1)], id=0, source="s", offsets="0")
        if log == "changes":  # what runs ahead of it goes back
            db.run_ahead([Look(ts=2, owner="ann", take=1)], 1, source="s", offsets="1")
        db.load(Stock, pa.table({"place": ["p", "z"], "item": [2, 9], "count": [9, 9]}), on_conflict="replace")
        assert {row["count"] for row in view.tables["Stock"].to_pylist()} == {1, 4}
        db.run([Look(ts=2, owner="ann", take=1)], id=1, source="s", offsets="1")
        whole = db.table(Stock)
        assert whole.column("count").to_pylist() == [1, 9, 9]
    for _ in range(2):
        with shop.open(tmp_path, log=log) as db:
            assert db.table(Stock).equals(whole)
            changes = [(row["version"], row["change"], row["count"]) for row in db.history(Stock, "p", 2).to_pylist()]
            assert changes[-3:] == [(0, "loaded", 4), (1, "written", 3), (1, "loaded", 9)]
            assert db.table(Stock, version=0).column("count").to_pylist() == [1, 4]
    with shop.open(tmp_path, log=log) as db:  # a load is a write: its time begins anew
        db.run([Look(ts=5, owner="", take=0)])
        db.load(Stock, [{**B, "count": 7}], on_conflict="replace")
        db.run([Look(ts=12, owner="", take=0)])
        assert db.table(Stock).column("count").to_pylist() == [1, 7]
