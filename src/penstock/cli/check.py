"""`penstock check`: a state directory read whole, and what is wrong with it, while a writer may be at work."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from penstock.check.check import check
from penstock.check.findings import Finding, Report, versions
from penstock.check.verify import to_verify
from penstock.cli.pipeline import app_of
from penstock.commit import Disk
from penstock.commit.identity import IDENTITY, LOG
from penstock.errors import StateError
from penstock.replica.broken import BrokenRecord, broken_records
from penstock.replica.directory import Directory
from penstock.spark.check import check_beside, check_outcome_files

# Records that break a check, as they are printed; in JSON there are all.
SHOWN = 20


def run_check(path: Path, *, outcomes: Path | None, app: str | None, as_json: bool) -> bool:
    """Prints what was found; whether nothing is damaged. app: whose checks the records are held against as well."""
    disk, path = Disk(), path.absolute()
    there = _names(disk, path)
    if not {IDENTITY, LOG} & set(there):
        raise StateError(f"{path} is not a state directory: it has no {IDENTITY} and no {LOG}; name one that has")
    report = _checked(disk, path)
    beside = check_beside(path, disk)
    if outcomes is not None:
        beside += check_outcome_files(outcomes.absolute(), path, disk)
    report = replace(report, findings=_together(report.findings, beside))
    broken = None if app is None else list(broken_records(app_of(app).plan, Directory(path)))
    _show(report, broken, as_json)
    return not report.damage


def _names(disk: Disk, path: Path) -> list[str]:
    try:
        return disk.listdir(path)
    except FileNotFoundError as error:
        raise StateError(f"there is no directory {path}; name the state directory of an app") from error


def _checked(disk: Disk, path: Path) -> Report:
    """The whole of it read; on a terminal with a bar that tells how far it is."""
    columns = TextColumn("reading"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=sum(to_verify(disk, path).values()))
        return check(disk, path, lambda read: progress.advance(task, read))


def _together(findings: tuple[Finding, ...], beside: list[Finding]) -> tuple[Finding, ...]:
    """One finding a file: the one that says more."""
    found = {finding.file: finding for finding in (*findings, *beside)}
    found |= {finding.file: finding for finding in findings if finding.problem}
    return tuple(found.values())


def _show(report: Report, broken: list[BrokenRecord] | None, as_json: bool) -> None:
    wrong = [finding for finding in report.findings if finding.problem]
    if as_json:
        told = {
            "directory": str(report.path),
            "sound": not report.damage,
            "files": report.files,
            "bytes": report.size,
            "versions": [list(span) for span in report.versions],
            "findings": [asdict(finding) for finding in wrong],
        }
        if broken is not None:
            told["broken"] = [asdict(record) for record in broken]
        print(json.dumps(told))
        return
    console = Console()
    if wrong:
        table = Table("file", "what is wrong", "what to do")
        for finding in sorted(wrong, key=lambda found: found.ok):
            words = (escape(word) for word in (finding.file, finding.problem, finding.remedy))
            table.add_row(*words, style="" if finding.ok else "red")
        console.print(table)
    console.print(_summary(report), markup=False, highlight=False, soft_wrap=True)
    if broken is not None:
        _show_broken(console, broken)


def _show_broken(console: Console, broken: list[BrokenRecord]) -> None:
    if broken:
        table = Table("table", "key", "check that it breaks")
        for record in broken[:SHOWN]:
            table.add_row(*map(escape, (record.table, record.key, record.check)))
        console.print(table)
    count, more = len(broken), f", of which {SHOWN} are shown" if len(broken) > SHOWN else ""
    told = f"{count:,} record{' breaks' if count == 1 else 's break'} a check{more}"
    console.print(told if broken else "every record holds the app's checks", markup=False, highlight=False)


def _summary(report: Report) -> str:
    files = report.files
    verdict = f"{len(report.damage)} damaged" if report.damage else "sound"
    spans = " and ".join(versions(span) for span in report.versions)
    readable = f"{spans} can be read" if spans else "no version can be read"
    return f"{files:,} file{'' if files == 1 else 's'}, {_bytes(report.size)}: {verdict}; {readable}"


def _bytes(size: int) -> str:
    amount, unit = float(size), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 1000:
            break
        amount, unit = amount / 1000, larger
    return f"{size} B" if unit == "B" else f"{amount:.1f} {unit}"
