"""Tasks that ask, while others write: beside a writer through its database, and in processes of their own.

A question is chosen, asked and judged. A refusal needs a cause: what was asked for is not retained, is not there yet,
was logged as its input (where the app is not at hand), or an operation of this very task was made to fail; of a
database also that it was closed or has failed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.commit import Journal
from penstock.errors import PenstockError
from penstock.replica.directory import Directory
from simulation.app import TABLES
from simulation.disk import SimulatedDisk
from simulation.oracle import PATH, Oracle, Since
from simulation.scheduler import Process
from simulation.session import Session, outcomes, rows

KEYS = {"Account": ("a", "b", "l1"), "Note": (1, 2)}


class Asker:
    """What both kinds of readers share."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        self.choices = oracle.machine.choices
        self.seen = 0  # the newest version that it was told of: it never goes back

    def questions(self) -> list[Callable[[], None]]:
        raise NotImplementedError

    def work(self, count: int) -> None:
        asked = self.questions()
        for _ in range(count):
            question = self.choices.of(asked)
            self.oracle.machine.note(f"asks {question.__name__}")
            question()
            self.after()
            self.oracle.machine.scheduler.sleep(self.choices.between(1, 80))

    def after(self) -> None:
        """Each question."""

    def ask(self, what: str, since: Since, get: Callable[[], Any], excused: Callable[[], bool]) -> Any:
        """The answer, or None where it was refused with a cause."""
        try:
            return get()
        except PenstockError as error:
            caused = self.oracle.faulted(since) or not since.opened or excused()
            self.oracle.check(caused, f"{what} is refused without a cause: {error}")
            self.oracle.machine.note(f"  refused: {error}")
            return None

    def some_version(self) -> int:
        """One that there is, or nearly."""
        newest = self.oracle.newest.version
        return max(newest + 1 - self.choices.below(7), 0)

    def not_there(self, version: int, since: Since) -> bool:
        """Whether a version may be refused: it is too old, or too new."""
        return version < self.oracle.floor or version > self.oracle.commits[since.acked].version

    def went_on(self, version: int) -> None:
        self.oracle.check(version >= self.seen, f"version {version} after version {self.seen}")
        self.seen = version

    def judge_view(self, version: int | None, view: Any, since: Since) -> None:
        """All tables are of one and the same commit."""
        oracle, given = self.oracle, {name: rows(table) for name, table in view.tables.items()}
        seqs = oracle.ends(since) if version is None else oracle.seqs_of(version, since.acked)
        right = any(
            commit.version == view.version and {name: commit.rows(name) for name in TABLES} == given
            for commit in (oracle.commits[seq] for seq in seqs)
        )
        oracle.check(right, f"the view of version {version} is {view.version}: {given}, none of commits {list(seqs)}")

    def judge_table(self, name: str, version: int | None, found: Any, since: Since) -> None:
        oracle, given = self.oracle, rows(found)
        seqs = oracle.ends(since) if version is None else oracle.seqs_of(version, since.acked)
        oracle.check(
            any(oracle.commits[seq].rows(name) == given for seq in seqs),
            f"{name} at version {version} is {given}, which is none of commits {list(seqs)}",
        )


class Beside(Asker):
    """Of a database, in its writer's process."""

    def __init__(self, session: Session) -> None:
        super().__init__(session.oracle)
        self.handle, self.db = session.handle, session.handle.db

    def questions(self) -> list[Callable[[], None]]:
        return [self.view, self.old_table, self.history, self.stored, self.outcomes]

    def useless(self) -> bool:
        handle = self.handle
        return handle.closed or handle.broken or handle.rivals or handle.shaky

    def view(self) -> None:
        since = self.oracle.since(self.handle)
        view = self.ask("the newest view", since, self.db.view, self.useless)
        if view is not None:
            self.went_on(view.version)
            self.judge_view(None, view, since)

    def old_table(self) -> None:
        since, name, version = self.oracle.since(self.handle), self.choices.of(tuple(TABLES)), self.some_version()
        found = self.ask(
            f"{name} at version {version}",
            since,
            lambda: self.db.table(name, version),
            lambda: self.useless() or self.not_there(version, since),
        )
        if found is not None:
            self.judge_table(name, version, found, since)

    def history(self) -> None:
        oracle, since, name = self.oracle, self.oracle.since(self.handle), self.choices.of(tuple(TABLES))
        key = self.choices.of(KEYS[name])
        found = self.ask(f"the history of {name} {key!r}", since, lambda: self.db.history(name, key), self.useless)
        if found is not None:
            given = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
            possible = oracle.histories(name, key, since)
            oracle.check(given in possible, f"the history of {name} {key!r} is {given}")

    def stored(self) -> None:
        oracle, since = self.oracle, self.oracle.since(self.handle)
        known = oracle.commits[since.acked].last_id
        id = max((0 if known is None else known) + 1 - self.choices.below(5), 0)

        def excused() -> bool:
            commit, newest = oracle.find(id), oracle.newest.last_id
            never = commit is None and newest is not None and id < newest  # between two ids
            return self.useless() or never or (commit is not None and commit.version <= oracle.floor)

        asked = object()
        found = self.ask(f"batch {id}", since, lambda: (asked, self.db.stored(id)), excused)
        if found is None:
            return
        commit = oracle.find(id)
        if found[1] is None:
            there = commit is not None and commit.seq <= since.acked
            oracle.check(not there, f"batch {id} is not stored, but it is commit {commit and commit.seq}")
        else:
            oracle.check(
                commit is not None and outcomes(found[1]) == list(commit.outcomes),
                f"batch {id} has outcomes {outcomes(found[1])}",
            )

    def outcomes(self) -> None:
        oracle, since, version = self.oracle, self.oracle.since(self.handle), self.some_version()
        found = self.ask(
            f"outcomes of version {version}",
            since,
            lambda: self.db.outcomes(version),
            lambda: self.useless() or self.not_there(version, since) or version <= oracle.floor,
        )
        commit = oracle.of_version(version)
        if found is not None:
            oracle.check(
                commit is not None and outcomes(found) == list(commit.outcomes),
                f"outcomes of version {version} are {outcomes(found)}",
            )


class Elsewhere(Asker):
    """Of the directory, in a process of its own, without the app."""

    def __init__(self, oracle: Oracle, process: Process) -> None:
        super().__init__(oracle)
        self.disk = SimulatedDisk(oracle.machine, process)
        self.directory: Directory | None = None
        self.journal: Journal | None = None

    def questions(self) -> list[Callable[[], None]]:
        tables = [self.table, self.old_table, self.view, self.history]
        return [self.newest, *tables, self.changes, self.outcomes, self.span, self.read_only]

    def after(self) -> None:
        self.oracle.check(not self.disk.open_files, f"{self.disk.open_files} files are left open")

    def there(self, since: Since) -> Directory | None:
        if self.directory is None:
            self.directory = self.ask("the directory", since, lambda: Directory(PATH, self.disk), lambda: False)
        return self.directory

    def logged_as_input(self, upto: int | None = None) -> bool:
        return any(
            c.seq and not c.is_load and c.asked.log == "input"
            for c in self.oracle.commits
            if upto is None or c.version <= upto
        )

    def newest(self) -> None:
        since = self.oracle.since()
        directory = self.there(since)
        if directory is None:
            return
        found = self.ask("the newest version", since, directory.newest, lambda: False)
        if found is not None:
            commits = self.oracle.commits
            self.oracle.check(
                found.commit in self.oracle.ends(since) and commits[found.commit].version == found.version,
                f"the newest is {found}, but commits {since.acked} to {self.oracle.linked} were",
            )
            self.went_on(found.version)

    def table(self) -> None:
        since, name = self.oracle.since(), self.choices.of(tuple(TABLES))
        directory = self.there(since)
        if directory is not None:
            found = self.ask(f"{name}", since, lambda: directory.table(name), self.logged_as_input)
            if found is not None:
                self.judge_table(name, None, found, since)

    def old_table(self) -> None:
        since, name, version = self.oracle.since(), self.choices.of(tuple(TABLES)), self.some_version()
        directory = self.there(since)
        if directory is not None:
            found = self.ask(
                f"{name} at version {version}",
                since,
                lambda: directory.table(name, version),
                lambda: self.not_there(version, since) or self.logged_as_input(version),
            )
            if found is not None:
                self.judge_table(name, version, found, since)

    def view(self) -> None:
        since = self.oracle.since()
        directory = self.there(since)
        if directory is not None:
            found = self.ask("the newest view", since, directory.view, self.logged_as_input)
            if found is not None:
                self.judge_view(None, found, since)

    def history(self) -> None:
        oracle, since, name = self.oracle, self.oracle.since(), self.choices.of(tuple(TABLES))
        directory, key = self.there(since), self.choices.of(KEYS[name])
        if directory is None:
            return
        where = {TABLES[name][0]: [key]}
        found = self.ask(
            f"the history of {name} {key!r}", since, lambda: directory.history(name, where), self.logged_as_input
        )
        if found is not None:
            given = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
            possible = oracle.feeds_of(name, key, since)
            oracle.check(given in possible, f"the history of {name} {key!r} is {given}")

    def feed(self) -> tuple[int | None, int | None]:
        newest = self.oracle.newest.version
        start = None if self.choices.below(2) else max(newest + 1 - self.choices.below(6), 0)
        end = None if self.choices.below(2) else max(newest - self.choices.below(3), 0)
        return start, end if start is None or end is None or start <= end + 1 else None

    def not_fed(self, start: int | None, end: int | None, since: Since) -> bool:
        oracle = self.oracle
        newest = oracle.commits[since.acked].version
        if (start is not None and start > newest + 1) or (end is not None and end > newest):
            return True
        if start is None:
            # From the oldest on: which a pruning may take away meanwhile, or which is behind the end asked for.
            return oracle.pruned > since.pruned or (end is not None and end <= oracle.floor)
        return start <= oracle.floor

    def judge_feed(
        self, given: Any, start: int | None, end: int | None, since: Since, feed: Callable[..., Any], what: str
    ) -> None:
        starts = range(self.oracle.floor + 2) if start is None else (start,)
        possible = any(given == feed(first, end, last) for first in starts for last in self.oracle.ends(since))
        self.oracle.check(possible, f"{what} from {start} to {end} are {given}")

    def changes(self) -> None:
        since, name, (start, end) = self.oracle.since(), self.choices.of(tuple(TABLES)), self.feed()
        directory = self.there(since)
        if directory is None:
            return
        found = self.ask(
            f"changes of {name} from {start} to {end}",
            since,
            lambda: directory.changes(name, start, end),
            lambda: self.not_fed(start, end, since) or self.logged_as_input(end),
        )
        if found is not None:
            given = sorted(zip(*(column.to_pylist() for column in found.columns), strict=True), key=lambda row: row[:3])
            self.judge_feed(
                given, start, end, since, lambda a, z, last: self.oracle.changes(name, a, z, last), "changes"
            )

    def outcomes(self) -> None:
        oracle, since, (start, end) = self.oracle, self.oracle.since(), self.feed()
        directory = self.there(since)
        if directory is None:
            return
        # Their columns are those of a batch that is retained: there may be none but loads.
        none = all(c.is_load for c in oracle.commits[1:] if c.version > oracle.floor)
        found = self.ask(
            f"outcomes from {start} to {end}",
            since,
            lambda: directory.outcomes(start, end),
            lambda: none or self.not_fed(start, end, since),
        )
        if found is not None:
            self.judge_feed(outcomes(found), start, end, since, oracle.outcomes, "outcomes")

    def span(self) -> None:
        """The last version is always there, whole; unless it is being pruned: two come after it."""
        since = self.oracle.since()
        directory = self.there(since)
        if directory is None:
            return
        found = self.ask("a span", since, directory.span, lambda: self.not_fed(None, None, since))
        if found is not None:
            after, upto = found
            self.oracle.check(upto.commit in self.oracle.ends(since), f"a span up to {upto}")
            self.oracle.check(after.version <= max(self.oracle.floor, 0), f"a span after {after}")

    def read_only(self) -> None:
        oracle, since = self.oracle, self.oracle.since()
        self.journal = self.ask(
            "a journal to read", since, lambda: Journal.read_only(PATH, disk=self.disk), lambda: False
        )
        if self.journal is not None:
            seq = self.journal.seq
            oracle.check(seq in oracle.ends(since), f"a reader's journal is at commit {seq}")
            commit = oracle.commits[seq]
            found = self.journal.version, self.journal.last_id
            oracle.check(found == (commit.version, commit.last_id), f"a reader's journal is at {found}")


def read_beside(session: Session, k: int) -> None:
    """Begins to read beside a writer."""
    machine = session.oracle.machine
    asker = Beside(session)
    count = machine.choices.between(1, 4)
    machine.scheduler.spawn(session.process, f"{session.process.name} reader {k}", lambda: asker.work(count))
