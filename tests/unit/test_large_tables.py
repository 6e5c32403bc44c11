"""Large tables: views and snapshots come from a copy that follows the table, and equal the table at that version."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.commit import Disk
from penstock.commit.snapshot import read_manifest, read_snapshot
from penstock.state import mirror, tables

shop = ps.App("shop")


@shop.table(ttl=40)
class Item:
    shelf: str = ps.key()
    place: int = ps.key()
    name: str = ps.index(default="")
    price: Decimal = ps.decimal(18, 2, default=0)
    weight: float = 0.0
    sold: bool = False
    day: datetime.date = datetime.date(2026, 1, 1)
    note: str | None = None
    count: int | None = None


@shop.table
class Total:
    id: int = ps.key()
    sum: int = 0


@shop.event
class Put:
    ts: int = ps.order()
    shelf: str
    place: int
    name: str
    price: Decimal = ps.decimal(18, 2)
    note: str | None


@shop.event
class Take:
    ts: int = ps.order()
    shelf: str
    place: int


@shop.transaction
def put(e: Put) -> None:
    item = Item.get(e.shelf, e.place)
    item.name = e.name
    item.price += e.price
    item.weight += 0.5
    item.sold = not item.sold
    item.note = e.note
    item.count = None if e.place % 3 == 0 else e.place
    total = Total.get(e.place)
    total.sum += 1
    if e.price < 0:
        ps.abort("negative")


@shop.transaction
def take(e: Take) -> None:
    del Item[e.shelf, e.place]


TS = [0]


def batch(rng: random.Random, places: int, events: int) -> list[Any]:
    out: list[Any] = []
    for _ in range(events):
        TS[0] += rng.random() < 0.2
        where = {"ts": TS[0], "shelf": f"shelf {rng.randrange(3)}", "place": rng.randrange(places)}
        if rng.random() < 0.3:
            out.append(Take(**where))
        else:
            note = rng.choice([None, f"note {rng.randrange(1000)}"])
            out.append(Put(**where, name=f"n{rng.randrange(50)}", price=Decimal(rng.randrange(-3, 20)), note=note))
    return out


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of more than eight records are large, and strings are forgotten soon."""
    monkeypatch.setattr(mirror, "BITS", 3)
    monkeypatch.setattr(mirror, "_AT_A_TIME", 1)
    monkeypatch.setattr(tables, "_COMPACT_ABOVE", 60)


def plain(db: Any) -> dict[str, pa.Table]:
    """A copy that owes the other one nothing."""
    return {name: table for name, table in db._engine.tables.view(0).tables.items()}


@pytest.mark.parametrize("seed", range(6))
def test_views_and_snapshots_are_the_tables_at_their_version(seed: int, tiny: None, tmp_path: Path) -> None:
    rng = random.Random(seed)
    path = tmp_path / "shop"
    at_version: dict[int, dict[str, pa.Table]] = {}
    held: list[Any] = []
    TS[0] = 0
    mirrored = compacted = 0
    with shop.open(path, snapshot_every=rng.choice([2, 5]), retain=1000, background=rng.random() < 0.5) as db:
        for _ in range(rng.choice([40, 60])):
            strings = db._engine.tables.strings
            if rng.random() < 0.1:
                number = rng.randrange(100, 200)
                db.load(Total, [{"id": n, "sum": n} for n in range(number, number + 3)], on_conflict="replace")
            db.run(batch(rng, 60, rng.choice([1, 5, 40])))
            compacted += db._engine.tables.strings is not strings
            at_version[db.version] = plain(db)
            if rng.random() < 0.6:
                view = db.view()
                assert view.version == db.version
                assert view.tables == at_version[db.version]
                if rng.random() < 0.5:
                    held.append(view)
                mirrored += db._engine.tables["Item"].mirror is not None
        assert mirrored and compacted and held
        for view in held:  # what came behind them has not reached them
            assert view.tables == at_version[view.version]
        last = plain(db)
    compared = 0
    for name, manifest in manifests(path):
        found = read_snapshot(Disk(), name, manifest)
        for table, records in at_version[manifest.version].items():
            assert found.tables[table].combine_chunks() == records.combine_chunks()
            compared += 1
        assert found.tables["aged:Item"].num_rows == found.tables["Item"].num_rows
    assert compared > 2
    with shop.open(path) as db:
        assert by_key(db.view().tables) == by_key(last)


def manifests(path: Path) -> list[tuple[Path, Any]]:
    found = [one for one in (path / "snapshots").iterdir() if one.name.isdigit()]
    return [(one, read_manifest(Disk(), one)) for one in found]


def by_key(found: dict[str, pa.Table]) -> dict[str, list[str]]:
    """Rows are in other places once a directory was read back."""
    return {name: sorted(map(repr, table.to_pylist())) for name, table in found.items()}
