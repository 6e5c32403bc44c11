"""Files that are sound, but not this directory's, or not the ones that were acknowledged; and files that are gone."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.check.check import check
from penstock.commit import Disk
from penstock.commit.recover import HELD_FILES
from penstock.commit.scan import read_head
from penstock.replica.directory import Directory

pytestmark = pytest.mark.faults

app = ps.App("count")


@app.table
class Counter:
    id: str = ps.key()
    n: int = 0


@app.event
class Tick:
    ts: int = ps.order()
    by: int


@app.event
class Told:
    n: int


@app.transaction
def tick(e: Tick):
    counter = Counter.get("a")
    counter.n += e.by
    ps.emit(Told(n=counter.n))
    return {"n": counter.n}


def write(path: Path, batches: int, by: int = 1, **options: Any) -> Path:
    """So many batches more; with `by` 1, version v holds n = v."""
    with app.open(path, **{"retain": 100, "snapshot_every": 3, "background": False} | options) as db:
        for ts in range(db.version + 1, db.version + batches + 1):
            db.run([Tick(ts=ts, by=by)])
    return path


def segment(path: Path, seq: int) -> Path:
    return path / "log" / f"{seq:012d}.seg"


# Every way to read a directory; each gives what it says of the newest version, and of all versions.
READERS: dict[str, Callable[[Path], Any]] = {
    "table": lambda path: Directory(path).table("Counter")["n"].to_pylist(),
    "older table": lambda path: Directory(path).table("Counter", 8)["n"].to_pylist(),
    "view": lambda path: Directory(path).view().sql("select n from counter").to_pylist(),
    "changes": lambda path: Directory(path).changes("Counter")["n"].to_pylist(),
    "outcomes": lambda path: Directory(path).outcomes()["n"].to_pylist(),
    "newest": lambda path: Directory(path).newest(),
    "readable": lambda path: Directory(path).readable(8),
    "history": lambda path: Directory(path).history("Counter", {"id": ["a"]})["n"].to_pylist(),
    "open": lambda path: opened(path, lambda db: db.table(Counter)["n"].to_pylist()),
    "db.history": lambda path: opened(path, lambda db: db.history(Counter, "a")["n"].to_pylist()),
    **{f"db.outcomes({v})": lambda path, v=v: opened(path, lambda db: db.outcomes(v)["n"].to_pylist()) for v in (6, 8)},
    "db.emitted": lambda path: opened(path, lambda db: db.emitted(Told, 8)["n"].to_pylist()),
}


def opened(path: Path, use: Callable[[Any], Any]) -> Any:
    with app.open(path, background=False, retain=100) as db:
        return use(db)


def everything(path: Path) -> dict[str, Any]:
    """What each reader says, or the error."""
    said: dict[str, Any] = {}
    for name, read in READERS.items():
        copy = path.with_name("copy")
        shutil.copytree(path, copy)
        try:
            said[name] = read(copy)
        except ps.StateError as error:
            said[name] = str(error)
        shutil.rmtree(copy)
    return said


def assert_right_or_named(path: Path, right: dict[str, Any], *names: str) -> set[str]:
    """Readers that refuse, all of which have to name one of the files."""
    refusing = set()
    for reader, said in everything(path).items():
        if said != right[reader]:
            assert isinstance(said, str), f"{reader} says {said}, not {right[reader]}"
            assert any(name in said for name in names), f"{reader} says {said!r}, which does not name {names}"
            refusing.add(reader)
    return refusing


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return write(tmp_path / "state", 10)


def test_a_segment_of_another_directory_of_the_same_app(state: Path, tmp_path: Path) -> None:
    other, right = write(tmp_path / "other", 10, by=5), everything(state)
    for seq in range(1, 11):
        path = Path(shutil.copytree(state, tmp_path / str(seq)))
        shutil.copy(segment(other, seq), segment(path, seq))
        refusing = assert_right_or_named(path, right, segment(path, seq).name)
        assert {"changes", "outcomes"} <= refusing
        assert seq < 10 or refusing == set(READERS)


def test_a_snapshot_of_another_directory_of_the_same_app(state: Path, tmp_path: Path) -> None:
    other, right = write(tmp_path / "other", 10, by=5), everything(state)
    for name in sorted(os.listdir(state / "snapshots")):
        path = Path(shutil.copytree(state, tmp_path / name))
        shutil.rmtree(path / "snapshots" / name)
        shutil.copytree(other / "snapshots" / name, path / "snapshots" / name)
        assert not assert_right_or_named(path, right, name)  # The log is whole, so that no snapshot is needed.


@contextmanager
def forked(tmp_path: Path, at: int, to: int) -> Iterator[tuple[Path, Path]]:
    """Two lives of one directory from version `at` on."""
    one = write(tmp_path / "one", at)
    two = Path(shutil.copytree(one, tmp_path / "two"))
    yield write(one, to - at), write(two, to - at, by=5)


def test_an_older_copy_of_the_same_number(tmp_path: Path) -> None:
    with forked(tmp_path, 5, 10) as (one, two):
        right = everything(one)
        for seq in range(6, 11):
            path = Path(shutil.copytree(one, tmp_path / str(seq)))
            shutil.copy(segment(two, seq), segment(path, seq))
            near = [segment(path, seq).name, segment(path, seq + 1).name]
            refusing = assert_right_or_named(path, right, *near)
            assert {"changes", "outcomes"} <= refusing
            assert seq < 10 or refusing == set(READERS)


def test_an_older_copy_that_follows_what_is_before_it_is_not_believed_on_its_own(tmp_path: Path) -> None:
    with forked(tmp_path, 7, 10) as (one, two):
        right = everything(one)
        shutil.copy(segment(two, 8), segment(one, 8))  # It has no snapshot, and only commit 9 denies it.
        refusing = assert_right_or_named(one, right, segment(one, 8).name, segment(one, 9).name)
        assert {"db.outcomes(8)", "db.emitted", "changes", "outcomes"} <= refusing
        assert not {"table", "view", "newest", "open", "db.outcomes(6)"} & refusing
        damaged = {finding.file for finding in check(Disk(), one).damage}
        assert {"log/000000000008.seg", "log/000000000009.seg"} <= damaged


def test_a_segment_that_its_snapshot_and_the_next_one_deny_costs_no_more_than_a_damaged_one(tmp_path: Path) -> None:
    with forked(tmp_path, 5, 10) as (one, two):
        right = everything(one)
        for seq in (6, 9):  # These have a snapshot.
            path = Path(shutil.copytree(one, tmp_path / str(seq)))
            shutil.copy(segment(two, seq), segment(path, seq))
            refusing = assert_right_or_named(path, right, segment(path, seq).name)
            assert not {"table", "view", "newest", "open"} & refusing


def test_a_snapshot_that_stands_on_another_copy(tmp_path: Path) -> None:
    with forked(tmp_path, 5, 10) as (one, two):
        right = everything(one)
        name = f"{9:012d}"
        shutil.rmtree(one / "snapshots" / name)
        shutil.copytree(two / "snapshots" / name, one / "snapshots" / name)
        assert not assert_right_or_named(one, right, name)


def test_an_identity_of_another_directory(state: Path, tmp_path: Path) -> None:
    other, right = write(tmp_path / "other", 3), everything(state)
    shutil.copy(other / "penstock.json", state / "penstock.json")
    assert assert_right_or_named(state, right, ".seg") == set(READERS)


@pytest.mark.parametrize("seq", range(4, 11))  # Below the oldest snapshot it might as well have been pruned.
def test_a_segment_that_is_gone_is_missed_by_every_reader_that_needs_it(tmp_path: Path, seq: int) -> None:
    path = write(tmp_path / "state", 10)
    right = everything(path)
    segment(path, seq).unlink()
    refusing = assert_right_or_named(path, right, segment(path, seq).name)
    if seq == 10:
        assert refusing == set(READERS)
    assert {"changes", "outcomes"} <= refusing
    assert seq != 8 or {"db.outcomes(8)", "db.emitted"} <= refusing


def test_a_pruned_directory_has_gaps_only_below_its_oldest_snapshot(tmp_path: Path) -> None:
    path = write(tmp_path / "state", 20, retain=4)
    assert not segment(path, 1).exists()
    right = everything(path)
    gone = int(min(os.listdir(path / "snapshots"))) + 1
    segment(path, gone).unlink()
    refusing = assert_right_or_named(path, right, segment(path, gone).name)
    assert {"changes", "outcomes", "history"} <= refusing


@pytest.mark.parametrize("name", ["manifest.json", "Counter.arrow"])
@pytest.mark.parametrize("damage", ["lost", "cut", "flipped"])
def test_a_damaged_snapshot_that_older_versions_stand_on_is_not_taken_for_a_pruned_one(
    tmp_path: Path, name: str, damage: str
) -> None:
    path = write(tmp_path / "state", 12, retain=4)
    assert sorted(os.listdir(path / "snapshots")) == [f"{6:012d}", f"{9:012d}", f"{12:012d}"]
    file = path / "snapshots" / f"{6:012d}" / name
    if damage == "lost":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(file.read_bytes()[:-9])
    else:
        flipped = bytearray(file.read_bytes())
        flipped[len(flipped) // 2] ^= 4
        file.write_bytes(flipped)
    with pytest.raises(ps.StateError, match=f"{6:012d}/{name}"):
        Directory(path).table("Counter", 8)
    assert Directory(path).table("Counter", 9)["n"].to_pylist() == [9]


def test_trailing_bytes_in_head_are_mended(state: Path) -> None:
    head = state / "head"
    sound = head.read_bytes()
    for garbage in (sound + b"\n\n", sound + b"x" * 100, b"", sound[:5], b"\xff" * 40):
        head.write_bytes(garbage)
        with app.open(state, background=False):
            pass
        assert head.read_bytes() == sound
        assert read_head(Disk(), state).seq == 10


def test_a_history_is_labelled_with_the_version_that_it_begins_with(tmp_path: Path) -> None:
    path = tmp_path / "state"
    with app.open(path, retain=4, snapshot_every=3, background=False) as db:
        for ts in range(1, 21):
            db.run([Tick(ts=ts, by=1)])
        oldest = min((path / "snapshots").iterdir())
        (oldest / "manifest.json").write_bytes(b"damaged")
        rows = db.history(Counter, "a").to_pylist()
        assert rows and all(row["n"] == row["version"] for row in rows)
    rows = Directory(path).history("Counter", {"id": ["a"]}).to_pylist()
    assert rows and all(row["n"] == row["version"] for row in rows)


def test_more_segments_than_a_reader_holds_open(tmp_path: Path) -> None:
    count = HELD_FILES + 10
    path = write(tmp_path / "state", count, retain=2 * count, snapshot_every=2 * count)
    assert Directory(path).outcomes()["n"].to_pylist() == list(range(1, count + 1))
    assert Directory(path).history("Counter", {"id": ["a"]})["n"].to_pylist() == list(range(1, count + 1))
    segment(path, HELD_FILES + 1).unlink()
    with pytest.raises(ps.StateError, match=segment(path, HELD_FILES + 1).name):
        Directory(path).outcomes()


class Failing(Disk):
    """Fails at one kind of step on one file, once it is told to."""

    def __init__(self, what: str, name: str, error: int = errno.EIO) -> None:
        self.what, self.name, self.error, self.armed = what, name, error, False

    @contextmanager
    def step(self, what: str, path: Path) -> Iterator[None]:
        with super().step(what, path):
            if self.armed and (what, path.name) == (self.what, self.name):
                raise OSError(self.error, os.strerror(self.error))
            yield


@pytest.mark.parametrize(
    ("what", "name", "committed"),
    [
        ("write", "000000000004.{tag}.open", False),
        ("link", "000000000004.seg", None),
        ("sync", "log", None),
        ("write", "head", True),
        ("write", "manifest.json", True),
    ],
)
def test_an_error_says_whether_its_batch_is_committed(
    tmp_path: Path, what: str, name: str, committed: bool | None
) -> None:
    disk = Failing(what, name)
    db = app.open(tmp_path, snapshot_every=4, background=False, disk=disk)
    disk.name = name.format(tag=db._store._journal._lock.tag)
    for ts in range(1, 4):
        db.run([Tick(ts=ts, by=1)])
    disk.armed = True
    with pytest.raises(ps.StateError) as raised:
        db.run([Tick(ts=4, by=1)])
    disk.armed = False
    db.close()
    assert raised.value.committed is committed
    assert raised.value.version == (None if committed is False else 4)
    with app.open(tmp_path, background=False) as db:
        if committed is not None:
            assert db.version == 3 + committed


def test_a_writer_that_cannot_read_its_own_name_is_not_called_fenced(tmp_path: Path) -> None:
    disk = Failing("open", "writer.json")
    with app.open(tmp_path, background=False, disk=disk) as db:
        disk.armed = True
        with pytest.raises(ps.StateError, match=r"cannot tell whether .*writer\.json.*device is failing") as raised:
            db.run([Tick(ts=1, by=1)])
        assert "fenced" not in str(raised.value)


def test_a_damaged_segment_is_named_where_its_version_is_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "state", 8)
    data = bytearray(segment(path, 4).read_bytes())
    data[40] ^= 1
    segment(path, 4).write_bytes(data)
    with app.open(path, background=False) as db, pytest.raises(ps.StateError, match=r"000000000004\.seg is damaged"):
        db.outcomes(4)


def test_a_directory_where_a_file_should_be(state: Path) -> None:
    segment(state, 10).unlink()
    segment(state, 10).mkdir()
    for name, said in everything(state).items():
        assert "000000000010.seg" in str(said), (name, said)


def test_check_blames_an_identity_of_another_directory_and_nothing_else(state: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other", 3)
    shutil.copy(other / "penstock.json", state / "penstock.json")
    (found,) = check(Disk(), state).damage
    assert found.file == "penstock.json" and "but every segment is of directory" in found.problem


def test_a_directory_that_is_removed_under_its_writer(tmp_path: Path) -> None:
    with app.open(tmp_path / "state", background=False) as db:
        db.run([Tick(ts=1, by=1)])
        shutil.rmtree(tmp_path / "state")
        with pytest.raises(
            ps.StateError, match=r"was moved, removed or written by someone else; put it back"
        ) as raised:
            db.run([Tick(ts=2, by=1)])
        assert raised.value.committed is False


def test_a_missing_log_directory(state: Path) -> None:
    shutil.rmtree(state / "log")
    for name, said in everything(state).items():
        assert "log is missing; restore it from a backup" in str(said), (name, said)
