"""The list of a direct source's files: no name is lost, doubled or taken from elsewhere without a word."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.commit import Disk
from penstock.commit.identity import IDENTITY
from penstock.commit.lines import ChainedLines
from penstock.commit.sealed import seal
from penstock.errors import StateError
from penstock.spark.listing import FileList, check_lists, file_list, list_path

NAMES = [f"part-{i:04}.parquet" for i in range(5)]


def own(state: Path, directory: str) -> None:
    """Makes it the state directory of that identity."""
    state.mkdir(exist_ok=True)
    (state / IDENTITY).write_bytes(seal({"app": "bank", "directory": directory, "log": "changes"}))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    own(tmp_path / "state", "9f3c")
    return list_path(tmp_path / "state", "Transfer")


@pytest.fixture
def old(path: Path) -> Path:
    """As older versions wrote it."""
    path.parent.mkdir()
    out = path.with_suffix(".jsonl")
    out.write_text("".join(f'"{name}"\n' for name in NAMES))
    return out


def test_names_keep_their_numbers(path: Path) -> None:
    for name in NAMES:
        file_list(path, "Transfer").add([name])
    assert file_list(path, "Transfer").names() == NAMES
    assert FileList(path, "Transfer", "9f3c").names() == NAMES
    assert list(check_lists(path.parent.parent)) == []


def test_a_flipped_bit_does_not_make_a_file_look_new(path: Path) -> None:
    file_list(path, "Transfer").add(NAMES)
    data = path.read_bytes()
    path.write_bytes(data.replace(b"part-0003", b"part-0002"))
    with pytest.raises(StateError, match=r"sources/Transfer.list is damaged in line 2: its checksum does not hold"):
        file_list(path, "Transfer").names()
    (said,) = check_lists(path.parent.parent)
    assert "Transfer.list is damaged in line 2" in said


def test_a_name_that_is_there_twice_is_damage(path: Path) -> None:
    header = {"kind": "files of a source", "event": "Transfer"}
    ChainedLines(FileList(path, "Transfer", None)._disk, path, header).append([*NAMES, NAMES[1]])
    with pytest.raises(StateError, match=r"Transfer.list is damaged in line 7: it names 'part-0001.parquet' once more"):
        file_list(path, "Transfer").names()


def test_a_name_that_another_process_adds_meanwhile_is_not_added_again(path: Path) -> None:
    """A worker of a job that was killed may live for a moment."""

    class Beaten(Disk):
        def lock_file(self, fd: int) -> None:
            if self.beaten_by:
                FileList(path, "Transfer", "9f3c").add(self.beaten_by.pop())
            super().lock_file(fd)

        def __init__(self) -> None:
            self.beaten_by = [NAMES[1:3], NAMES[:1]]

    mine = FileList(path, "Transfer", "9f3c", Beaten())
    mine.add(NAMES)
    assert mine.names() == file_list(path, "Transfer").names() == NAMES


def test_a_list_of_another_event_or_directory_is_refused(path: Path, tmp_path: Path) -> None:
    file_list(path, "Transfer").add(NAMES)
    os.link(path, list_path(tmp_path / "state", "Deposit"))
    with pytest.raises(StateError, match=r"Deposit.list is the list of another event: 'Transfer', not 'Deposit'"):
        file_list(list_path(tmp_path / "state", "Deposit"), "Deposit").names()
    own(tmp_path / "state", "77aa")
    with pytest.raises(StateError, match=r"Transfer.list is the list of another directory: '9f3c', not '77aa'; put"):
        file_list(path, "Transfer").names()
    with pytest.raises(StateError, match="is the list of another directory"):
        file_list(path, "Transfer").add(["x.parquet"])


def test_a_list_may_be_there_before_its_directory_is(tmp_path: Path) -> None:
    path = list_path(tmp_path / "state", "Transfer")
    file_list(path, "Transfer").add(NAMES)
    own(tmp_path / "state", "9f3c")
    file_list(path, "Transfer").add(["x.parquet"])
    assert file_list(path, "Transfer").names() == [*NAMES, "x.parquet"]


def test_an_older_list_is_taken_over(path: Path, old: Path) -> None:
    with open(old, "a") as file:
        file.write('"part-00')
    assert file_list(path, "Transfer").names() == NAMES
    assert old.exists() and not path.exists()
    file_list(path, "Transfer").add(["x.parquet"])
    assert path.exists() and not old.exists()
    assert FileList(path, "Transfer", "9f3c").names() == [*NAMES, "x.parquet"]


def test_an_older_list_is_taken_over_where_nothing_is_new(path: Path, old: Path) -> None:
    file_list(path, "Transfer").add([])
    assert path.exists() and not old.exists()
    assert file_list(path, "Transfer").names() == NAMES


def test_of_two_lists_the_new_one_counts(path: Path, old: Path) -> None:
    FileList(path, "Transfer", "9f3c").add(["a.parquet"])
    old.write_text('"stale.parquet"\n')
    assert file_list(path, "Transfer").names() == [*NAMES, "a.parquet"]
    file_list(path, "Transfer").add(["b.parquet"])
    assert not old.exists()
    assert file_list(path, "Transfer").names() == [*NAMES, "a.parquet", "b.parquet"]


@pytest.mark.parametrize("line", ['"part-0000.parquet"', "17", "part", '"pa\\q"', '"\xff'])
def test_an_older_list_that_is_damaged_is_not_taken_over(path: Path, old: Path, line: str) -> None:
    old.write_bytes(old.read_bytes() + line.encode("latin-1") + b"\n")
    for use in (lambda: file_list(path, "Transfer").names(), lambda: file_list(path, "Transfer").add(["x"])):
        with pytest.raises(StateError, match=r"Transfer.jsonl is damaged in line 6: .*; restore it from a backup"):
            use()
    assert old.exists() and not path.exists()
    (said,) = check_lists(path.parent.parent)
    assert "Transfer.jsonl is damaged in line 6" in said
