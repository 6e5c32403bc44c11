"""Which commits there are, and so what any answer may be.

A commit happens when its segment gets its name, log/N.seg: the oracle sees that link, knows what was asked for in the
task that makes it, and lets the model go on. So at any time it knows the state after every commit.

    commits    0 1 2 3 4 5 6 7
    acked              ^          somebody was told that it is durable: after a loss of power it must be there
    linked                   ^    it can be read; after a loss of power it may be gone
    floor          ^              every version from here on can be read: the newest, less what is retained

An answer that was asked for when `acked` was a, and came when `linked` was z, must be that of a commit from a to z.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from simulation.app import BatchRequest, Commit, Row
from simulation.files import File, Folder
from simulation.machine import Machine
from simulation.scheduler import Process, Wrong

PATH = Path("/data/state")
OUTCOMES = Path("/data/outcomes")


class Handle:
    """A database that a process has opened, and what it may know."""

    def __init__(self, process: Process, retain: int, log: str, db: Any = None) -> None:
        self.process, self.retain, self.log, self.db = process, retain, log, db
        self.acked = self.linked = 0  # the newest commit that it was told of, and that it made
        self.faults = process.faults  # before it was opened
        self.closed = self.gone = False  # whether it is being closed, and whether that is done
        self.broken = False  # whether it has refused to write
        self.rivals = False  # whether another one was open at the same time: its lock had been removed
        self.removals = 0  # of locks, before it was opened
        self.shaky = False  # whether something went wrong while it was opened: what it could not read it takes for lost

    @property
    def had_faults(self) -> bool:
        return self.process.faults > self.faults


@dataclass(slots=True)
class Since:
    """How things stood when a question was asked."""

    acked: int
    linked: int
    pruned: int
    locked: int
    faults: int
    opened: bool


class Oracle:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.commits = [Commit()]
        self.acked = 0
        self.floor = 0
        self.pruned = 0  # segments removed so far
        self.removals = 0  # of the lock's file, by somebody who ought not
        self.opened = False  # whether any writer has ever opened the directory
        self.snapshots = {0}
        self.handles: list[Handle] = []  # open ones
        self.judged = 0  # answers
        machine.linked, machine.renamed = self._linked, self._renamed
        machine.removed, machine.lost_power = self._removed, self._lost_power

    @property
    def linked(self) -> int:
        return len(self.commits) - 1

    @property
    def newest(self) -> Commit:
        return self.commits[-1]

    @property
    def rivals(self) -> bool:
        """Whether two may write at this moment."""
        return self.removals > 0 and any(not h.gone and not h.process.dead for h in self.handles)

    def since(self, handle: Handle | None = None) -> Since:
        task = self.machine.scheduler.current
        assert task is not None
        acked = self.acked if handle is None else handle.acked
        return Since(acked, self.linked, self.pruned, self.locked(task.process), task.faults, self.opened)

    def locked(self, process: Process) -> int:
        """How often other processes got the lock."""
        return self.machine.locked.total() - self.machine.locked[process]

    def faulted(self, since: Since) -> bool:
        """Whether an operation of this task was made to fail since then."""
        task = self.machine.scheduler.current
        assert task is not None
        return task.faults > since.faults

    def wrong(self, text: str) -> NoReturn:
        self.machine.note(f"WRONG: {text}")
        self.machine.scheduler.wrong(Wrong(text))

    def check(self, holds: bool, text: str) -> None:
        self.judged += 1
        if not holds:
            self.wrong(text)

    # -- what happens -----------------------------------------------------------------------

    def _linked(self, path: Path) -> None:
        if path.parent != PATH / "log":
            return
        task = self.machine.scheduler.current
        call: tuple[Handle, BatchRequest] | None = getattr(task, "call", None)
        if call is None:
            self.wrong(f"{path.name} appears, and nobody asked for it")
        handle, asked = call
        seq = int(path.name.removesuffix(".seg"))
        if seq != self.linked + 1:
            self.wrong(f"commit {seq} appears after commit {self.linked}")
        if handle.linked != self.linked:
            self.wrong(f"commit {seq} is made by a writer that knows of {handle.linked} commits")
        if asked.id is not None and self.find(asked.id) is not None:
            self.wrong(f"batch {asked.id} happens for the second time")
        self.commits.append(self.newest.after(asked))
        handle.linked = seq
        self.floor = max(self.floor, self.newest.version - handle.retain)
        self.machine.note(f"  commit {seq} has happened: {asked}")

    def _renamed(self, path: Path) -> None:
        if path.parent == PATH / "snapshots" and path.name.isdecimal():
            self.snapshots.add(int(path.name))

    def _removed(self, path: Path) -> None:
        self.pruned += path.suffix == ".seg"

    def _lost_power(self) -> None:
        left = max(segments(self.machine), default=0)
        self.machine.note(f"  commits up to {left} are left, {self.acked} were acknowledged")
        if left < self.acked:
            self.wrong(f"commit {self.acked} was acknowledged, but only {left} are left after a loss of power")
        del self.commits[left + 1 :]
        self.floor = min(self.floor, self.newest.version)

    def acknowledge(self, handle: Handle, seq: int) -> None:
        handle.acked = max(handle.acked, seq)
        self.acked = max(self.acked, seq)

    def open(self, handle: Handle, seq: int, since: Since) -> None:
        """A database was opened, and says that this is its newest commit."""
        self.check(since.linked <= seq <= self.linked, f"opened at commit {seq}, but the newest is {self.linked}")
        self.handles = [other for other in self.handles if not other.gone and not other.process.dead]
        for other in self.handles:
            apart = other.closed or self.removals > 0
            self.check(apart, f"{handle.process.name} opens what {other.process.name} has open")
            other.rivals = handle.rivals = True
        self.handles.append(handle)
        self.opened = True
        handle.removals, handle.shaky = self.removals, handle.had_faults
        handle.linked = seq
        self.acknowledge(handle, seq)

    # -- what an answer may be --------------------------------------------------------------

    def seqs_of(self, version: int, low: int) -> list[int]:
        """The commits whose state is that of a version, for one who asked when `low` was acknowledged: a load after a
        batch has the batch's version."""
        same = [commit.seq for commit in self.commits if commit.version == version]
        return [seq for seq in same if seq == same[-1] or seq >= low]

    def find(self, id: int) -> Commit | None:
        return next((commit for commit in self.commits if commit.asked.id == id and commit.seq), None)

    def of_version(self, version: int) -> Commit | None:
        return next((c for c in self.commits if c.version == version and c.seq and not c.is_load), None)

    def ends(self, since: Since) -> range:
        return range(since.acked, self.linked + 1)

    def _spans(self, since: Since) -> Iterator[tuple[int, int]]:
        """What a history may begin and end with. With a snapshot that cannot be read, what is behind it is passed
        over."""
        for base in sorted(self.snapshots):
            if base <= self.linked and (self.commits[base].version <= self.floor or self.faulted(since)):
                yield from ((base, end) for end in self.ends(since) if base <= end)

    def histories(self, table: str, key: Any, since: Since) -> Iterator[list[Row]]:
        return (self._history(table, key, base, end) for base, end in self._spans(since))

    def feeds_of(self, table: str, key: Any, since: Since) -> Iterator[list[Row]]:
        """The same as a reader without the app has it: every change that was logged."""
        for base, end in self._spans(since):
            first = self.commits[base]
            there = first.tables[table].get(key)
            rows: list[Row] = [] if there is None else [(first.version, "kept", key, there)]
            for commit in self.commits[base + 1 : end + 1]:
                rows += [row for row in self._changes(commit, table) if row[2] == key]
            yield rows

    def _history(self, table: str, key: Any, base: int, end: int) -> list[Row]:
        rows: list[Row] = []
        first = self.commits[base]
        last = first.tables[table].get(key)
        if last is not None:
            rows.append((first.version, "kept", key, last))
        for commit in self.commits[base + 1 : end + 1]:
            there = commit.tables[table].get(key)
            if there is None and last is not None:
                rows.append((commit.version, "deleted", key, None))
            elif there is not None and commit.is_load and last is None:
                rows.append((commit.version, "loaded", key, there))
            elif there is not None and not commit.is_load and key in commit.written[table]:
                rows.append((commit.version, "written", key, there))
            last = there
        return rows

    def changes(self, table: str, start: int, end: int | None, last: int) -> list[Row]:
        """The feed of versions start to end, for one who sees commits up to `last`; sorted."""
        rows: list[Row] = []
        for commit in self._between(start, end, last):
            rows += self._changes(commit, table)
        return sorted(rows, key=lambda row: row[:3])

    def _changes(self, commit: Commit, table: str) -> list[Row]:
        change = "loaded" if commit.is_load else "written"
        rows: list[Row] = [(commit.version, "deleted", key, None) for key in commit.deleted.get(table, ())]
        return rows + [(commit.version, change, k, commit.tables[table][k]) for k in commit.written.get(table, ())]

    def outcomes(self, start: int, end: int | None, last: int) -> list[Row]:
        return [row for commit in self._between(start, end, last) for row in commit.outcomes]

    def _between(self, start: int, end: int | None, last: int) -> list[Commit]:
        return [c for c in self.commits[1 : last + 1] if start <= c.version and (end is None or c.version <= end)]


def outcome_files(machine: Machine) -> dict[int, bytes]:
    """By version, as readers see them."""
    try:
        folder = machine.files.folder(OUTCOMES)
    except FileNotFoundError:
        return {}
    return {
        int(name.removeprefix("version-").removesuffix(".parquet")): file.data
        for name, file in folder.names.items()
        if name.startswith("version-") and isinstance(file, File)
    }


def segments(machine: Machine) -> list[int]:
    try:
        folder = machine.files.find(PATH / "log")
    except FileNotFoundError:
        return []
    assert isinstance(folder, Folder)
    return sorted(int(name[:12]) for name in folder.names if name.endswith(".seg"))
