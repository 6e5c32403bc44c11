"""The last batches: what became of their events, how far the clock is, and how long each stage took.

Counts are those of the outcomes in the log. The writer's own report, where it is there for this very commit, has them
already, and alone knows stages and policy (store/reports.py).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.commit import Disk
from penstock.errors import StateError
from penstock.execute.uncompiled import EPOCH, MICROSECOND
from penstock.inspect.commits import Commit, Commits
from penstock.store.outcome_codec import from_log
from penstock.store.reports import read_report
from penstock.store.segment import DELETED, HELD, OUTCOMES, WRITTEN

LIMIT, LIMIT_MAX = 30, 500


@dataclass(frozen=True, slots=True)
class Counts:
    """What became of a batch's events."""

    events: int
    committed: int
    aborted: dict[str, int]  # by reason
    late: int
    rejected: int
    duplicate: int
    changes: int  # records written or deleted
    held: int | None  # events that wait behind it; None: as many as before it
    stages: dict[str, float] | None = None  # in ms; None where its writer has left no report
    policy: str | None = None
    why: str | None = None
    threads: int | None = None


class Batches:
    def __init__(self, path: Path, disk: Disk | None = None) -> None:
        self.commits = Commits(path, disk)
        self._counts: dict[str, Counts] = {}  # by the commit's hash
        self._ts: Callable[[int], Any] | None = None

    def last(self, upto: int | None = None, limit: int = LIMIT, before: int | None = None) -> list[dict[str, Any]]:
        """The newest first. upto: as of this version; before: only older ones."""
        upto = upto if before is None else min(before - 1, before - 1 if upto is None else upto)
        found = list[Commit]()
        for commit in self.commits.batches(upto):
            if len(found) == limit:
                break
            found.append(commit)
        return [self.told(commit) for commit in found]

    def one(self, version: int) -> dict[str, Any]:
        return self.told(self.commits.of_version(version))

    def told(self, commit: Commit) -> dict[str, Any]:
        header, counts = commit.header, self.counts(commit)
        stream = header.get("stream", {})
        return {
            "version": commit.version,
            "id": header.get("id"),
            "cause": header.get("cause", "batch"),
            "query": stream.get("source"),
            "committed_at": commit.committed_at,
            "events": counts.events,
            "committed": counts.committed,
            "aborted": counts.aborted,
            "late": counts.late,
            "rejected": counts.rejected,
            "duplicate": counts.duplicate,
            "held": self._held(commit),
            "changes": counts.changes,
            "bytes": commit.bytes,
            "log": header.get("log"),
            # Event times: the highest ts that has arrived, and the highest that has run.
            "highest": self.time(stream.get("highest")),
            "clock": self.time(stream.get("frontier")),
            "watermark": self._span(stream.get("watermark")),
            "policy": counts.policy,
            "why": counts.why,
            "threads": counts.threads,
            "ms": None if counts.stages is None else round(sum(counts.stages.values()), 3),
            "ms_by_stage": counts.stages,
        }

    def counts(self, commit: Commit) -> Counts:
        found = self._counts.get(commit.hash)
        if found is None:
            found = self._reported(commit) or self._counted(commit)
            if len(self._counts) > LIMIT_MAX * 4:
                self._counts.clear()
            self._counts[commit.hash] = found
        return found

    def _reported(self, commit: Commit) -> Counts | None:
        told = read_report(self.commits.path, commit.version, commit.hash)
        if told is None:
            return None
        stages = {stage: round(1000 * seconds, 3) for stage, seconds in told["seconds"].items()}
        if told["aborted"] is None:  # there was no room for it
            counted = self._counted(commit)
            return replace(counted, held=told["held"], stages=stages, policy=told["policy"], why=told["why"])
        return Counts(
            told["events"],
            told["committed"],
            told["aborted"],
            told["late"],
            told["rejected"],
            told["duplicate"],
            told["changes"],
            told["held"],
            stages,
            told["policy"],
            told["why"],
            told["threads"],
        )

    def _counted(self, commit: Commit) -> Counts:
        kinds = [name for name in commit.parts if name.partition(":")[0] in (WRITTEN, DELETED, HELD)]
        segment = self.commits.read(commit, [OUTCOMES, *kinds])
        rows: dict[str, int] = {}
        for name in kinds:
            kind, _, table = name.partition(":")
            if not table.startswith("$"):  # timers are no records
                rows[kind] = rows.get(kind, 0) + segment.parts[name].num_rows
        by, aborted = dict[str, int](), dict[str, int]()
        outcomes = segment.parts.get(OUTCOMES)
        if outcomes is not None:
            by = _count(outcomes.column("status"))
            aborts = outcomes.filter(pc.equal(outcomes.column("status").cast(pa.string()), "aborted"))
            aborted = _count(aborts.column("reason"))
        unchanged = commit.header.get("stream", {}).get("held") == "unchanged"
        return Counts(
            sum(by.values()),
            by.get("committed", 0),
            aborted,
            by.get("late", 0),
            by.get("rejected", 0),
            by.get("duplicate", 0),
            rows.get(WRITTEN, 0) + rows.get(DELETED, 0),
            None if unchanged else rows.get(HELD, 0),
        )

    def _held(self, commit: Commit) -> int | None:
        for one in self.commits.batches(commit.version):
            held = self.counts(one).held
            if held is not None:
                return held
        return None  # what held them first is not retained any more

    def outcomes(self, commit: Commit) -> pa.Table | None:
        """None of a version that ran no events."""
        found = self.commits.read(commit, [OUTCOMES]).parts.get(OUTCOMES)
        return None if found is None else from_log(found, commit.version)

    def time(self, at: int | None) -> Any:
        """A place in event time, as the app has it."""
        if at is None:
            return None
        if self._ts is None:
            try:
                kind = self.commits.directory.outcomes_schema().field("ts").type
            except (StateError, KeyError):
                return at
            self._ts = _moment if pa.types.is_timestamp(kind) else int
        return self._ts(at)

    def _span(self, delay: int | None) -> Any:
        if delay is None or self.time(0) == 0:
            return delay
        try:
            return dt.timedelta(microseconds=delay)
        except OverflowError:  # it lets nothing run
            return None


def _moment(at: int) -> Any:
    try:
        return EPOCH + at * MICROSECOND
    except OverflowError:
        return at


def _count(column: pa.ChunkedArray) -> dict[str, int]:
    found = pc.value_counts(column.cast(pa.string())).to_pylist()
    return {str(one["values"]): one["counts"] for one in found}
