"""A journal: identity, commits, versions, outcomes by id, retention, and readers beside it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.commit import Disk, Journal
from penstock.commit.retain import oldest_kept
from penstock.errors import StateError

IDENTITY: dict[str, Any] = {
    "app": "bank",
    "tables": {"Account": {"id": "str key", "balance": "decimal(18, 2)"}},
}


def table(*rows: int) -> pa.Table:
    return pa.table({"row": pa.array(rows, pa.int64())})


def open_journal(path: Path, **options: Any) -> Journal:
    return Journal.open(path, IDENTITY, **{"background": False, **options})


def batch(journal: Journal, rows: list[int], **header: Any) -> None:
    """Commits the next number as a batch, and a snapshot where one is due."""
    number = journal.seq + 1
    journal.commit({"kind": "batch", "id": journal.version * 10, **header}, {"changes": table(number)})
    rows.append(number)
    if journal.due:
        journal.snapshot({"note": number}, {"Rows": table(*rows)})


def rows_of(journal: Journal, upto: int | None = None) -> list[int]:
    recovery = journal.recover(upto)
    rows = recovery.snapshot.tables["Rows"]["row"].to_pylist() if recovery.snapshot else []
    for segment in recovery.segments:
        rows += segment.parts["changes"]["row"].to_pylist()
    return list(rows)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with open_journal(tmp_path / "a" / "state", snapshot_every=3, retain=4) as journal:
        yield journal


def test_a_new_directory_is_private(journal: Journal) -> None:
    rows: list[int] = []
    batch(journal, rows)
    journal.snapshot({}, {"Rows": table(*rows)})
    for folder, _, names in os.walk(journal.path):
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
        assert {stat.S_IMODE(os.stat(Path(folder, name)).st_mode) for name in names} <= {0o600}
    assert sorted(p.name for p in journal.path.iterdir()) == [
        "head", "log", "penstock.json", "snapshots", "writer.json", "writer.lock"
    ]  # fmt: skip


def test_an_empty_journal(journal: Journal) -> None:
    assert (journal.seq, journal.version, journal.last_id, journal.due) == (0, 0, None, False)
    journal.snapshot({}, {})
    recovery = journal.recover()
    assert recovery.snapshot is None and list(recovery.segments) == []
    assert journal.outcomes(0) is None


def test_commits_are_found_again(journal: Journal) -> None:
    rows: list[int] = []
    journal.commit({"kind": "load", "table": "Account"}, {"changes": table(1)})
    rows.append(1)
    assert journal.version == 0
    batch(journal, rows, extra={"a": [1]})
    journal.close()
    with open_journal(journal.path, log="events") as again:
        assert (again.seq, again.version, again.last_id, again.batches_since_snapshot) == (2, 1, 0, 1)
        batch(again, rows)
        load, first, second = [segment.header for segment in again.recover().segments]
    assert load == {
        "kind": "load", "table": "Account", "seq": 1, "version": 0, "id": None, "last_id": None, "log": "changes",
        "directory": journal.directory, "previous": journal.directory,
    }  # fmt: skip
    assert first["extra"] == {"a": [1]} and first["log"] == "changes"
    assert (second["seq"], second["version"], second["id"], second["log"]) == (3, 2, 10, "events")


def test_another_apps_directory_is_refused(journal: Journal) -> None:
    journal.close()
    with pytest.raises(StateError, match="it is of app 'bank', and this is app 'shop'; open another directory"):
        Journal.open(journal.path, {**IDENTITY, "app": "shop"})


def test_the_tables_of_a_directory_are_those_that_it_was_made_with(journal: Journal) -> None:
    """Whether an app may go on from them is not the journal's to say (store/)."""
    journal.close()
    with Journal.open(journal.path, {**IDENTITY, "tables": {}}) as again:
        assert again.identity["tables"] == IDENTITY["tables"]


def test_a_foreign_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(StateError, match=r"not a state directory.*thesis\.txt"):
        open_journal(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]
    with pytest.raises(StateError, match="must be a directory"):
        open_journal(tmp_path / "thesis.txt")
    with pytest.raises(StateError, match="not a state directory"):
        Journal.read_only(tmp_path / "nowhere")


def test_an_empty_directory_and_a_creation_cut_short_are_taken(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "writer.lock").touch()
    open_journal(tmp_path).close()


def test_a_damaged_identity_is_named(journal: Journal) -> None:
    journal.close()
    path = journal.path / "penstock.json"
    path.write_text(path.read_text().replace("bank", "bonk"))
    with pytest.raises(StateError, match=r"penstock\.json is damaged"):
        open_journal(journal.path)
    path.write_text("{}")
    with pytest.raises(StateError, match=r"penstock\.json is damaged"):
        Journal.read_only(journal.path)


def test_ids_increase_and_versions_count_batches(journal: Journal) -> None:
    batch(journal, [], id=5)
    with pytest.raises(StateError, match="batch 5 cannot be committed after batch 5"):
        batch(journal, [], id=5)
    with pytest.raises(ValueError, match="makes version 2, not 7"):
        batch(journal, [], id=6, version=7)
    with pytest.raises(ValueError, match="a batch or a load"):
        journal.commit({"kind": "other"}, {})
    batch(journal, [], id=6)  # A refused commit breaks nothing.
    assert (journal.version, journal.last_id) == (2, 6)


def test_outcomes_by_id(journal: Journal) -> None:
    rows: list[int] = []
    for _ in range(20):
        batch(journal, rows)
    journal.close()
    with open_journal(journal.path) as again:
        for number in (14, 17, 19):
            segment = again.outcomes(number * 10)
            assert segment is not None and segment.parts["changes"]["row"].to_pylist() == [number + 1]
        assert again.outcomes(191) is None
        with pytest.raises(StateError, match=r"batch 0 is not retained any more .* oldest is 1[0-9]0"):
            again.outcomes(0)
        segment = again.outcomes(190, only=())
        assert segment is not None and segment.parts == {}


def test_every_retained_version_can_be_read(journal: Journal) -> None:
    rows: list[int] = []
    for number in range(1, 30):
        batch(journal, rows)
        for upto in range(max(0, number - 4), number + 1):
            assert rows_of(journal, upto) == rows[:upto]
        assert rows_of(journal) == rows
        everything = journal.recover(oldest=True, skip={"changes"})
        assert everything.base_version == everything.scan.oldest
        assert [(s.header["version"], s.parts) for s in everything.segments] == [
            (version, {}) for version in range(everything.base_version + 1, number + 1)
        ]
        snapshots = sorted((journal.path / "snapshots").iterdir())
        assert len(snapshots) <= 4
        assert len(list((journal.path / "log").iterdir())) <= 10
    with pytest.raises(StateError, match=r"version 3 .* oldest version that can be read is 2[0-9]"):
        journal.recover(3)
    for upto in (-1, 30):
        with pytest.raises(StateError, match=f"no version {upto}: its newest is 29"):
            journal.recover(upto)


def test_a_load_belongs_to_the_version_before_it(journal: Journal) -> None:
    rows: list[int] = []
    batch(journal, rows)
    journal.snapshot({}, {"Rows": table(*rows)})
    journal.commit({"kind": "load"}, {"changes": table(100)})
    batch(journal, rows)
    assert rows_of(journal, 0) == []
    assert rows_of(journal, 1) == [1, 100]
    assert rows_of(journal, 2) == [1, 100, 3]


def test_what_pruning_keeps() -> None:
    assert oldest_kept({}, 50, 10) == 0
    assert oldest_kept({50: 50}, 50, 10) == 0
    assert oldest_kept({25: 25, 50: 50}, 50, 0) == 25
    assert oldest_kept({10: 10, 20: 20, 30: 30, 40: 40}, 40, 15) == 20
    assert oldest_kept({10: 10, 20: 20, 30: 30, 40: 40}, 40, 100) == 0


def test_a_damaged_snapshot_falls_back_to_an_older_one(journal: Journal) -> None:
    rows: list[int] = []
    for _ in range(13):
        batch(journal, rows)
    journal.close()
    newest = max((journal.path / "snapshots").iterdir()) / "Rows.arrow"
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(data)
    with open_journal(journal.path, snapshot_every=3, retain=0) as again:
        assert rows_of(again) == rows
        # It does not count as one of the two that protect the log.
        assert again.batches_since_snapshot == 4
        again.snapshot({}, {"Rows": table(*rows)})
        assert len(list((journal.path / "snapshots").iterdir())) == 3
        assert rows_of(again) == rows


def test_without_an_older_snapshot_the_damaged_file_is_named(journal: Journal) -> None:
    for _ in range(13):
        batch(journal, [])
    journal.close()
    for snapshot in (journal.path / "snapshots").iterdir():
        (snapshot / "Rows.arrow").write_bytes(b"")
    with pytest.raises(StateError, match=r"snapshots/0{10}\d\d/Rows\.arrow is damaged"):
        open_journal(journal.path).recover()


def test_a_missing_segment_is_named(journal: Journal) -> None:
    for _ in range(5):
        batch(journal, [])
    journal.close()
    log = journal.path / "log"
    (log / "000000000005.seg").rename(journal.path / "aside")
    for opened in (open_journal, Journal.read_only):
        with pytest.raises(StateError, match=r"log/000000000005\.seg is missing"):
            opened(journal.path)
    (journal.path / "aside").rename(log / "000000000005.seg")
    (log / "000000000004.seg").unlink()
    with open_journal(journal.path) as again, pytest.raises(StateError, match=r"log/000000000004\.seg is missing"):
        again.recover()


def test_snapshots_in_the_background(tmp_path: Path) -> None:
    rows: list[int] = []
    with open_journal(tmp_path, background=True, snapshot_every=2, retain=3) as journal:
        for _ in range(40):
            batch(journal, rows)
    with Journal.read_only(tmp_path) as reader:
        assert rows_of(reader) == rows
        assert reader.recover().snapshot is not None


def test_a_snapshot_to_wait_for(tmp_path: Path) -> None:
    rows: list[int] = []
    with open_journal(tmp_path, background=True, snapshot_every=2) as journal:
        for _ in range(5):
            batch(journal, rows)
            journal.snapshot({}, {"Rows": table(*rows)}, wait=True)
            assert (tmp_path / "snapshots" / f"{journal.seq:012d}" / "manifest.json").exists()


class NoSnapshots(Disk):
    def mkdir(self, path: Path) -> None:
        if path.name.endswith(".open"):
            raise StateError(f"cannot create {path}: no space")
        super().mkdir(path)


def test_a_snapshot_that_fails_in_the_background_is_told(tmp_path: Path) -> None:
    for use in ("commit", "close"):
        journal = open_journal(tmp_path / use, background=True, disk=NoSnapshots())
        batch(journal, [])
        journal.snapshot({}, {})
        assert journal._thread is not None
        journal._thread.join()
        if use == "commit":
            with pytest.raises(StateError, match=r"snapshot of .* failed: cannot create"):
                batch(journal, [])
            with pytest.raises(StateError, match="reopen"):
                batch(journal, [])
            journal.close()
        else:
            with pytest.raises(StateError, match=r"snapshot of .* failed: cannot create"):
                journal.close()
        with open_journal(tmp_path / use) as again:
            assert rows_of(again) == [1]


def test_much_log_makes_a_snapshot_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.commit.index.LOG_BYTES_MIN", 20_000)
    with open_journal(tmp_path) as journal:
        journal.commit({}, {"changes": table(*range(1500))})
        assert not journal.due
        journal.commit({}, {"changes": table(*range(1500))})
        assert journal.due
        journal.snapshot({}, {"Rows": table(*range(1500))})
        assert not journal.due
    with open_journal(tmp_path) as journal:
        journal.commit({}, {"changes": table(*range(4000))})
        assert not journal.due  # Not yet four times the snapshot.
        journal.commit({}, {"changes": table(*range(4000))})
        assert journal.due


def test_a_reader_sees_what_is_committed_and_writes_nothing(journal: Journal) -> None:
    rows: list[int] = []
    batch(journal, rows)
    before = sorted(journal.path.rglob("*"))
    reader = Journal.read_only(journal.path)
    assert reader.identity.items() >= IDENTITY.items()
    assert rows_of(reader) == [1]
    assert before == sorted(journal.path.rglob("*"))
    batch(journal, rows)
    assert reader.outcomes(10) is not None and reader.version == 2
    with pytest.raises(StateError, match="reading only"):
        reader.commit({}, {})
    for _ in range(20):
        batch(journal, rows)
    with pytest.raises(StateError, match="not retained"):
        reader.outcomes(0)
    assert rows_of(reader) == rows


def test_a_reader_beside_a_busy_writer(tmp_path: Path) -> None:
    open_journal(tmp_path).close()
    pid = os.fork()
    if pid == 0:
        try:
            rows: list[int] = []
            with open_journal(tmp_path, snapshot_every=1, retain=1, background=True) as writer:
                for _ in range(150):
                    batch(writer, rows)
        finally:
            os._exit(len(rows) != 150)
    reader, count = Journal.read_only(tmp_path), 0
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        rows = rows_of(reader)
        assert rows == list(range(1, len(rows) + 1)) and len(rows) >= count
        count = len(rows)
        try:
            assert rows_of(reader, count) == rows
        except StateError as error:  # The writer was faster: it may have pruned that version by now.
            if "not retained" not in str(error):
                raise
    assert rows_of(reader) == list(range(1, 151))


# -- names --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["../Rows", "a/b", "", "held:", "..", "Rows.arrow"])
def test_a_table_whose_name_cannot_be_a_files_is_refused(journal: Journal, name: str) -> None:
    batch(journal, [])
    with pytest.raises(StateError, match="rename it"):
        journal.snapshot({}, {name: table(1)})
    assert not list(journal.path.parent.glob("*.arrow"))
