"""A writer's own check of its files: slow, beside the batches, never in their way; and what it finds is told."""

from __future__ import annotations

import logging
import random
import threading
from pathlib import Path
from typing import Any

import pytest
from test_belonging import Tick, app
from test_check_of_damage import IDENTITY, fill, table

from penstock import observe
from penstock.check.findings import Finding
from penstock.check.scrub import FIRST_S, RATE, Scrub
from penstock.commit import Disk, Journal
from penstock.errors import StateError

pytestmark = pytest.mark.faults


class Bench:
    """A scrub whose time stands still unless it is told otherwise, and that never waits."""

    def __init__(self, path: Path, hours: float | None = 24.0, disk: Disk | None = None) -> None:
        self.now, self.waited, self.told = 1000.0, 0.0, list[Finding]()
        self.scrub = Scrub(
            disk or Disk(),
            path,
            hours,
            self.told.extend,
            clock=lambda: self.now,
            wait=self.wait,
            chance=random.Random(7),
        )

    def wait(self, seconds: float) -> bool:
        self.waited += seconds
        return False

    def run(self) -> bool:
        """Whether a pass was due; it is over on return."""
        self.scrub.begin_if_due()
        thread, self.scrub._thread = self.scrub._thread, None
        if thread is None:
            return False
        thread.join()
        assert thread.daemon
        return True


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    fill(tmp_path / "state", 16)
    return tmp_path / "state"


def test_a_pass_comes_some_minutes_after_open_and_then_once_a_day(path: Path) -> None:
    bench = Bench(path)
    assert not bench.run()
    bench.now += FIRST_S
    assert bench.run()
    assert not bench.run()
    bench.now += 24 * 3600 - 1
    assert not bench.run()
    bench.now += 1
    assert bench.run()
    assert bench.told == [] and bench.scrub.damage == ()


def test_it_reads_every_byte_and_no_faster_than_it_should(path: Path) -> None:
    bench = Bench(path)
    bench.now += FIRST_S
    bench.run()
    size = sum(file.stat().st_size for file in path.rglob("*") if file.suffix in (".seg", ".arrow"))
    assert bench.waited == pytest.approx(size / RATE)


@pytest.mark.parametrize("hours", [None, 0, 0.0])
def test_it_can_be_turned_off(path: Path, hours: float | None) -> None:
    bench = Bench(path, hours)
    bench.now += 1e9
    assert not bench.run()


@pytest.mark.parametrize("hours", [-1, float("nan"), float("inf"), True, "24"])
def test_what_is_no_number_of_hours_is_refused(tmp_path: Path, hours: Any) -> None:
    with pytest.raises(StateError, match=r"scrub=.* is no number of hours between two passes; write one, as scrub=24"):
        app.open(tmp_path / "state", scrub=hours)
    assert not (tmp_path / "state").exists()


def test_damage_is_told_once_and_remembered_until_it_is_mended(path: Path) -> None:
    bench = Bench(path)
    segment = path / "log" / "000000000013.seg"
    sound = segment.read_bytes()
    flip(segment)
    bench.now += FIRST_S
    bench.run()
    (found,) = bench.told
    assert (found.file, found.ok) == ("log/000000000013.seg", False)
    assert "version 11 cannot be read without it" in found.remedy
    assert bench.scrub.damage == (found,)
    lost = path / "snapshots" / "000000000018" / "Rows.arrow"
    lost.unlink()
    bench.now += 24 * 3600
    bench.run()
    assert [finding.file for finding in bench.told] == ["log/000000000013.seg", "snapshots/000000000018/Rows.arrow"]
    assert len(bench.scrub.damage) == 2
    segment.write_bytes(sound)
    bench.now += 24 * 3600
    bench.run()
    assert len(bench.told) == 2
    assert [finding.file for finding in bench.scrub.damage] == ["snapshots/000000000018/Rows.arrow"]


class Failing(Disk):
    def listdir(self, path: Path) -> list[str]:
        raise ValueError("no")


class NoThreads(Disk):
    def thread(self, work: Any, name: str, *, daemon: bool = False) -> threading.Thread:
        raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("disk", [Failing(), NoThreads()])
def test_what_goes_wrong_in_it_goes_no_further(path: Path, disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(path, disk=disk)
    bench.now += FIRST_S
    bench.run()
    assert "the scrub of state directory" in caplog.text
    assert bench.told == []


def test_it_stops_within_a_file(path: Path) -> None:
    bench, begun = Bench(path), threading.Event()

    def wait(seconds: float) -> bool:
        begun.set()
        return bench.scrub._stopped.wait(None if seconds else 0)  # Until it is stopped.

    bench.scrub._wait = wait
    bench.now += FIRST_S
    bench.scrub.begin_if_due()
    thread = bench.scrub._thread
    assert begun.wait(60) and thread is not None
    bench.scrub.stop()
    assert not thread.is_alive()
    bench.now += 1e9
    bench.scrub.begin_if_due()
    assert bench.scrub._thread is thread


def test_files_that_are_pruned_meanwhile_are_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "state"
    with Journal.open(path, IDENTITY, retain=1, snapshot_every=1, background=False) as journal:

        def commit() -> None:
            number = journal.version + 1
            journal.commit({"id": number}, {"changes": table([number])})
            journal.snapshot({}, {"Rows": table([number])})

        for _ in range(5):
            commit()
        bench = Bench(path)

        def wait(seconds: float) -> bool:
            commit()  # Each piece that is read, the writer is one commit further.
            return False

        bench.scrub._wait = wait
        bench.now += FIRST_S
        assert bench.run()
    assert bench.told == [] and bench.scrub.damage == ()


def test_the_writer_goes_on_and_all_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, told = tmp_path / "state", threading.Event()
    seen: list[observe.Damage] = []
    batches: list[observe.BatchReport] = []

    def alarm(damage: observe.Damage) -> None:
        seen.append(damage)
        told.set()

    observe.subscribe(alarm, observe.Damage)
    observe.subscribe(batches.append)
    caplog.set_level(logging.WARNING, "penstock")
    try:
        with app.open(path, retain=5, snapshot_every=3, background=False) as db:
            for ts in range(5):
                db.run([Tick(ts=ts, by=1)])
            assert db.damage == ()
            flip(path / "log" / "000000000004.seg")
            db._store._scrub._due = 0.0
            db.run([Tick(ts=5, by=1)])
            assert told.wait(60)
            db.run([Tick(ts=6, by=1)])
            assert db.version == 7
            assert db.sql("select n from counter").to_pylist() == [{"n": 7}]
            assert [finding.file for finding in db.damage] == ["log/000000000004.seg"]
    finally:
        observe.unsubscribe(alarm)
        observe.unsubscribe(batches.append)
    (damage,) = seen
    assert (damage.directory, damage.file) == (str(path), "log/000000000004.seg")
    assert str(damage) in caplog.text
    assert damage.to_dict()["problem"] == damage.problem
    assert [type(report) for report in batches] == [observe.BatchReport] * 7


def test_a_database_in_memory_has_none() -> None:
    with app.open() as db:
        assert db.damage == ()
