"""Any file of a state directory damaged, lost, moved or added: a check names just that file, and what it costs.

What can be read is held against reading it: each version is there, or an error, as the check says.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import tarfile
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.check.check import check
from penstock.check.findings import Report
from penstock.commit import Disk, Journal
from penstock.commit.recover import recover
from penstock.errors import StateError

pytestmark = pytest.mark.faults

IDENTITY = {"app": "bank", "tables": {"Rows": {"columns": {"row": "int"}}}}
SEED = 20260611
ARCHIVE = Path(__file__).parents[1] / "data" / "state-0.1.0.tar.gz"
# What is never lost for good: whoever writes next writes it anew.
HINTS = {"head", "writer.json"}


def table(rows: list[int]) -> pa.Table:
    return pa.table({"row": pa.array(rows, pa.int64())})


def fill(path: Path, batches: int, *, retain: int = 5, snapshot_every: int = 3, first: int = 1) -> None:
    with Journal.open(path, IDENTITY, retain=retain, snapshot_every=snapshot_every, background=False) as journal:
        for number in range(first, first + batches):
            if number % 4 == 0:
                journal.commit({"kind": "load"}, {"changes": table([-number])})
            journal.commit({"id": number}, {"changes": table([number]), "outcomes": table([number, 0])})
            if journal.due:
                journal.snapshot({}, {"Rows": table(list(range(1, number + 1))), "held:X": table([number])})


# Directories of every age: name -> (batches, retain).
AGES = {"fresh": (0, 5), "young": (2, 5), "one snapshot": (4, 5), "unpruned": (9, 100), "pruned": (16, 5)}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("made")
    for name, (batches, retain) in AGES.items():
        fill(root / name, batches, retain=retain)
    return {name: root / name for name in AGES}


@pytest.fixture(params=list(AGES))
def age(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def copy(made: dict[str, Path], age: str, tmp_path: Path) -> Iterator[Callable[[], Path]]:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path) as folder:
        count = iter(range(1 << 30))
        yield lambda: Path(shutil.copytree(made[age], Path(folder) / str(next(count))))


def files(path: Path) -> list[str]:
    return sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())


def readable(path: Path, upto: int = 20) -> list[int]:
    """The versions that can be read, by reading them."""
    found = []
    for version in range(upto):
        try:
            list(recover(Disk(), path, version).segments)
            found.append(version)
        except StateError:
            continue
    return found


def checked(path: Path) -> Report:
    """A check that says rightly what can be read, and changes nothing."""
    before = {name: (path / name).read_bytes() for name in files(path)}
    report = check(Disk(), path)
    assert {name: (path / name).read_bytes() for name in files(path)} == before
    assert [v for first, last in report.versions for v in range(first, last + 1)] == readable(path)
    return report


def wrong(report: Report) -> list[str]:
    for finding in report.findings:
        assert bool(finding.problem) == bool(finding.remedy)
        assert finding.ok or finding.problem
    return [finding.file for finding in report.findings if finding.problem]


def test_a_sound_directory_is_sound(copy: Callable[[], Path]) -> None:
    path = copy()
    report = checked(path)
    assert wrong(report) == []
    assert [finding.file for finding in report.findings] == files(path)
    assert report.size == sum((path / name).stat().st_size for name in files(path))


def test_any_byte_of_any_file_changed(copy: Callable[[], Path]) -> None:
    chance = random.Random(SEED)
    sound = copy()
    for name in files(sound):
        data = (sound / name).read_bytes()
        for place in sorted({*chance.sample(range(len(data)), min(len(data), 6)), 0, len(data) - 1} if data else ()):
            path = copy()
            changed = bytearray(data)
            changed[place] ^= 1 << chance.randrange(8)
            (path / name).write_bytes(changed)
            report = checked(path)
            assert wrong(report) == [name], (name, place)
            assert [finding.file for finding in report.damage] == ([] if name in HINTS else [name])
            shutil.rmtree(path)


def test_any_file_cut_short_or_too_long(copy: Callable[[], Path]) -> None:
    sound = copy()
    for name in files(sound):
        data = (sound / name).read_bytes()
        for bad in {data[:0], data[:1], data[: len(data) // 2], data[:-1], data + b"\0"} - {data}:
            if name == "writer.lock" or (not name.endswith((".seg", ".arrow")) and bad.split() == data.split()):
                continue  # It holds nothing; or is the same text without its newline.
            path = copy()
            (path / name).write_bytes(bad)
            assert wrong(checked(path)) == [name], (name, len(bad))
            shutil.rmtree(path)


def test_any_file_deleted(copy: Callable[[], Path], age: str) -> None:
    sound = copy()
    segments = [name for name in files(sound) if name.endswith(".seg")]
    for name in files(sound):
        if name.startswith("writer."):
            continue  # Each writer makes them anew.
        path = copy()
        (path / name).unlink()
        report = checked(path)
        if age == "unpruned" and name == segments[0]:
            assert wrong(report) == []  # As if it had been pruned.
        else:
            assert wrong(report) == [name]
        shutil.rmtree(path)


def test_any_two_files_of_a_kind_swapped(copy: Callable[[], Path], age: str) -> None:
    sound = copy()
    for suffix in (".seg", ".json", ".arrow"):
        alike = [name for name in files(sound) if name.endswith(suffix)]
        for one, other in itertools.pairwise(alike):
            path = copy()
            (path / one).rename(path / "kept")
            (path / other).rename(path / one)
            (path / "kept").rename(path / other)
            assert {one, other} - HINTS <= set(wrong(checked(path))) <= {one, other}
            shutil.rmtree(path)


def test_a_folder_that_is_gone(copy: Callable[[], Path]) -> None:
    for name in ("log", "snapshots"):
        path = copy()
        shutil.rmtree(path / name)
        report = check(Disk(), path)
        assert name in wrong(report)
        assert report.versions == ()
        assert not next(finding for finding in report.findings if finding.file == name).ok


def test_each_snapshot_gone(copy: Callable[[], Path], age: str) -> None:
    """Which there were is not written anywhere: but nothing else may be called lost for it."""
    for folder in sorted((copy() / "snapshots").iterdir()):
        path = copy()
        shutil.rmtree(path / "snapshots" / folder.name)
        report = checked(path)
        assert set(wrong(report)) <= {"snapshots"}
    if age in ("one snapshot", "pruned"):
        path = copy()
        shutil.rmtree(path / "snapshots")
        (path / "snapshots").mkdir()
        report = checked(path)
        assert wrong(report) == (["log/000000000001.seg"] if age == "pruned" else [])


def test_what_was_left_and_what_is_not_ours(copy: Callable[[], Path]) -> None:
    path = copy()
    left = ["log/000000000099.0123abcd.open", "penstock.json.tmp", "writer.json.tmp"]
    foreign = ["log/notes.txt", "log/1.seg", "notes.txt", "snapshots/42.txt"]
    for name in (*left, *foreign):
        (path / name).write_bytes(b"x")
    (path / "snapshots" / "000000000099.0123abcd.open").mkdir()
    left.append("snapshots/000000000099.0123abcd.open")
    report = checked(path)
    assert wrong(report) == sorted((*left, *foreign))
    assert report.damage == ()
    for finding in report.notes:
        assert finding.problem == ("was left by a writer that died" if finding.file in left else "is not Penstock's")


def test_a_file_that_is_no_commit_is_told_from_one_that_was(copy: Callable[[], Path]) -> None:
    path = copy()
    (path / "log" / "000000000099.seg").write_bytes(b"id,balance\n")
    (found,) = [finding for finding in checked(path).findings if finding.problem]
    assert (found.file, found.ok) == ("log/000000000099.seg", False)
    assert found.problem == "is damaged: it is cut short"
    assert found.remedy == "move it away: no commit of this directory has come so far"


def test_a_commit_of_another_copy(copy: Callable[[], Path], made: dict[str, Path], age: str) -> None:
    if age != "pruned":
        return
    path, other = copy(), copy()
    fill(path, 1, first=41, snapshot_every=100)
    fill(other, 1, first=51, snapshot_every=100)
    newest = max(name for name in files(path) if name.endswith(".seg"))
    shutil.copy(other / newest, path / newest)
    assert wrong(checked(path)) == [newest]
    shutil.copy(made["young"] / "log" / "000000000001.seg", path / newest)
    assert wrong(checked(path)) == [newest]


@pytest.mark.parametrize("age", ["pruned"], indirect=True)
def test_what_is_lost_is_told(copy: Callable[[], Path]) -> None:
    path = copy()
    numbers = sorted(int(folder.name) for folder in (path / "snapshots").iterdir())
    (first, last) = check(Disk(), path).versions[0]
    assert (numbers, first, last) == ([11, 15, 18], 9, 16)

    def told(name: str) -> str:
        broken = copy()
        data = bytearray((broken / name).read_bytes())
        data[len(data) - 3] ^= 1
        (broken / name).write_bytes(data)
        (finding,) = checked(broken).damage
        return finding.remedy

    assert told("log/000000000013.seg") == (
        "restore it from a backup: version 11 cannot be read without it; versions 12 to 16 can"
    )
    assert told("snapshots/000000000011/Rows.arrow") == (
        "restore it from a backup: versions 9 to 11 cannot be read without it"
    )
    assert told("snapshots/000000000018/Rows.arrow") == (
        "nothing is lost: snapshot 15 and the log behind it hold the same; restore it from a backup, or delete "
        "snapshots/000000000018"
    )
    broken = copy()
    (broken / "log" / "000000000020.seg").write_bytes(b"")
    (finding,) = checked(broken).damage
    assert finding.remedy == (
        "restore it from a backup: until then nothing can be read; or give up what it held: move it, head and the "
        "snapshots that stand on it away, which leaves versions 9 to 15, and a stream needs a checkpoint of that time"
    )
    (broken / "log" / "000000000020.seg").unlink()
    (broken / "head").unlink()
    assert check(Disk(), broken).versions == ((9, 15),)
    assert readable(broken) == list(range(9, 16))


@pytest.mark.parametrize("age", ["one snapshot", "unpruned", "pruned"], indirect=True)
def test_several_files_at_once(copy: Callable[[], Path]) -> None:
    """Whatever is broken together: what can be read is told rightly, and each file is named or was passed over."""
    chance = random.Random(SEED)
    for trial in range(60):
        path = copy()
        chosen = chance.sample([name for name in files(path) if name.endswith((".seg", ".arrow", "manifest.json"))], 3)
        for name in chosen:
            data = bytearray((path / name).read_bytes())
            kind = chance.randrange(3)
            data[chance.randrange(len(data))] ^= 1
            (path / name).write_bytes(data if kind else data[: len(data) // 2])
            if kind == 2:
                (path / name).unlink()
        try:
            report = checked(path)
        except AssertionError as error:
            error.add_note(f"trial {trial}: {chosen}")
            raise
        assert set(wrong(report)) <= {*chosen, *(f"log/{n:012d}.seg" for n in range(1, 30)), "snapshots"}
        shutil.rmtree(path)


@pytest.mark.parametrize("way", ["changes", "input"])
def test_a_directory_of_an_older_penstock(way: str, tmp_path: Path) -> None:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    report = check(Disk(), tmp_path / way)
    assert wrong(report) == []
    assert len(report.versions) == 1
    name = next(f.file for f in reversed(report.findings) if f.file.endswith(".seg"))
    (tmp_path / way / name).write_bytes((tmp_path / way / name).read_bytes()[:-1] + b"x")
    assert wrong(check(Disk(), tmp_path / way)) == [name]


def test_after_a_crash_at_any_step(tmp_path: Path) -> None:
    """What a kill leaves is sound: killed before each operation of the disk in turn."""
    whole = Stopping(-1)
    life(tmp_path / "whole", whole)
    for at in range(1, whole.count + 1):
        path = tmp_path / str(at)
        with pytest.raises(Stopped):
            life(path, Stopping(at))
        if (path / "penstock.json").exists():
            report = checked(path)
            assert report.damage == (), f"killed before operation {at}"
        shutil.rmtree(path, ignore_errors=True)


class Stopped(BaseException):
    pass


class Stopping(Disk):
    """Fails for good from the k-th operation on, as if the process had been killed."""

    def __init__(self, at: int) -> None:
        self.at, self.count = at, 0

    def step(self, what: str, path: Path):  # type: ignore[no-untyped-def]
        self.count += what not in ("open", "read", "list", "look at")
        if 0 < self.at <= self.count:
            raise Stopped
        return super().step(what, path)


def life(path: Path, disk: Disk) -> None:
    journal = Journal.open(path, IDENTITY, retain=2, snapshot_every=2, background=False, disk=disk)
    for number in range(1, 9):
        journal.commit({"id": number}, {"changes": table([number])})
        if journal.due:
            journal.snapshot({}, {"Rows": table(list(range(1, number + 1)))})
    journal.close()


def test_beside_a_writer_that_prunes_with_every_commit(tmp_path: Path) -> None:
    path, done = tmp_path / "state", threading.Event()
    failed: list[BaseException] = []
    journal = Journal.open(path, IDENTITY, retain=1, snapshot_every=1)

    def write() -> None:
        number = 0
        try:
            while not done.is_set():
                journal.commit({"id": (number := number + 1)}, {"changes": table([number])})
                if journal.due:
                    journal.snapshot({}, {"Rows": table([number])})
        except BaseException as error:
            failed.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(60):
            report = check(Disk(), path)
            assert report.damage == (), [str(finding) for finding in report.damage]
    finally:
        done.set()
        writer.join()
        journal.close()
    assert not failed
    assert wrong(checked_newest(path)) == []


def checked_newest(path: Path) -> Report:
    report = check(Disk(), path)
    assert len(report.versions) == 1
    return report
