"""What must hold after an operation of the disk has failed, wherever in the job (bank_job.py) that was.

- The call came through, or raised a StateError that names a file of the directory and says what to do.
- `error.committed` tells the truth: True, the batch is there; False, it is not; None, either, but whole.
- Once the disk works again, the database goes on rightly, or refuses until it is opened again; opened again, it has
  every batch that was acknowledged, and each id happens once.
- No descriptor and no thread is left behind.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from bank_job import BATCHES, REOPEN_AT, WAYS, Account, Call, calls, check, job, open_db, prefixes, run
from faulty import CODES, MAY_BE_DONE, OPENING, Failing

from penstock.commit import Disk
from penstock.errors import StateError
from penstock.replica.directory import Directory
from penstock.testing import assert_same_outcomes, assert_same_tables

FAILED = object()


@dataclass(frozen=True, slots=True)
class Fault:
    """The at-th operation of a way to run the job fails."""

    way: str
    background: bool
    code: str
    how: str  # "once", "persists", or "done": once, although it was done
    at: int

    def set(self, disk: Failing) -> None:
        disk.fail(self.at, CODES[self.code], persists=self.how == "persists", done=self.how == "done")


def writing_faults() -> Iterator[Fault]:
    """One at every operation of the job, of every kind that there can be one."""
    for way in WAYS:
        for background in (False, True):
            for at, what in enumerate(_operations(way, background), 1):
                for code, how in kinds(what):
                    yield Fault(way, background, code, how, at)


def kinds(what: str) -> Iterator[tuple[str, str]]:
    """The faults of an operation."""
    for code in CODES:
        if code != "EMFILE" or what in OPENING:
            yield code, "once"
            yield code, "persists"
    if what in MAY_BE_DONE:
        yield "EIO", "done"


@cache
def _operations(way: str, background: bool) -> list[str]:
    with scratch() as folder:
        disk = Failing()
        job(folder / "state", way, lambda k: None, disk, background)
        return disk.seen


def write(folder: Path, fault: Fault) -> None:
    path, disk = folder / "state", Failing()
    fault.set(disk)
    with nothing_left():
        history = History(path, fault.way, fault.background, disk, disk)
        history.run()
        assert disk.met or fault.background, "no operation failed"
        check(path, fault.way, history.acknowledged)
    shutil.rmtree(path)


class Heals(Protocol):
    def heal(self) -> None: ...


class History:
    """The job with something that fails once, or until it heals."""

    raised: tuple[type[BaseException], ...] = (StateError,)

    def __init__(self, path: Path, way: str, background: bool, fault: Heals, disk: Disk | None = None) -> None:
        self.path, self.way, self.background, self.fault, self.disk = path, way, background, fault, disk
        self.acknowledged = 0

    def run(self) -> None:
        for stop in (REOPEN_AT, BATCHES):
            opened = Call("open", lambda: open_db(self.path, self.way, self.disk, self.background))
            db = self.tried(opened)
            if db is FAILED:
                db = opened.make()  # The disk works again, and so does this.
            goes_on = all(self.works(db, call) for call in calls(db, self.way, stop))
            self.tried(Call("close", db.close))
            if not goes_on:
                return

    def works(self, db: Any, call: Call) -> bool:
        """Makes the call, and where that fails, again, with a disk that works; whether the database takes it."""
        if self.tried(call) is FAILED:
            try:
                result = call.make()
            except StateError as error:
                if call.of is not None:
                    raise AssertionError(f"{call.name} fails on a disk that works") from error
                refused(error)
                return False
            self.seen(call, result)
            assert_same_tables(db.table(Account), prefixes(self.way).tables[db.version], ["id"])
        return True

    def tried(self, call: Call) -> Any:
        try:
            result = call.make()
        except self.raised as error:
            self.fault.heal()
            self.explained(error)
            self.truthful(error, call)
            return FAILED
        self.seen(call, result)
        return result

    def seen(self, call: Call, result: Any) -> None:
        if call.version is not None:
            self.acknowledged = call.version
        version = call.version or call.of
        if version is not None:
            assert_same_outcomes(result, prefixes(self.way).outcomes[version - 1])

    def explained(self, error: BaseException) -> None:
        named(error, self.path)

    def truthful(self, error: BaseException, call: Call) -> None:
        """What an error says of its batch is what the directory says."""
        if call.name == "close":
            return
        try:
            there = Directory(self.path).version
        except StateError:
            assert call.name == "open" and not self.acknowledged
            return
        committed, said = getattr(error, "committed", False), getattr(error, "version", None)
        done = self.acknowledged
        if call.name == "load" and not done:
            rows = Directory(self.path).table("Account").num_rows
            right = committed is None or bool(rows) == committed
            assert right and said is None, f"{rows} rows are there, it says {committed}, {said}"
            return
        right = {
            True: said == call.of if call.of else said is not None and done <= said <= there,
            False: there == done,
            None: said is not None and done <= there <= said,
        }
        if call.name == "load":  # It makes no version.
            right[True] = right[None] = said is None and there == done
        assert right[committed], f"{done} were acknowledged, {there} are there, it says {committed}, {said}"


def named(error: BaseException, path: Path) -> None:
    """It says which file, and what to do."""
    text = str(error)
    assert str(path.parent) in text and "; " in text, f"says too little: {text}"


def refused(error: BaseException) -> None:
    assert "open it again" in str(error) or "reopen it" in str(error), f"does not say what to do: {error}"


# -- reading ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reading:
    """A finished directory, a database that has it open, and what is asked of both."""

    path: Path
    disk: Failing
    db: Any
    asks: dict[str, Callable[[], Any]]


@contextmanager
def reading(folder: Path, way: str) -> Iterator[Reading]:
    path, disk = folder / "state", Failing()
    job(path, way, lambda k: None)
    with open_db(path, way, disk) as db:
        last = db.version
        key = {"id": ["a1", "a2"]}
        asks: dict[str, Callable[[], Any]] = {
            "view": lambda: db.view(last - 1).tables["Account"],
            "table": lambda: db.table(Account, last - 2),
            "history": lambda: db.history(Account, "a1"),
            "outcomes": lambda: db.outcomes(last - 1),
            "stored": lambda: db.stored(last - 2),
            "run again": lambda: run(db, "changes", last - 1),
            "Directory.table": lambda: Directory(path, disk).table("Account"),
            "Directory.table of a version": lambda: Directory(path, disk).table("Account", last - 2),
            "Directory.view": lambda: Directory(path, disk).view().tables["Account"],
            "Directory.history": lambda: Directory(path, disk).history("Account", key),
            "Directory.changes": lambda: Directory(path, disk).changes("Account"),
            "Directory.outcomes": lambda: Directory(path, disk).outcomes(),
            "Directory.version": lambda: Directory(path, disk).version,
            "Directory.oldest": lambda: Directory(path, disk).oldest,
        }
        yield Reading(path, disk, db, asks)


def reading_faults(reading: Reading) -> Iterator[tuple[str, int, str, str]]:
    for name, ask in reading.asks.items():
        reading.disk.fail(0)
        _answer(ask)
        for at, what in enumerate(list(reading.disk.seen), 1):
            for code, how in kinds(what):
                yield name, at, code, how


def read(reading: Reading, name: str, at: int, code: str, how: str) -> None:
    """The right answer or a StateError that names the file; and, once the disk works again, the right answer."""
    ask, disk = reading.asks[name], reading.disk
    disk.heal()
    right = _answer(ask)
    with nothing_left():
        disk.fail(at, CODES[code], persists=how == "persists", done=how == "done")
        try:
            found = ask()
        except StateError as error:
            named(error, reading.path)
            told = error.committed and error.version is not None
            assert told or name not in ("stored", "run again"), "it is committed"
        else:
            assert _same(found, right), f"{name} gives {found}"
        assert disk.met, "no operation failed"
        disk.heal()
        assert _same(_answer(ask), right)


def _answer(ask: Callable[[], Any]) -> Any:
    """What is not kept, and cannot be read without the app, is refused as ever."""
    try:
        return ask()
    except StateError as error:
        return str(error)


def _same(a: Any, b: Any) -> bool:
    if not isinstance(a, pa.Table) or not isinstance(b, pa.Table):
        return bool(a == b)
    return sorted(map(str, a.to_pylist())) == sorted(map(str, b.to_pylist()))


# -- all of it --------------------------------------------------------------------------------------


@contextmanager
def nothing_left() -> Iterator[None]:
    """No descriptor and no thread is left behind."""
    threads, files = _threads(), _descriptors()
    yield
    assert _threads() == threads, "threads are left running"
    left = {name: file for name, file in _descriptors().items() if files.get(name) != file}
    assert not left, f"descriptors are left open: {left}"


def _threads() -> list[str]:
    """On a busy machine batches may seem worth more kernels, which are compiled aside: that ends by itself."""
    for thread in threading.enumerate():
        if thread.name == "penstock-compile":
            thread.join()
    return sorted(thread.name for thread in threading.enumerate())


def _descriptors() -> dict[str, str]:
    out = {}
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # that of the listing itself
            out[name] = os.readlink(f"/proc/self/fd/{name}")
    return out


@contextmanager
def scratch() -> Iterator[Path]:
    """In memory where there is such a place: syncs prove nothing here."""
    import tempfile

    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as name:
        yield Path(name)
