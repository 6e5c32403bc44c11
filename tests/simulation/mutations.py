"""Penstock broken on purpose, one thing at a time: what the simulator is worth is which of these it finds.

Each is a function that patches the code under test; pytest's monkeypatch takes it back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock import gate
from penstock.commit import index, journal, lock, recover, retain, scan
from penstock.publish import files
from penstock.store import durable as store
from penstock.store import replay
from penstock.versions import Versions
from simulation.disk import SimulatedDisk

Mutation = Callable[[pytest.MonkeyPatch], None]
MUTATIONS: dict[str, Mutation] = {}


def mutation(function: Mutation) -> Mutation:
    MUTATIONS[function.__name__] = function
    return function


def _without_sync(patch: pytest.MonkeyPatch, method: str, skipped: Callable[[Path], bool]) -> None:
    original = getattr(SimulatedDisk, method)

    def sync(self: SimulatedDisk, *arguments: Any) -> None:
        if not skipped(arguments[-1]):
            original(self, *arguments)

    patch.setattr(SimulatedDisk, method, sync)


@mutation
def a_commit_is_acknowledged_before_its_bytes_are_synced(patch: pytest.MonkeyPatch) -> None:
    _without_sync(patch, "fsync", lambda path: path.parent.name == "log")


@mutation
def a_commit_is_acknowledged_before_its_name_is_synced(patch: pytest.MonkeyPatch) -> None:
    _without_sync(patch, "fsync_dir", lambda path: path.name == "log")


@mutation
def opening_does_not_sync_what_a_dead_writer_left(patch: pytest.MonkeyPatch) -> None:
    def settle(disk: Any, path: Path) -> Any:
        retain.remove_unfinished(disk, path)
        return scan.scan(disk, path)

    patch.setattr(journal, "_clean_up", settle)


@mutation
def segments_are_pruned_before_their_snapshot_is_synced(patch: pytest.MonkeyPatch) -> None:
    _without_sync(patch, "fsync", lambda path: path.parent.parent.name == "snapshots")
    _without_sync(patch, "fsync_dir", lambda path: "snapshots" in (path.name, path.parent.name))


@mutation
def only_the_newest_snapshot_is_kept(patch: pytest.MonkeyPatch) -> None:
    _without_sync(patch, "fsync_dir", lambda path: path.name == "snapshots")
    patch.setattr(index, "oldest_kept", lambda versions, version, keep: max(versions, default=0))


@mutation
def one_version_too_few_is_retained(patch: pytest.MonkeyPatch) -> None:
    kept = retain.oldest_kept
    patch.setattr(index, "oldest_kept", lambda versions, version, keep: kept(versions, version, keep - 1))


@mutation
def head_is_written_before_the_commit_has_its_name(patch: pytest.MonkeyPatch) -> None:
    link = journal.Journal._link

    def early(self: Any, prepared: Any) -> None:
        self._disk.overwrite(self.path / scan.HEAD, scan.head_bytes(prepared.seq, prepared.entry.hash))
        link(self, prepared)

    patch.setattr(journal.Journal, "_link", early)


@mutation
def the_lock_is_not_asked_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimulatedDisk, "lock_file", lambda self, fd: None)
    patch.setattr(SimulatedDisk, "unlock_file", lambda self, fd: None)


@mutation
def the_writers_token_is_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lock.WriterLock, "verify", lambda self: None)


@mutation
def a_reader_looks_only_once(patch: pytest.MonkeyPatch) -> None:
    def look(disk: Any, path: Path, use: Any) -> Any:
        return use(scan.scan(disk, path))

    patch.setattr(recover, "look", look)


@mutation
def a_history_begins_with_the_version_that_is_the_oldest_when_it_is_written_down(patch: pytest.MonkeyPatch) -> None:
    """As it once was: a pruning between the reading and the writing gives the first row another's version."""
    original = replay.history

    def history(journal: Any, *rest: Any) -> Any:
        patch.setattr(recover.Recovery, "base_version", property(lambda self: _oldest(journal._index)))
        return original(journal, *rest)

    patch.setattr(replay, "history", history)


def _oldest(found: index.Index) -> int:
    first = min(found._snapshots, default=0)
    whole = all(seq in found._entries for seq in range(1, first + 1))
    return 0 if whole else found._snapshots[first].version


@mutation
def readers_do_not_wait_for_the_writer(patch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def reading(self: gate.Gate) -> Iterator[None]:
        self._refuse_unusable()
        yield

    patch.setattr(gate.Gate, "reading", reading)


@mutation
def a_batch_that_is_sent_again_runs_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(store.DurableStore, "outcomes", lambda self, id: None)
    patch.setattr(store.DurableStore, "refuse_foreign", lambda self, *_: None)
    original = journal.Journal._stamp

    def stamp(self: Any, header: Any, seq: int) -> Any:
        last, self._index.last_id = self._index.last_id, None
        try:
            return original(self, header, seq)
        finally:
            self._index.last_id = last

    patch.setattr(journal.Journal, "_stamp", stamp)


@mutation
def a_wrong_guess_stays_in_memory(patch: pytest.MonkeyPatch) -> None:
    def go_back(self: Any) -> None:
        ahead, self.pending = self.pending, None
        if ahead is not None:
            self._store.forget(ahead.stored)

    patch.setattr(Versions, "go_back", go_back)


@mutation
def a_failed_batch_leaves_the_database_open(patch: pytest.MonkeyPatch) -> None:
    """Memory is then ahead of the disk, and nobody knows."""
    patch.setattr(gate.Gate, "fails", lambda self, error: None)
    patch.setattr(gate.Gate, "begins", lambda self: None)

    @contextmanager
    def breaking(self: Any) -> Iterator[None]:
        yield

    patch.setattr(journal.Journal, "_breaking", breaking)


@mutation
def outcome_files_of_a_dead_driver_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    write = files.OutcomeFiles._write

    def hasty(self: Any, version: int, outcomes: Any) -> None:
        if self._manifest is None:
            self._manifest = self._open(Path(self.path), version, 0o600)
        write(self, version, outcomes)

    patch.setattr(files.OutcomeFiles, "_write", hasty)
