"""Any one file of a state directory damaged or deleted: the right answer, or an error that names the file."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.commit import Journal
from penstock.errors import StateError

pytestmark = pytest.mark.faults

IDENTITY = {"app": "bank", "tables": {"Rows": {"columns": {"row": "int"}}}}
BATCHES = 12
SEED = 20240611


def open_journal(path: Path) -> Journal:
    return Journal.open(path, IDENTITY, retain=5, snapshot_every=3, background=False)


def table(rows: list[int]) -> pa.Table:
    return pa.table({"row": pa.array(rows, pa.int64())})


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finish(tmp_path_factory.mktemp("finished") / "state")


def finish(path: Path) -> Path:
    with open_journal(path) as journal:
        for number in range(1, BATCHES + 2):
            journal.commit({"id": number}, {"changes": table([number])})
            if journal.due:
                journal.snapshot({}, {"Rows": table(list(range(1, number + 1)))})
    return path


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Iterator[Callable[[], Path]]:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path) as folder:
        count = iter(range(1 << 30))
        yield lambda: Path(shutil.copytree(finished, Path(folder) / str(next(count))))


def files(path: Path) -> list[Path]:
    return sorted(file.relative_to(path) for file in path.rglob("*") if file.is_file())


@contextmanager
def named(*words: str) -> Iterator[None]:
    """An error is fine here, if it says one of the words: a wrong answer is not."""
    try:
        yield
    except StateError as error:
        if not any(word in str(error) for word in words):
            raise


def state(journal: Journal, upto: int | None) -> list[int]:
    recovery = journal.recover(upto)
    rows = recovery.snapshot.tables["Rows"]["row"].to_pylist() if recovery.snapshot else []
    for segment in recovery.segments:
        rows += segment.parts["changes"]["row"].to_pylist()
    return list(rows)


def outcome(journal: Journal, id: int) -> list[int]:
    segment = journal.outcomes(id)
    assert segment is not None
    return list(segment.parts["changes"]["row"].to_pylist())


def check(path: Path, damaged: Path) -> None:
    # A segment's name says which file it is, even without its folder.
    name = damaged.name if damaged.suffix == ".seg" else str(damaged)
    newest = BATCHES + 1
    for opened in (Journal.read_only, open_journal):
        with named(name), opened(path) as journal:
            with named(name):
                assert state(journal, None) == list(range(1, newest + 1))
            for upto in range(newest - 5, newest + 1):
                with named(name):
                    assert state(journal, upto) == list(range(1, upto + 1))
            for id in range(newest - 4, newest + 1):
                with named(name, "not retained"):
                    assert outcome(journal, id) == [id]


def damages(finished: Path, *, every_byte: bool = False) -> Iterator[tuple[Path, bytes | None, str]]:
    """A file, what is left of it, if anything, and what was done to it."""
    chance = random.Random(SEED)
    for name in files(finished):
        data = (finished / name).read_bytes()
        yield name, None, "deleted"
        for length in sorted({0, 1, len(data) // 3, len(data) // 2, len(data) - 1} - {len(data)}):
            yield name, data[: max(length, 0)], f"cut to {length} bytes"
        yield name, data + b"\0", "a byte too many"
        bits = chance.sample(range(len(data) * 8), min(len(data) * 8, 12))
        for bit in [byte * 8 + chance.randrange(8) for byte in range(len(data))] if every_byte else bits:
            flipped = bytearray(data)
            flipped[bit // 8] ^= 1 << bit % 8
            yield name, bytes(flipped), f"bit {bit} flipped"


def damage(finished: Path, path: Path, name: Path, data: bytes | None, what: str) -> None:
    """One file of a copy, damaged: the right answers, or errors that name it."""
    shutil.copytree(finished, path)
    if data is None:
        (path / name).unlink()
    else:
        (path / name).write_bytes(data)
    try:
        check(path, name)
    except BaseException as error:
        error.add_note(f"{name}: {what}, seed {SEED}")
        raise


def test_the_sound_directory_is_right(copy: Callable[[], Path]) -> None:
    path = copy()
    assert len(files(path)) > 15
    with open_journal(path) as journal:
        assert state(journal, None) == list(range(1, BATCHES + 2))
        assert outcome(journal, BATCHES) == [BATCHES]


def test_any_file_damaged(finished: Path, folder: Path) -> None:
    for number, (name, data, what) in enumerate(damages(finished)):
        path = folder / str(number)
        damage(finished, path, name, data, what)
        shutil.rmtree(path)


def test_any_snapshot_deleted(finished: Path, copy: Callable[[], Path]) -> None:
    for snapshot in sorted((finished / "snapshots").iterdir())[1:]:
        path = copy()
        shutil.rmtree(path / "snapshots" / snapshot.name)
        check(path, Path("snapshots") / snapshot.name)


def test_segments_that_change_places(copy: Callable[[], Path]) -> None:
    path = copy()
    last, other = (path / "log" / f"{number:012d}.seg" for number in (BATCHES + 1, BATCHES))
    last.write_bytes(other.read_bytes())
    check(path, last.relative_to(path))
