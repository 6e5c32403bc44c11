"""Large tables: views and snapshots come from a copy that follows the table, and equal the table at that version."""

from __future__ import annotations

import datetime
import random
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.commit import Disk
from penstock.commit.snapshot import read_manifest, read_snapshot
from penstock.state import mirror, tables
from penstock.state.mirror import Cut, Mirror

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


def totals(db: Any, ids: range) -> None:
    db.load(Total, [{"id": n, "sum": n} for n in ids])


def paid(db: Any, *places: int) -> None:
    db.run([Put(ts=0, shelf="s", place=n, name="n", price=Decimal(1), note=None) for n in places])


def test_a_batch_does_not_wait_for_who_reads(tiny: None, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, go_on = threading.Event(), threading.Event()
    made = Mirror.made

    def slow(self: Mirror, cut: Cut) -> pa.Table:
        reading.set()
        assert go_on.wait(60)
        return made(self, cut)

    with shop.open() as db:
        totals(db, range(100))
        before = plain(db)
        monkeypatch.setattr(Mirror, "made", slow)
        found: list[Any] = []
        reader = threading.Thread(target=lambda: found.append(db.view()))
        reader.start()
        assert reading.wait(60)
        paid(db, *range(50))
        paid(db, *range(200, 230))
        go_on.set()
        reader.join()
        assert found[0].version == 0
        assert found[0].tables == before
        assert db.view().tables == plain(db)


def test_what_has_not_changed_is_not_copied(tiny: None) -> None:
    with shop.open() as db:
        totals(db, range(100))
        first = db.view().tables["Total"]
        paid(db, 50)
        second = db.view().tables["Total"]
        assert second == plain(db)["Total"]

        def places(table: pa.Table, column: str) -> list[int]:
            return [chunk.buffers()[1].address for chunk in table.column(column).chunks]

        changed = [a != b for a, b in zip(places(first, "sum"), places(second, "sum"), strict=True)]
        assert changed == [k == 50 // 8 for k in range(len(changed))]
        assert places(first, "id") == places(second, "id")
        assert first.column("sum").to_pylist() == list(range(100))


def test_who_looks_beside_a_batch_that_ran_ahead_sees_the_version_before(
    tiny: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one(ts: int, places: range) -> list[Any]:
        return [Put(ts=ts, shelf="s", place=n, name="n", price=Decimal(1), note=None) for n in places]

    with shop.open(tmp_path / "it") as db:
        totals(db, range(100))
        db.run(one(1, range(1)), id=0, source="s", offsets="a")
        db.view()
        before = plain(db)
        tables_at = db._store.tables_at
        monkeypatch.setattr(db._store, "tables_at", None)  # it is not read from the disk
        db.run_ahead(one(2, range(120)), 1, source="s", offsets="b")
        assert db._versions.pending is not None
        for _ in range(2):
            db._view = None
            view = db.view()
            assert (view.version, view.tables) == (1, before)
        assert plain(db) != before
        monkeypatch.setattr(db._store, "tables_at", tables_at)
        db.run(one(2, range(3, 7)), id=1, source="s", offsets="c")  # another one came: what ran ahead is taken back
        assert db.version == 2
        assert view.tables == before
        assert db.view().tables == plain(db)


def test_a_copy_that_nobody_wants_is_forgotten(tiny: None) -> None:
    with shop.open() as db:
        totals(db, range(100))
        db.view()
        table = db._engine.tables["Total"]
        assert table.mirror is not None
        for first in range(0, 60, 10):
            paid(db, *range(first, first + 10))
        assert table.mirror is None
        assert db.view().tables == plain(db)


def test_batches_that_change_all_of_it_do_not_keep_a_snapshot_from_being_made(tiny: None, tmp_path: Path) -> None:
    with shop.open(tmp_path / "it", snapshot_every=2, background=False) as db:
        totals(db, range(200))
        for _ in range(30):
            paid(db, *range(200))
    assert len(manifests(tmp_path / "it")) > 1


def test_a_reader_that_is_stopped_half_way_leaves_the_next_one_a_whole_copy(
    tiny: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shop.open() as db:
        totals(db, range(100))
        db.view()
        put_words, calls = mirror._put_words, [0]

        def stopped(*arguments: Any) -> None:
            calls[0] += 1
            put_words(*arguments)
            if calls[0] == 1:
                raise MemoryError

        paid(db, *range(20))
        monkeypatch.setattr(mirror, "_put_words", stopped)
        with pytest.raises(MemoryError):
            db.view()
        assert db.view().tables == plain(db)
