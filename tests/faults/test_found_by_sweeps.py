"""What the sweeps have found, one by one: a share of them by chance may miss what was wrong once."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from bank_job import ROWS, Account, bank, batch, check, job, open_db, prefixes, run, run_ahead
from failing_disk import nothing_left, refused
from failing_memory import call_in
from faulty import Failing

from penstock.check.check import check as check_directory
from penstock.check.scrub import Scrub
from penstock.commit import Disk
from penstock.commit.lock import WriterLock
from penstock.database import Database
from penstock.errors import StateError
from penstock.gate import Gate
from penstock.replica.directory import Directory
from penstock.state.strings import Strings
from penstock.state.table import TableState
from penstock.state.tables import Tables
from penstock.store.durable import DurableStore
from penstock.testing import assert_same_outcomes, assert_same_tables
from penstock.versions import Versions

pytestmark = pytest.mark.faults


class At(Failing):
    """Fails at these operations on files whose path has a part, until there are none."""

    def __init__(self, *what: str, part: str = "") -> None:
        super().__init__()
        self.what, self.part, self.on = what, part, ""

    def step(self, what: str, path: Path) -> Any:
        self.on = str(path)
        return super().step(what, path)

    def _fails(self, what: str) -> bool:
        return what in self.what and self.part in self.on


@pytest.fixture
def path(folder: Path) -> Path:
    return folder / "state"


@pytest.fixture
def filled(path: Path) -> Iterator[Any]:
    with open_db(path, "changes") as db:
        db.load(Account, ROWS)
        yield db


@pytest.fixture
def without_gc() -> Iterator[None]:
    """What goes, goes because nothing refers to it."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


# -- a disk that fails ------------------------------------------------------------------------------


def test_a_run_ahead_that_cannot_be_removed_leaves_no_lock(path: Path) -> None:
    with nothing_left():
        disk = At()
        db = open_db(path, "ahead", disk)
        db.load(Account, ROWS)
        run_ahead(db, "ahead", 0, 0)
        disk.what, disk.part = ("remove",), ".open"
        with pytest.raises(StateError, match=r"cannot remove .*\.open: input/output error; "):
            db.close()
        check(path, "ahead", 0)


def test_a_lock_that_cannot_be_given_back_is_given_back_with_its_file(path: Path) -> None:
    with nothing_left():
        open_db(path, "changes", At("unlock")).close()
        open_db(path, "changes").close()


def test_what_fails_while_a_failure_is_cleaned_up_does_not_hide_it(path: Path) -> None:
    disk = At()
    db = open_db(path, "changes", disk)
    db.load(Account, ROWS)
    disk.what = ("link", "remove")
    with pytest.raises(StateError, match=r"cannot link .*000000000002\.seg") as raised:
        run(db, "changes", 0)
    assert (raised.value.committed, raised.value.version) == (None, 1)
    db.close()
    check(path, "changes", 0)


def test_a_batch_sent_again_is_there_although_its_outcomes_cannot_be_read(path: Path) -> None:
    disk = At()
    with open_db(path, "changes", disk) as db:
        db.load(Account, ROWS)
        first = run(db, "changes", 0)
        disk.what, disk.part = ("read",), "000000000002.seg"
        with pytest.raises(StateError, match=r"cannot read .*000000000002\.seg") as raised:
            run(db, "changes", 0)
        assert (raised.value.committed, raised.value.version) == (True, 1)
        disk.what = ()
        assert_same_outcomes(run(db, "changes", 0), first)


def test_a_snapshot_that_cannot_be_read_does_not_make_a_history_shorter(path: Path) -> None:
    job(path, "changes", lambda k: None)
    disk = At()
    directory = Directory(path, disk)
    oldest, history = directory.oldest, directory.history("Account", {"id": ["a1"]})
    disk.what, disk.part = ("open",), f"{min((path / 'snapshots').iterdir())}/manifest.json"
    for ask in (lambda: directory.oldest, lambda: directory.history("Account", {"id": ["a1"]})):
        with pytest.raises(StateError, match=r"cannot open .*manifest\.json"):
            ask()
    # A table needs no particular snapshot.
    assert_same_tables(directory.table("Account"), prefixes("changes").tables[-1], ["id"])
    disk.what = ()
    assert (directory.oldest, directory.history("Account", {"id": ["a1"]})) == (oldest, history)


def test_a_segment_that_could_not_be_read_at_first_is_looked_at_again(path: Path) -> None:
    job(path, "changes", lambda k: None)
    segments = sorted((path / "log").glob("*.seg"))
    disk = At("read", part=segments[-2].name)
    # Opening reads it twice: for its header, and where no snapshot is behind it, for its changes.
    db = open_db(path, "changes", disk)
    disk.what = ()
    with db:
        assert_same_outcomes(db.outcomes(8), prefixes("changes").outcomes[7])


def test_where_no_thread_is_to_be_had_a_snapshot_is_made_all_the_same(path: Path) -> None:
    job(path, "changes", lambda k: None, At("thread"), background=True)
    assert len(list((path / "snapshots").iterdir())) > 1
    check(path, "changes", 9)


def test_a_snapshot_whose_removal_was_cut_short_is_no_damage(path: Path) -> None:
    with pytest.raises(StateError, match="cannot remove"):
        job(path, "changes", lambda k: None, At("remove", part=".removed"))
    assert list((path / "snapshots").glob("*.removed"))
    report = check_directory(Disk(), path)
    assert not report.damage, report.damage
    open_db(path, "changes").close()
    assert not list((path / "snapshots").glob("*.removed"))


def test_errors_that_are_kept_hold_no_files_open(path: Path) -> None:
    job(path, "input", lambda k: None)
    newest = max((path / "snapshots").iterdir()).name
    directory = Directory(path, At("open", part=f"{newest}/Account.arrow"))
    with nothing_left(), pytest.raises(StateError, match="logged as its input"):
        directory.table("Account")


# -- no memory, Ctrl-C ------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_a_batch_that_ran_and_was_not_committed_is_not_seen(error: type[BaseException], filled: Any) -> None:
    for db in (filled, _in_memory()):
        with call_in(Versions._execute, "return PendingBatch", error).watching(), pytest.raises(error) as raised:
            db.run(batch(0), id=0)
        assert getattr(raised.value, "committed", False) is False
        for ask in (lambda db=db: db.table(Account), lambda db=db: db.run(batch(0), id=0)):
            with pytest.raises(StateError, match=r"failed half-way .*open it again"):
                ask()


def _in_memory() -> Any:
    db = bank.open()
    db.load(Account, ROWS)
    return db


def test_a_batch_that_was_run_ahead_is_not_seen_where_going_back_is_interrupted(path: Path) -> None:
    with open_db(path, "ahead") as db:
        db.load(Account, ROWS)
        run_ahead(db, "ahead", 0, 1)
        with (
            call_in(Versions.go_back, "self._store.recover()", MemoryError).watching(),
            pytest.raises(MemoryError),
        ):
            run(db, "ahead", 0)
        with pytest.raises(StateError, match="open it again"):
            db.table(Account)
    check(path, "ahead", 0)


def test_a_load_that_is_durable_says_so(path: Path) -> None:
    with open_db(path, "changes") as db:
        with call_in(TableState.put, "self.reserve", MemoryError).watching(), pytest.raises(MemoryError) as raised:
            db.load(Account, ROWS)
        assert (raised.value.committed, raised.value.version) == (True, None)  # type: ignore[attr-defined]
        with pytest.raises(StateError) as refusal:
            db.table(Account)
        refused(refusal.value)
    with open_db(path, "changes") as db:
        assert db.table(Account).num_rows == len(ROWS)


def test_no_memory_while_a_directory_is_opened_leaves_it_unlocked(path: Path) -> None:
    for function, text in (
        (Tables.__init__, "TableState"),
        (Database.__init__, "recover()"),
        (WriterLock.acquire, "_forget_in_children"),
    ):
        with nothing_left(), call_in(function, text, MemoryError).watching(), pytest.raises(MemoryError):
            open_db(path, "changes")
    open_db(path, "changes").close()


def test_a_store_that_nobody_got_to_keep_gives_up_its_lock(path: Path, without_gc: None) -> None:
    with bank.open() as memory:
        DurableStore(memory._engine, path)  # Ctrl-C came before it was kept.
    DurableStore(memory._engine, path).close(None)


def test_strings_keep_their_numbers_where_nobody_hears_of_new_ones() -> None:
    strings = Strings()
    old = strings.number("old")
    with call_in(Strings.intern, "_intern(self", KeyboardInterrupt).watching(), pytest.raises(KeyboardInterrupt):
        strings.number("new")
    numbers = [strings.number(text) for text in ("new", "newer", "old")]
    assert numbers[2] == old and len(set(numbers)) == 3
    assert strings.arrow(pa.array(numbers).to_numpy()).to_pylist() == ["new", "newer", "old"]


def test_strings_are_found_again_where_making_room_is_interrupted() -> None:
    strings = Strings()
    numbers = strings.intern(pa.array([f"s{k}" for k in range(200)]))
    with call_in(Strings.reserve, "_fill(", MemoryError).watching(), pytest.raises(MemoryError):
        strings.intern(pa.array([f"t{k}" for k in range(4000)]))
    assert (strings.intern(pa.array([f"s{k}" for k in range(200)])) == numbers).all()


def test_a_table_has_room_in_all_arrays_or_in_none() -> None:
    tables = Tables(bank.program)
    table = tables["Account"]
    with call_in(TableState.reserve, '"dirty"', MemoryError).watching(), pytest.raises(MemoryError):
        table.reserve(5000)
    assert {table.capacity, table.stored.shape[1], *(c.size for c in table.columns), table.flags.size} == {1024}


def test_a_batch_whose_report_is_interrupted_is_committed(filled: Any) -> None:
    with call_in(Database.run, "observe.publish", MemoryError).watching(), pytest.raises(MemoryError) as raised:
        run(filled, "changes", 0)
    assert (raised.value.committed, raised.value.version) == (True, 1)  # type: ignore[attr-defined]
    assert_same_outcomes(run(filled, "changes", 0), prefixes("changes").outcomes[0])


def test_a_scrub_that_cannot_be_stopped_leaves_no_lock(path: Path) -> None:
    with nothing_left():
        db = open_db(path, "changes")
        with call_in(Scrub.stop, "set()", MemoryError).watching(), pytest.raises(MemoryError):
            db.close()
    open_db(path, "changes").close()


def test_an_interrupted_writer_does_not_keep_others_out(filled: Any) -> None:
    with call_in(Gate.writing, "_refuse_unusable", KeyboardInterrupt).watching(), pytest.raises(KeyboardInterrupt):
        run(filled, "changes", 0)
    assert_same_outcomes(run(filled, "changes", 0), prefixes("changes").outcomes[0])


def test_a_load_that_may_be_durable_names_no_version(path: Path) -> None:
    """It makes none: the version that is there already would say that it has happened."""
    disk = At()
    db = open_db(path, "changes", disk)
    db.run([])
    disk.what = ("link",)
    with pytest.raises(StateError, match=r"cannot link .*000000000002\.seg") as raised:
        db.load(Account, ROWS)
    assert (raised.value.committed, raised.value.version) == (None, None)
    told = "the load may be committed: open the directory again, and look whether its rows are there"
    assert told in raised.value.__notes__
    db.close()
    with open_db(path, "changes") as db:
        assert (db.version, db.table(Account).num_rows) == (1, 0)
