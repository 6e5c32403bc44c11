"""A change of the schema through SIGKILL, and a failing disk, at every file operation: the directory is of the one
schema or of the other, opens as such, and every version reads as it was written."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from failing_disk import scratch
from faulty import Counting, Failing, Killing
from test_crash import Child

import penstock as ps
from penstock.check.check import check
from penstock.commit import Disk
from penstock.database import Database
from penstock.plan.migration import Words
from penstock.replica.directory import Directory

pytestmark = pytest.mark.faults

OPTIONS: dict[str, Any] = {"background": False, "snapshot_every": 2, "scrub": None}


@cache
def before() -> ps.App:
    app = ps.App("till")

    @app.table
    class Till:
        id: str = ps.key()
        cash: int = 0
        note: str = "-"

    @app.table
    class Old:
        id: str = ps.key()

    @app.event
    class Sale:
        ts: int = ps.order()
        till: str
        amount: int
        memo: str

    @app.transaction
    def sale(e: Sale):
        Till.get(e.till).cash += e.amount

    return app


@cache
def opened() -> ps.App:
    """Loses nothing."""
    app = ps.App("till")

    @app.table
    class Till:
        id: str = ps.key()
        cash: ps.decimal(18, 2) = 0  # type: ignore[valid-type]
        note: str = "-"
        rank: int = 1

    @app.table
    class Old:
        id: str = ps.key()

    @app.event
    class Sale:
        ts: int = ps.order()
        till: str
        amount: int

    @app.transaction
    def sale(e: Sale):
        Till.get(e.till).cash += e.amount

    return app


@cache
def migrated() -> ps.App:
    app = ps.App("till")

    @app.table
    class Till:
        id: str = ps.key()
        money: int = 0

    @app.event
    class Sale:
        ts: int = ps.order()
        till: str
        amount: int
        memo: str

    @app.transaction
    def sale(e: Sale):
        Till.get(e.till).money += e.amount

    return app


WORDS = Words({"Till.cash": "money"}, ["Till.note"], ["Old"])
CHANGES: dict[str, tuple[Callable[[], ps.App], Words, str]] = {
    "open": (opened, Words(), "cash"),
    "migrate": (migrated, WORDS, "money"),
}
WAS = [{"id": "a", "cash": 5, "note": "-"}, {"id": "b", "cash": 2, "note": "-"}]


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By the way to log: three versions, of which the last holds an event back."""
    app, found = before(), {}
    Sale = app._handles["Sale"]
    for log in ("changes", "input"):
        found[log] = path = tmp_path_factory.mktemp("schemas") / log
        with app.open(path, log=log, **OPTIONS) as db:
            db.load("Old", [{"id": "x"}])
            db.run([Sale(ts=1, till="a", amount=3, memo="")], id=0, watermark=0)
            db.run(
                [Sale(ts=2, till="b", amount=2, memo=""), Sale(ts=3, till="a", amount=2, memo="")], id=1, watermark=0
            )
            db.run([Sale(ts=9, till="a", amount=7, memo="m")], id=2, watermark=5)
    return found


def change(path: Path, what: str, log: str, disk: Disk) -> None:
    make, words, _ = CHANGES[what]
    Database(make().plan, path, words=words, log=log, disk=disk, **OPTIONS).close()


def judged(path: Path, what: str, log: str) -> int:
    """Whatever was left: its version."""
    make, words, column = CHANGES[what]
    version = Directory(path).version
    assert version in (3, 4)
    tables = Directory(path).view().tables
    if version == 3:
        assert tables["Till"].sort_by("id").to_pylist() == WAS and tables["Old"].num_rows == 1
    else:
        assert [row[column] for row in tables["Till"].sort_by("id").to_pylist()] == [5, 2]
    if version == 3:  # the app that it is of goes on from it
        copied = path.with_name("copy")
        shutil.copytree(path, copied)
        with before().open(copied, log=log, **OPTIONS) as db:  # type: ignore[arg-type]
            assert (db.version, db.held) == (3, 1)
        shutil.rmtree(copied)
    app = make()
    with Database(app.plan, path, words=words, log=log, **OPTIONS) as db:
        assert (db.version, db.held, db.last_id) == (4, 1, 2)
        db.run({}, flush=True)
        assert [row[column] for row in db.table("Till").sort_by("id").to_pylist()] == [12, 2]
    with app.open(path, log=log, **OPTIONS) as db:  # type: ignore[arg-type]
        assert db.version == 5
    if log == "changes":
        assert Directory(path).table("Till", 3).sort_by("id").to_pylist() == WAS
    assert not check(Disk(), path).damage
    return version


def operations(template: Path, what: str, log: str) -> int:
    disk = Counting()
    with scratch() as folder:
        shutil.copytree(template, folder / "state")
        change(folder / "state", what, log, disk)
    return disk.count


@pytest.mark.parametrize("log", ["changes", "input"])
@pytest.mark.parametrize("what", CHANGES)
def test_killed_anywhere_it_is_the_one_schema_or_the_other(what: str, log: str, templates: dict[str, Path]) -> None:
    for app in (before(), opened(), migrated()):
        assert app.plan  # lowered once, and not in each child
    versions = []
    count = operations(templates[log], what, log)
    assert count > 5
    for at in range(1, count + 1):
        with scratch() as folder:
            path = folder / "state"
            shutil.copytree(templates[log], path)
            child = Child(lambda told, path=path, at=at: change(path, what, log, Killing(at)))  # type: ignore[misc]
            assert child.ended(), f"operation {at} was not reached"
            versions.append(judged(path, what, log))
    assert versions == sorted(versions) and set(versions) == {3, 4}


@pytest.mark.parametrize("log", ["changes", pytest.param("input", marks=pytest.mark.long)])
@pytest.mark.parametrize("what", CHANGES)
def test_failing_anywhere_it_is_the_one_schema_or_the_other(what: str, log: str, templates: dict[str, Path]) -> None:
    versions, at = set(), 0
    while True:
        at += 1
        disk = Failing()
        disk.fail(at)
        with scratch() as folder:
            path = folder / "state"
            shutil.copytree(templates[log], path)
            try:
                change(path, what, log, disk)
            except (OSError, ps.StateError):
                assert disk.met
            if not disk.met:
                break
            versions.add(judged(path, what, log))
    assert versions == {3, 4} and at > 5
