"""One writer a directory: a second one is refused, a zombie is fenced."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.commit import Disk, Journal
from penstock.commit.lock import WriterLock
from penstock.errors import StateError

IDENTITY = {"app": "bank", "tables": {}}


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal.open(tmp_path, IDENTITY) as journal:
        yield journal


def in_child(work: Callable[[], object]) -> str:
    """What the error says that `work` raises in a forked child; empty if it raises none."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as error:
            os.write(write, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return text


def test_a_second_writer_is_refused(journal: Journal) -> None:
    message = f"is open for writing by pid {os.getpid()} on {socket.gethostname()}; close it"
    with pytest.raises(StateError, match=message):
        Journal.open(journal.path, IDENTITY)
    text = in_child(lambda: Journal.open(journal.path, IDENTITY))
    assert text.startswith("StateError") and message in text
    journal.commit({}, {})
    journal.close()
    assert in_child(lambda: Journal.open(journal.path, IDENTITY).commit({}, {})) == ""


def test_each_writer_has_a_new_epoch(tmp_path: Path) -> None:
    for epoch in (1, 2, 3):
        lock = WriterLock.acquire(Disk(), tmp_path)
        assert lock.epoch == epoch == json.loads((tmp_path / "writer.json").read_text())["epoch"]
        lock.verify()
        lock.release()
        with pytest.raises(StateError, match="closed"):
            lock.verify()
    (tmp_path / "writer.json").write_text("{")
    assert WriterLock.acquire(Disk(), tmp_path).epoch == 1


def fenced(journal: Journal) -> None:
    before = sorted(path for path in journal.path.rglob("*.seg"))
    with pytest.raises(StateError, match="fenced"):
        journal.commit({}, {})
    with pytest.raises(StateError, match="reopen"):
        journal.commit({}, {})
    assert before == sorted(path for path in journal.path.rglob("*.seg"))


def test_a_writer_whose_lock_was_removed_is_fenced(journal: Journal) -> None:
    journal.commit({}, {})
    (journal.path / "writer.lock").unlink()
    fenced(journal)


def test_a_writer_that_was_replaced_is_fenced(journal: Journal) -> None:
    (journal.path / "writer.lock").unlink()
    with Journal.open(journal.path, IDENTITY) as other:
        fenced(journal)
        other.commit({}, {})


def test_a_writer_with_another_token_is_fenced(journal: Journal) -> None:
    (journal.path / "writer.json").unlink()
    fenced(journal)


def test_a_zombie_never_replaces_a_commit(journal: Journal) -> None:
    (journal.path / "log" / "000000000001.seg").write_bytes(b"another writer's")
    fenced(journal)
    assert (journal.path / "log" / "000000000001.seg").read_bytes() == b"another writer's"


def test_a_zombie_makes_no_snapshot(journal: Journal) -> None:
    journal._background = False
    journal.commit({}, {})
    (journal.path / "writer.json").unlink()
    with pytest.raises(StateError, match="fenced"):
        journal.snapshot({}, {})
    assert list((journal.path / "snapshots").iterdir()) == []


def test_a_forked_child_neither_commits_nor_keeps_the_lock(journal: Journal) -> None:
    assert "which forked" in in_child(lambda: journal.commit({}, {}))
    read, write = os.pipe()
    ready, say_ready = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(write)
        os.write(say_ready, b"x")
        os.read(read, 1)  # Until the parent writes, or is gone.
        os._exit(0)
    os.read(ready, 1)  # It lets go of the lock as it starts, which takes a moment.
    journal.commit({}, {})
    # As if this process had died while its child lives on: its descriptor is closed, not unlocked.
    assert journal._lock is not None
    os.close(journal._lock._fd)
    journal._lock._fd = -1
    Journal.open(journal.path, IDENTITY).close()
    os.write(write, b"x")
    os.waitpid(pid, 0)
    for one in (read, write, ready, say_ready):
        os.close(one)
