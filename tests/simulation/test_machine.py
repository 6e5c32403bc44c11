"""The simulated machine keeps to the rules that it simulates: what is durable, who runs, what dies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.errors import StateError
from simulation.choices import Choices
from simulation.disk import SimulatedDisk
from simulation.files import ORDERS, FileSystem
from simulation.machine import Machine, Weather
from simulation.scheduler import Process, Scheduler, SimulatedMutex, Wrong

A, B = Path("/d/a"), Path("/d/b")
D = Path("/d")


def after_losing_power(order: str, prepare: Callable[[FileSystem], None], seeds: int = 60) -> set[tuple[str, ...]]:
    """What may be left in the directory, names and bytes, over many losses."""
    found = set()
    for seed in range(seeds):
        files = FileSystem(Choices(seed), order)
        files.mkdir(D)
        files.fsync_dir(files.root)
        prepare(files)
        files.lose_power()
        names = files.folder(D).names
        found.add(tuple(f"{name}={names[name].data.decode()}" for name in sorted(names)))  # type: ignore[union-attr]
    return found


@pytest.mark.parametrize("order", ORDERS)
def test_what_is_synced_with_its_name_is_kept(order: str) -> None:
    def prepare(files: FileSystem) -> None:
        file = files.create(A)
        files.write(file, 0, b"whole")
        files.fsync(file)
        files.fsync_dir(files.folder(D))

    assert after_losing_power(order, prepare) == {("a=whole",)}


def test_bytes_that_are_not_synced_are_lost_kept_or_torn() -> None:
    def prepare(files: FileSystem) -> None:
        file = files.create(A)
        files.fsync_dir(files.folder(D))
        files.write(file, 0, b"new")

    left = after_losing_power("loose", prepare)
    assert {("a=",), ("a=new",), ("a=n",)} <= left


def test_a_name_that_is_not_synced_is_kept_or_lost_and_a_rename_is_whole() -> None:
    def prepare(files: FileSystem) -> None:
        file = files.create(A)
        files.write(file, 0, b"x")
        files.fsync(file)
        files.fsync_dir(files.folder(D))
        files.rename(A, B)

    assert after_losing_power("loose", prepare) == {("a=x",), ("b=x",)}


def test_names_are_kept_in_any_order_or_as_they_came() -> None:
    def prepare(files: FileSystem) -> None:
        files.create(A)
        files.create(B)

    assert after_losing_power("loose", prepare) == {(), ("a=",), ("b=",), ("a=", "b=")}
    assert after_losing_power("journal", prepare) == {(), ("a=",), ("a=", "b=")}


def test_a_sync_that_failed_may_have_lost_what_can_still_be_read() -> None:
    seen = set()
    for seed in range(60):
        files = FileSystem(Choices(seed), "loose")
        files.mkdir(D)
        file = files.create(A)
        files.fsync_dir(files.root)
        files.fsync_dir(files.folder(D))
        files.write(file, 0, b"x")
        files.fsync_fails(file)
        files.fsync(file)  # says that all is well
        assert file.data == b"x"
        files.lose_power()
        seen.add(files.file(A).data)
    assert seen >= {b"", b"x"}


def machine() -> Machine:
    made = Machine(Choices(1), Weather())
    made.files.mkdir(D)
    return made


def in_tasks(made: Machine, *works: tuple[Process, Callable[[], None]]) -> None:
    for number, (process, work) in enumerate(works):
        made.scheduler.spawn(process, f"task {number}", work)
    made.scheduler.run()


def test_a_lock_is_held_by_one_process_and_dropped_when_it_dies() -> None:
    made = machine()
    one, two = made.process("one"), made.process("two")
    seen: list[str] = []

    def first() -> None:
        disk = SimulatedDisk(made, one)
        disk.lock_file(disk.touch(A))
        again = disk.touch(A)
        with pytest.raises(BlockingIOError):
            disk.lock_file(again)  # of the same process, through another descriptor
        made.scheduler.wait(made.scheduler.spawn(two, "second", second))
        made.kill(one)

    def second() -> None:
        disk = SimulatedDisk(made, two)
        fd = disk.touch(A)
        with pytest.raises(BlockingIOError):
            disk.lock_file(fd)
        seen.append("refused")
        made.scheduler.spawn(two, "third", third)

    def third() -> None:
        disk = SimulatedDisk(made, two)
        while not one.dead:
            made.scheduler.pause()
        disk.lock_file(disk.touch(A))
        seen.append("held")

    in_tasks(made, (one, first))
    assert seen == ["refused", "held"]


def test_a_dead_process_changes_nothing() -> None:
    made = machine()
    process = made.process("one")
    disk = SimulatedDisk(made, process)

    def work() -> None:
        try:
            made.kill(process)
        finally:
            disk.create(A)

    in_tasks(made, (process, work))
    assert not made.files.folder(D).names


def test_a_file_that_is_open_outlives_its_name() -> None:
    made = machine()
    process = made.process("one")
    disk = SimulatedDisk(made, process)
    seen: list[bytes] = []

    def work() -> None:
        disk.write_new(A, [memoryview(b"held")])
        fd = disk.open(A)
        disk.unlink(A)
        seen.append(bytes(memoryview(disk.pread(fd, 10, 0, A))))

    in_tasks(made, (process, work))
    assert seen == [b"held"]


def test_a_fault_becomes_the_error_that_a_real_disk_gives() -> None:
    made = Machine(Choices(1), Weather(fault=1, faults_max=1))
    made.files.mkdir(D)
    process = made.process("one")

    def work() -> None:
        with pytest.raises(StateError, match=r"cannot list /d: .*; "):
            SimulatedDisk(made, process).listdir(D)

    in_tasks(made, (process, work))
    assert made.counts.faults.total() == 1


def test_tasks_that_wait_for_each_other_are_told() -> None:
    scheduler = Scheduler(Choices(3), "random")
    one, two = SimulatedMutex(scheduler), SimulatedMutex(scheduler)
    process = Process("p")

    def take(first: SimulatedMutex, second: SimulatedMutex) -> None:
        with first:
            for _ in range(20):
                scheduler.pause()
            with second:
                pass

    scheduler.spawn(process, "left", lambda: take(one, two))
    scheduler.spawn(process, "right", lambda: take(two, one))
    with pytest.raises(Wrong, match="nobody can run: left waits for a mutex of right; right waits for a mutex of left"):
        scheduler.run()


def test_the_clock_leaps_to_whoever_sleeps() -> None:
    scheduler = Scheduler(Choices(1), "runs 4")
    seen: list[int] = []

    def work() -> None:
        scheduler.sleep(1_000_000)
        seen.append(scheduler.clock)

    scheduler.spawn(Process("p"), "sleeper", work)
    scheduler.run()
    assert seen == [1_000_000]
