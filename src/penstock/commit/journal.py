"""The journal of one state directory: commits, snapshots, and the way back after a crash.

    penstock.json            whose state this is (identity.py)
    writer.lock, writer.json the one writer (lock.py)
    head                     a hint: the newest acknowledged segment (scan.py)
    log/000000000001.seg     one segment a commit, numbered without gaps (log.py)
    snapshots/000000000042/  the whole state after segment 42 (snapshot.py)

A commit writes log/N.TAG.open, syncs it, makes sure that this is still the one writer, links it to
N.seg, and syncs the directory. Only then `commit` returns, and the caller may acknowledge:

    killed before the link       the commit never happened; the next writer removes the leftover
    killed after it              it happened, although nobody was told: the caller finds its id again

Invariants:
- A commit that returned is found by every later `recover`, or that names the file that is damaged.
- seq counts commits; version counts batches; ids, where given, strictly increase.
- After a failure nothing is known about the disk, so the journal is broken: reopening finds out.
- Snapshots and pruning run beside the commits (one thread, one at a time) and touch nothing that a
  commit needs. The tables given to `snapshot` must not change until it is done.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Container, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.commit.disk import Disk
from penstock.commit.identity import (
    LOG,
    SNAPSHOTS,
    Origin,
    check_identity,
    check_new,
    need_identity,
    read_identity,
    write_identity,
    write_origin,
)
from penstock.commit.index import Found, Index
from penstock.commit.lock import WriterLock
from penstock.commit.log import Segment, encode
from penstock.commit.recover import Recovery, look, read_commit, recover
from penstock.commit.retain import prune, remove_unfinished
from penstock.commit.scan import HEAD, Entry, Head, Scan, head_bytes, scan, segment_path
from penstock.commit.snapshot import Snapshot, write_snapshot
from penstock.errors import NotRetainedError, StateError, committing

# Unless the opener says otherwise: how many versions stay readable, and how many batches lie between two snapshots.
RETAIN = 100
SNAPSHOT_EVERY = 50

MakeTables = Callable[[], dict[str, pa.Table]]


@dataclass(frozen=True, slots=True)
class PendingSegment:
    """A commit that is on disk, but not yet under the name that makes it one."""

    seq: int
    file: Path
    entry: Entry


class Journal:
    def __init__(
        self,
        path: Path,
        disk: Disk,
        identity: dict[str, Any],
        found: Scan,
        *,
        lock: WriterLock | None = None,
        log: str = "changes",
        retain: int = RETAIN,
        snapshot_every: int = SNAPSHOT_EVERY,
        background: bool = True,
    ) -> None:
        self.path = path
        self.identity = identity  # as it is in the directory
        self.directory = found.origin.directory
        self.log = log
        self._disk = disk
        self._lock = lock
        self._retain = retain
        self._snapshot_every = snapshot_every
        self._background = background
        self._broken = False
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._index = Index(found, disk.mutex())

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        identity: dict[str, Any],
        *,
        log: str = "changes",
        retain: int = RETAIN,
        snapshot_every: int = SNAPSHOT_EVERY,
        background: bool = True,
        disk: Disk | None = None,
    ) -> Journal:
        """The directory's one writer; makes the directory where there is none."""
        path, disk = Path(path).absolute(), disk or Disk()
        disk.ensure_dir(path)
        stored = _stored(disk, path)
        if stored is None:
            check_new(disk, path)
        else:
            check_identity(path, stored, identity)
        lock = WriterLock.acquire(disk, path)
        try:
            stored = _stored(disk, path)  # Another writer may have made it, and gone.
            if stored is None:
                write_identity(disk, path, identity, log, Origin.new())
                stored = identity
            else:
                check_identity(path, stored, identity)
            found = _clean_up(disk, path)
            if found.origin.directory is None:
                found = _give_origin(disk, path, found)
            return cls(
                path,
                disk,
                stored,
                found,
                lock=lock,
                log=log,
                retain=retain,
                snapshot_every=snapshot_every,
                background=background,
            )
        except BaseException:
            lock.release()
            raise

    @classmethod
    def read_only(cls, path: str | os.PathLike[str], *, disk: Disk | None = None) -> Journal:
        """A reader beside whatever writer there is: takes no lock and writes nothing."""
        path, disk = Path(path).absolute(), disk or Disk()
        identity = need_identity(disk, path)
        return look(disk, path, lambda found: cls(path, disk, identity, found))

    def commit(self, header: dict[str, Any], parts: dict[str, pa.Table]) -> None:
        """Durable on return. `header` says kind ("batch" | "load") and id, and what else the caller wants back."""
        self.finish(self.prepare(header, parts))

    def prepare(self, header: dict[str, Any], parts: dict[str, pa.Table]) -> PendingSegment:
        """All of the next commit but its name: it has not happened, and does not, unless `finish` is called."""
        lock = self._writer()
        seq = self.seq + 1
        stamped = self._stamp(header, seq)
        encoded = encode(stamped, parts)
        named = {name: stamped[name] for name in ("kind", "version", "id", "last_id", "previous", "directory")}
        entry = Entry(**named, size=encoded.size, hash=encoded.hash, schema=stamped.get("schema"))
        prepared = PendingSegment(seq, self.path / LOG / f"{seq:012d}.{lock.tag}.open", entry)
        with self._breaking():
            try:
                self._disk.write_new(prepared.file, encoded.pieces)
            except BaseException:
                self._discard(prepared)
                raise
        return prepared

    def finish(self, prepared: PendingSegment) -> None:
        """Durable on return."""
        lock, seq, entry = self._writer(), prepared.seq, prepared.entry
        with self._breaking():
            try:
                lock.verify()
            except BaseException:
                self._discard(prepared)
                raise
            with committing(entry.version, None, entry.kind):
                self._link(prepared)
                self.forget(prepared)
                self._disk.fsync_dir(self.path / LOG)
                with committing(entry.version, True, entry.kind):
                    self._index.add(seq, entry)
                    self._disk.overwrite(self.path / HEAD, head_bytes(seq, entry.hash))

    def forget(self, prepared: PendingSegment) -> None:
        """What was prepared is not to happen; or has, under its own name."""
        with suppress(FileNotFoundError):
            self._disk.unlink(prepared.file)

    def _discard(self, prepared: PendingSegment) -> None:
        """As `forget`, after a failure, which is to be told: the next writer removes the file otherwise."""
        with suppress(OSError, StateError):
            self.forget(prepared)

    def recover(self, upto: int | None = None, *, oldest: bool = False, skip: Container[str] = ()) -> Recovery:
        """The newest state, or that of version `upto`: a base and the segments after it, without the parts to skip.

        With `oldest` the base is the oldest there is, so that the segments are all the history that is retained.
        """
        lazy = self._lock is not None and upto is None and not oldest
        recovery = recover(self._disk, self.path, upto, oldest=oldest, skip=skip, lazy=lazy)
        if lazy and recovery.scan.newest[0] != self.seq:
            raise StateError(
                f"fenced: state directory {self.path} is at commit {recovery.scan.newest[0]}, but this writer is at "
                f"{self.seq}; nothing more is written"
            )
        if self._lock is None:
            self._index = Index(recovery.scan, self._disk.mutex())
        self._index.drop_snapshots(recovery.damaged)
        return recovery

    def outcomes(self, id: int, only: Collection[str] | None = None) -> Segment | None:
        """The commit of the batch with that id; None if the id is newer than all."""
        found = self._found(lambda: self._index.find(id))
        if found is not None:
            with committing(found.version, True):
                try:
                    return read_commit(self._disk, self.path, found.commit, only)
                except StateError:
                    if self._disk.exists(segment_path(self.path, found.commit)):
                        raise
        elif self._lock is None:
            self._index = look(self._disk, self.path, lambda found: Index(found, self._disk.mutex()))
            if (found := self._index.find(id)) is not None:
                return read_commit(self._disk, self.path, found.commit, only)
        if self.last_id is None or id > self.last_id:
            return None
        self._refuse_lost()
        oldest = "none is" if self._index.oldest_id is None else f"the oldest is {self._index.oldest_id}"
        raise NotRetainedError(
            f"batch {id} is not retained any more in state directory {self.path}: "
            f"{oldest}; open it with a larger retain to keep more"
        )

    def batch(self, version: int, only: Collection[str] | None = None) -> Segment:
        """The commit that made a version."""
        found = self._found(lambda: self._index.find_version(version))
        if found is None:
            self._refuse_lost()
            raise NotRetainedError(f"version {version} is not retained in state directory {self.path}")
        return read_commit(self._disk, self.path, found.commit, only)

    def _refuse_lost(self) -> None:
        """Before a commit that is not found is said to be pruned: raises where one is damaged or lost. It may be this
        one, as nobody can tell any more what version it made."""
        for damaged in self._index.damaged.values():
            raise damaged
        look(self._disk, self.path, lambda found: found.first)

    def _found(self, find: Callable[[], Found | None]) -> Found | None:
        """A commit by what the writer keeps of it; where some could not be read, it looks at those again."""
        found = find()
        if found is None and self._lock is not None and self._index.damaged:
            self._index.mend(scan(self._disk, self.path))
            found = find()
        return found

    def snapshot(self, header: dict[str, Any], tables: MakeTables | dict[str, pa.Table], *, wait: bool = False) -> None:
        """Saves the state after the newest commit, then prunes; skipped while one is running or has just been made.

        tables: where they are yet to be made of what does not change, that is left to the thread that saves them. With
        `wait` it waits for the one that is running, and is done on return.
        """
        if wait and self._thread is not None:
            self._thread.join()
        lock = self._writer()
        if self._thread is not None or self._index.has_snapshot():
            return
        stamped = {**header, "version": self.version, "last_id": self.last_id}
        whole = partial(_made, self.seq, stamped, tables, self.directory, self._index.hash)
        self._index.begin_snapshot()
        if wait or not self._background:
            self._save(lock, whole)
            return
        try:
            self._thread = self._disk.thread(partial(self._save_aside, lock, whole), "penstock-snapshot")
        except RuntimeError:  # No thread is to be had.
            self._save(lock, whole)

    @property
    def seq(self) -> int:
        """The number of the newest commit."""
        return self._index.seq

    @property
    def hash(self) -> str | None:
        """That of the newest commit."""
        return self._index.hash

    @property
    def version(self) -> int:
        """The number of batches committed so far."""
        return self._index.version

    @property
    def oldest_version(self) -> int:
        """The oldest one that is retained; the next one, where there is none."""
        return self._index.oldest_version

    @property
    def last_id(self) -> int | None:
        """The newest batch id, or None before the first."""
        return self._index.last_id

    def version_of(self, id: int) -> int:
        """The version that the batch with that id made; it is one that is retained."""
        found = self._index.find(id)
        assert found is not None, f"batch {id} is not retained"
        return found.version

    def keep_from(self, id: int) -> None:
        """From now on neither a batch with this id or a higher one, nor what comes after it, is pruned, whatever
        `retain` says."""
        self._index.kept_from = id

    @property
    def batches_since_snapshot(self) -> int:
        return self._index.batches_since_snapshot

    @property
    def due(self) -> bool:
        """Whether a snapshot should be made now."""
        if self._thread is not None and self._thread.is_alive():
            return False
        return self.batches_since_snapshot >= self._snapshot_every or self._index.much_logged

    def close(self) -> None:
        """Waits for a running snapshot and lets the next writer in; raises what went wrong unseen."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._lock is not None:
            self._lock.release()
        self._broken = True
        self._raise_failure()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _writer(self) -> WriterLock:
        """The lock, if this journal may write."""
        if self._lock is None:
            raise StateError(f"state directory {self.path} is open for reading only; open it for writing")
        if self._thread is not None and not self._thread.is_alive():
            self._thread.join()
            self._thread = None
        self._raise_failure()
        if self._broken:
            raise StateError(f"state directory {self.path} is closed, or a write to it failed; reopen it")
        self._lock.check_process()
        return self._lock

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise StateError(f"a snapshot of state directory {self.path} failed: {failure}") from failure

    @contextmanager
    def _breaking(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:  # A file that this writer made, or its folder, is gone or in the way.
            self._broken = True
            broken = StateError(
                f"{error.filename or self.path}: {(error.strerror or str(error)).lower()}; state directory {self.path} "
                "was moved, removed or written by someone else; put it back, and open it again"
            )
            broken.committed, broken.version = getattr(error, "committed", False), getattr(error, "version", None)
            raise broken from error
        except BaseException:
            self._broken = True
            raise

    def _link(self, prepared: PendingSegment) -> None:
        final = segment_path(self.path, prepared.seq)
        try:
            self._disk.link(prepared.file, final)
        except (FileExistsError, FileNotFoundError) as error:
            self._discard(prepared)
            fenced = StateError(f"fenced: another writer was at {final}; nothing more is written")
            fenced.committed = False
            raise fenced from error
        except BaseException:
            self._discard(prepared)
            raise

    def _stamp(self, header: dict[str, Any], seq: int) -> dict[str, Any]:
        kind, id = header.get("kind", "batch"), header.get("id")
        if kind not in ("batch", "load"):
            raise ValueError(f"a commit is a batch or a load, not {kind!r}")
        if id is not None and self.last_id is not None and id <= self.last_id:
            raise StateError(f"batch {id} cannot be committed after batch {self.last_id}; ids must increase")
        version = self.version + (kind == "batch")
        if header.get("version", version) != version:
            raise ValueError(f"this commit makes version {version}, not {header['version']}")
        last_id = self.last_id if id is None else id
        return {
            **header,
            "seq": seq,
            "kind": kind,
            "version": version,
            "id": id,
            "last_id": last_id,
            "log": header.get("log", self.log),
            "directory": self.directory,
            "previous": self._index.hash or self.directory,
        }

    def _save(self, lock: WriterLock, snapshot: Callable[[], Snapshot]) -> None:
        with self._breaking():
            manifest = write_snapshot(self._disk, self.path / SNAPSHOTS, snapshot(), lock.tag, lock.verify)
            prune(self._disk, self.path, self._index.end_snapshot(manifest, self._retain))

    def _save_aside(self, lock: WriterLock, snapshot: Callable[[], Snapshot]) -> None:
        try:
            self._save(lock, snapshot)
        except BaseException as error:  # Kept for the caller's next commit or close.
            self._failure = error


def _made(
    seq: int, header: dict[str, Any], tables: MakeTables | dict[str, pa.Table], directory: str | None, stands_on: str
) -> Snapshot:
    return Snapshot(seq, header, tables() if callable(tables) else dict(tables), directory, stands_on)


def _stored(disk: Disk, path: Path) -> dict[str, Any] | None:
    try:
        return read_identity(disk, path)
    except FileNotFoundError:
        return None


def _clean_up(disk: Disk, path: Path) -> Scan:
    """Removes what a dead writer left, and makes durable what it did not live to sync."""
    remove_unfinished(disk, path)
    disk.fsync_dir(path / LOG)
    disk.fsync_dir(path / SNAPSHOTS)
    found = scan(disk, path)
    seq, newest = found.newest
    if found.head != Head(seq, newest.hash) or seq == 0:
        disk.overwrite(path / HEAD, head_bytes(seq, newest.hash))
    return found


def _give_origin(disk: Disk, path: Path, found: Scan) -> Scan:
    """A directory of an older Penstock: from the next commit on its files say that they belong to it."""
    origin = Origin.new(chain=found.newest[0] + 1)
    write_origin(disk, path, origin)
    return replace(found, origin=origin)
