"""Readers beside a writer that keeps as little as it can, and prunes with every batch: right, and never refused.

Version v holds n = v, so that each answer can be judged by itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_belonging import Counter, Tick, app

from penstock.replica.directory import Directory

pytestmark = pytest.mark.faults

ANSWERS = 150  # of each reader


def judged(rows: list[dict[str, Any]]) -> None:
    assert rows
    assert [row["n"] for row in rows] == [row["version"] for row in rows]


def view(path: Path, _: Any) -> None:
    found = Directory(path).view()
    assert found.sql("select n from counter").to_pylist() == [{"n": found.version}]


def history(path: Path, _: Any) -> None:
    judged(Directory(path).history("Counter", {"id": ["a"]}).to_pylist())


def newest(path: Path, _: Any) -> None:
    directory = Directory(path)
    before = directory.newest()
    assert directory.table("Counter")["n"].to_pylist()[0] >= before.version


def history_of_the_database(_: Path, db: Any) -> None:
    judged(db.history(Counter, "a").to_pylist())


@pytest.mark.parametrize("read", [view, history, newest, history_of_the_database])
@pytest.mark.parametrize("background", [False, True])
def test_a_reader_is_right_and_never_refused(
    read: Callable[[Path, Any], None], background: bool, tmp_path: Path
) -> None:
    done = threading.Event()
    failed: list[BaseException] = []
    path = tmp_path / "state"
    with app.open(path, retain=1, snapshot_every=1, background=background) as db:
        db.run([Tick(ts=0, by=1)])

        def write() -> None:
            ts = 0
            try:
                while not done.is_set():
                    db.run([Tick(ts=(ts := ts + 1), by=1)])
            except BaseException as error:
                failed.append(error)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(ANSWERS):
                read(path, db)
        finally:
            done.set()
            writer.join()
    assert not failed
