"""What a stream keeps beside the state, checked: lists of source files, the note of its end, Spark's checkpoint, and
the outcomes. No Spark is needed for it.

    files that batches came from     with log="source", what the log says of them: they are the log
    sources/EVENT.list               each line's checksum, and whose list it is
    sources/EVENT.topic, sinks       their checksums, and whose they are
    drained                          its checksum
    checkpoint/metadata              the query whose state this is
    checkpoint/offsets, commits      Hadoop's checksums; and that the next batch is the one that the state waits for
    OUTCOMES/_outcomes.list          each file's checksum

Spark needs the newest two plans and the newest commit of its checkpoint; of the older ones nothing is read again.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.check.findings import RESTORE, Finding, problem_of
from penstock.check.leftovers import names
from penstock.commit import Disk
from penstock.commit.identity import DRAINED, SINKS, directory_of
from penstock.commit.log import read_contents
from penstock.commit.scan import Entry, scan, segment_path
from penstock.errors import StateError
from penstock.execute.source_files import SourceFile
from penstock.publish.manifest import check_outcomes
from penstock.spark.checkpoint import CHECKPOINT, read_note
from penstock.spark.drained import DrainNote
from penstock.spark.kafka.sink_note import read_sink_note
from penstock.spark.kafka.topic_note import SUFFIX as TOPIC
from penstock.spark.kafka.topic_note import read_topic_note
from penstock.spark.listing import OLD_SUFFIX, SOURCES, SUFFIX, FileList
from penstock.store.stream import StreamState

OFFSETS, COMMITS, METADATA = "offsets", "commits", "metadata"
# Looks at what a query changes meanwhile, before it is believed.
LOOKS = 20
_FITS = "restore the checkpoint and the state directory from one backup, or give the stream a new directory for both"


def check_beside(state: Path, disk: Disk | None = None) -> list[Finding]:
    """All that a stream keeps in the state directory. A query may be running: what is seen twice is believed."""
    disk = disk or Disk()
    parts = (_logged_by_name, _sources, _sinks, _drained, _checkpoint)
    return _seen_twice(lambda: [finding for part in parts for finding in part(disk, state)])


def check_outcome_files(path: Path, state: Path, disk: Disk | None = None) -> list[Finding]:
    """The directory of outcomes; files are named by their whole path."""
    disk = disk or Disk()
    directory = _directory(disk, state)

    def look() -> list[Finding]:
        sentences, there = list(check_outcomes(path, directory, disk)), names(disk, path)
        found = {finding.file: finding for finding in (_of_sentence(said, path, there) for said in sentences)}
        return [*found.values(), *(Finding(str(path / name)) for name in there if str(path / name) not in found)]

    return [replace(finding, size=_size(disk, Path(finding.file))) for finding in _seen_twice(look)]


def _seen_twice(look: Callable[[], list[Finding]]) -> list[Finding]:
    before: set[tuple[str, str]] = set()
    for _ in range(LOOKS):
        found = look()
        problems = {(finding.file, finding.problem) for finding in found if finding.problem}
        if not problems or problems == before:
            return found
        twice, before = problems & before, problems
    return [finding for finding in found if not finding.problem or (finding.file, finding.problem) in twice]


def _of_sentence(said: str, path: Path, there: list[str]) -> Finding:
    """Of "PATH is damaged: ...; what to do"."""
    problem, _, remedy = said.partition("; ")
    missing = re.match(rf"{re.escape(str(path))}/(\S+) is missing", problem)
    known = [str(path / name) for name in (*there, *(missing.groups() if missing else ()))]
    file = max((file for file in known if problem.startswith(f"{file} ")), key=len, default=str(path))
    ok, remedy = remedy.startswith("the next start"), remedy or "name the one that the stream writes to"
    return Finding(file, ok, problem.removeprefix(f"{file} "), remedy)


def _directory(disk: Disk, state: Path) -> str | None:
    """The identity of the state directory; None where it is not known, which is told elsewhere."""
    with suppress(StateError):
        return directory_of(disk, state)
    return None


# -- lists and the note ---------------------------------------------------------------------


def _logged_by_name(disk: Disk, state: Path) -> Iterator[Finding]:
    """Files that segments name in the place of their events; by their whole path."""
    try:
        seen = scan(disk, state)
        headers = {
            seq: read_contents(disk, segment_path(state, seq)).header
            for seq, found in seen.segments.items()
            if isinstance(found, Entry)
        }
    except StateError:  # Told elsewhere.
        return
    base = max(seen.sound, default=0)
    for seq, header in sorted(headers.items()):
        for path, size, crc in (one for noted in header.get("files", {}).values() for one in noted):
            try:
                problem = (
                    ""
                    if SourceFile.of(path, Path(path).read_bytes()).note() == [path, size, crc]
                    else "is another one by now"
                )
            except OSError as error:
                problem = f"cannot be read: {os.strerror(error.errno or 0).lower()}"
            if not problem:
                yield Finding(path, size=size)
            elif seq > base:
                yield Finding(
                    path, False, problem, f"put it back: until then version {header['version']} is not to be had"
                )
            else:
                yield Finding(
                    path, True, problem, f"only version {header['version']}, before the newest snapshot, needs it"
                )


def _sources(disk: Disk, state: Path) -> Iterator[Finding]:
    for name in names(disk, state / SOURCES):
        file = state / SOURCES / name
        if file.suffix == TOPIC:
            yield _topic(disk, file)
            continue
        if file.suffix not in (SUFFIX, OLD_SUFFIX):
            yield Finding(f"{SOURCES}/{name}", True, "is not Penstock's", "nothing reads it; move it away")
            continue
        try:
            FileList(file.with_suffix(SUFFIX), file.stem, _directory(disk, state), disk).names()
        except StateError as error:
            yield Finding(f"{SOURCES}/{name}", False, problem_of(error, file), f"{RESTORE}: the stream cannot go on")
        else:
            yield Finding(f"{SOURCES}/{name}", size=_size(disk, file))
    for event, count in _files_read(disk, state / CHECKPOINT / OFFSETS).items():
        file = state / SOURCES / f"{event}{SUFFIX}"
        with suppress(StateError):  # Told above.
            known = len(FileList(file, event, None, disk).names())
            if known < count:
                problem = f"names {known} files, but {count} have been read" if known else "is missing"
                yield Finding(f"{SOURCES}/{file.name}", False, problem, f"{RESTORE}: the stream cannot go on")


def _topic(disk: Disk, file: Path) -> Finding:
    """The note of where a stream began to read a topic, or of how far one is that outcomes go to."""
    name = f"{file.parent.name}/{file.name}"
    try:
        if file.parent.name == SOURCES:
            read_topic_note(file, disk)
        else:
            read_sink_note(disk, file)
    except StateError as error:
        return Finding(name, False, problem_of(error, file), f"{RESTORE}: the stream cannot go on")
    return Finding(name, size=_size(disk, file))


def _sinks(disk: Disk, state: Path) -> Iterator[Finding]:
    for name in names(disk, state / SINKS):
        if name.endswith(TOPIC):
            yield _topic(disk, state / SINKS / name)
        else:
            yield Finding(f"{SINKS}/{name}", True, "is not Penstock's", "nothing reads it; move it away")


def _files_read(disk: Disk, folder: Path) -> dict[str, int]:
    """Of each source of files the number that Spark has planned, by its newest offsets; other sources stand among
    them."""
    try:
        data = read_note(folder / str(_numbers(disk, folder)[-1]))
        noted = [json.loads(line) for line in data.decode().splitlines()[2:] if line != "-"]
        return {str(n["event"]): int(n["files"]) for n in noted if isinstance(n, dict) and "files" in n}
    except (FileNotFoundError, StateError, ValueError, TypeError, KeyError, IndexError):
        return {}  # Notes of another make; or damage, which is told elsewhere.


def _drained(disk: Disk, state: Path) -> Iterator[Finding]:
    try:
        DrainNote(state, disk).check()
    except StateError as error:
        if str(state / DRAINED) in str(error):  # Else penstock.json is damaged, which is told as that.
            remedy = f"{RESTORE}, or delete it where outcomes may be handed on twice"
            yield Finding(DRAINED, False, problem_of(error, state / DRAINED), remedy)


# -- Spark's checkpoint ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _State:
    """What the state says of its stream."""

    source: str | None
    last_id: int | None

    @classmethod
    def read(cls, disk: Disk, state: Path) -> _State | None:
        """None where the state cannot be read."""
        with suppress(StateError):
            seen = scan(disk, state)
            _, newest = seen.newest
            batches = [s for s, found in seen.segments.items() if isinstance(found, Entry) and found.kind == "batch"]
            if batches:
                header = read_contents(disk, segment_path(state, max(batches))).header
            else:
                header = seen.sound[max(seen.sound)].header if seen.sound else {}
            return cls(StreamState.read(header, {}).source, newest.last_id)
        return None


def _checkpoint(disk: Disk, state: Path) -> Iterator[Finding]:
    known, folder = _State.read(disk, state), state / CHECKPOINT
    if not disk.exists(folder):
        if known is not None and known.source is not None:
            problem = f"is missing, and the state was written by query {known.source}"
            yield Finding(CHECKPOINT, False, problem, f"{RESTORE}: without it the stream cannot go on")
        return
    yield from _metadata(folder, known)
    numbered = {kind: _numbers(disk, folder / kind) for kind in (OFFSETS, COMMITS)}
    needed = {
        *((OFFSETS, number) for number in numbered[OFFSETS][-2:]),
        *((COMMITS, number) for number in numbered[COMMITS][-1:]),
    }
    for kind, numbers in numbered.items():
        yield from (_note(folder / kind / str(number), (kind, number) in needed) for number in numbers)
    if known is not None and _State.read(disk, state) == known:  # Else a query runs: what was read is not of one time.
        yield from _fits(numbered[OFFSETS], numbered[COMMITS], known)


def _metadata(folder: Path, known: _State | None) -> Iterator[Finding]:
    name, remedy = f"{CHECKPOINT}/{METADATA}", f"{RESTORE}: without it the stream cannot go on"
    try:
        found = str(json.loads(read_note(folder / METADATA))["id"])
    except FileNotFoundError:
        if known is not None and known.source is not None:
            yield Finding(name, False, "is missing", remedy)
    except StateError as error:
        yield Finding(name, False, problem_of(error, folder / METADATA), remedy)
    except (ValueError, TypeError, KeyError):
        yield Finding(name, False, "is damaged: it does not say which query's it is", remedy)
    else:
        if known is not None and known.source not in (None, found):
            problem = f"is of query {found}, but the state was written by query {known.source}"
            yield Finding(name, False, problem, _FITS)
        else:
            yield Finding(name)


def _note(file: Path, needed: bool) -> Finding:
    name = f"{CHECKPOINT}/{file.parent.name}/{file.name}"
    try:
        data = read_note(file)
        problem = "" if data.startswith(b"v1") else "is damaged: it does not begin as Spark's notes do"
    except FileNotFoundError:
        return Finding(name)  # Spark has removed it since it was listed.
    except StateError as error:
        problem, data = problem_of(error, file), b""
    if not problem:
        return Finding(name, size=len(data))
    if needed:
        remedy = f"Spark cannot go on with it: if only .{file.name}.crc is damaged, delete that one; else {_FITS}"
        return Finding(name, False, problem, remedy)
    return Finding(name, True, problem, "nothing reads it again; Spark removes it in time")


def _fits(offsets: list[int], commits: list[int], known: _State) -> Iterator[Finding]:
    """Whether the batch that Spark sends next is one that the engine takes: the last again, or the one after it."""
    planned, done, last = max(offsets, default=-1), max(commits, default=-1), known.last_id
    if known.source is None and last is not None:
        return  # Its batches were not a stream's.
    expected = 0 if last is None else last + 1
    following = planned + 1 if done >= planned else planned
    name = f"{CHECKPOINT}/{OFFSETS}"
    if following > expected:
        problem = f"is at batch {following}, but the state waits for batch {expected}"
        yield Finding(name, False, problem, _FITS)
    elif following < expected - 1 or (following == expected - 1 and done >= planned):
        problem = f"lacks the plans of batches from {following} on, which the state has run up to {last}"
        yield Finding(name, False, problem, _FITS)


def _numbers(disk: Disk, folder: Path) -> list[int]:
    return sorted(int(name) for name in names(disk, folder) if name.isdigit())


def _size(disk: Disk, file: Path) -> int:
    try:
        return disk.stat(file).st_size
    except (FileNotFoundError, StateError):
        return 0
