"""Is a state directory sound? Every byte is read, every file is judged; nothing is locked, and nothing is written.

    verify.py      one file: do its bytes hold?
    scan.py        all together: are they all there, and do they belong together?
    judge.py       what is broken, what that costs, and what can be done (readable.py)
    leftovers.py   what holds no commits

A writer may commit and prune meanwhile, so that a look may see a file go. Only what two looks in a row see is told.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from penstock.check.findings import RESTORE, Finding, Report, Span, problem_of
from penstock.check.judge import Judgement
from penstock.check.leftovers import all_files, leftovers
from penstock.check.verify import BatchOutcomes, nobody, to_verify, verify
from penstock.commit.disk import Disk
from penstock.commit.identity import IDENTITY, LOG, SNAPSHOTS, read_identity
from penstock.commit.log import read_contents
from penstock.commit.scan import Scan, numbers, scan, segment_path
from penstock.errors import StateError

# Looks at a directory that changes, before what was seen twice in a row is believed.
LOOKS = 20


def check(disk: Disk, path: Path, told: BatchOutcomes = nobody) -> Report:
    """All of a directory. told: of the bytes that have been read, piece by piece."""
    bad = [name for name in to_verify(disk, path) if verify(disk, path, name, told) is not None]
    return judge(disk, path, bad)


def judge(disk: Disk, path: Path, bad: Collection[str] = (), told: BatchOutcomes = nobody) -> Report:
    """What a directory is worth. bad: files whose bytes did not hold; each is read again, as it may be another now."""
    found = {name: error for name in bad if (error := verify(disk, path, name, told)) is not None}
    before: set[tuple[str, str]] = set()
    for _ in range(LOOKS):
        report = _look(disk, path, found)
        problems = {(finding.file, finding.problem) for finding in report.findings if finding.problem}
        if not problems or problems == before:
            return report
        twice, before = problems & before, problems
    kept = tuple(f for f in report.findings if not f.problem or (f.file, f.problem) in twice)
    return replace(report, findings=kept)


def _look(disk: Disk, path: Path, bad: Mapping[str, StateError]) -> Report:
    spans: tuple[Span, ...] = ()
    try:
        seen = scan(disk, path)
        found = list(_foreign_identity(disk, path, seen))
        if not found:  # Else nothing else can be judged.
            judgement = Judgement(disk, seen, bad)
            found, spans = list(judgement.problems()), judgement.readable.spans()
    except StateError as error:
        found = list(_without_scan(disk, path, bad))
        if not found:
            found = [Finding(".", False, str(error), "mend that: until then nothing can be read")]
    found += leftovers(disk, path)
    problems = {finding.file: finding for finding in reversed(found)}
    sizes = dict(all_files(disk, path))
    sound = [Finding(name, size=size) for name, size in sizes.items() if name not in problems]
    wrong = [replace(finding, size=sizes.get(finding.file, 0)) for finding in problems.values()]
    return Report(path, tuple(sorted([*sound, *wrong], key=lambda finding: finding.file)), spans)


def _foreign_identity(disk: Disk, path: Path, seen: Scan) -> Iterator[Finding]:
    """penstock.json itself, where all segments agree that they are another directory's."""
    owners = set()
    for seq in seen.segments:
        with suppress(StateError):
            owners.add(read_contents(disk, segment_path(path, seq)).header.get("directory"))
    if len(owners) == 1 and None not in owners and seen.origin.directory not in owners:
        problem = f"is of directory {seen.origin.directory}, but every segment is of directory {owners.pop()}"
        yield Finding(IDENTITY, False, problem, "restore the one that belongs to them, and leave all else as it is")


def _without_scan(disk: Disk, path: Path, bad: Mapping[str, StateError]) -> Iterator[Finding]:
    """Without its identity, log or snapshots a directory cannot be read; each file is still what it is."""
    try:
        read_identity(disk, path, "app", "tables")
    except FileNotFoundError:
        yield Finding(IDENTITY, False, "is missing", f"{RESTORE}: until then nothing can be read")
    except StateError as found:
        yield Finding(IDENTITY, False, problem_of(found, path / IDENTITY), f"{RESTORE}: until then nothing can be read")
    for folder in (LOG, SNAPSHOTS):
        try:
            numbers(disk, path / folder)
        except StateError as found:
            yield Finding(folder, False, problem_of(found, path / folder), f"{RESTORE}: until then nothing can be read")
    yield from (Finding(name, False, problem_of(found, path / name), RESTORE) for name, found in bad.items())
