"""What is found in a state directory, file by file.

ok, no problem      sound
ok, a problem       it does not matter: what a dead writer left, a hint that is lost, a file that nothing needs
not ok              damage: versions cannot be read, or one more loss would cost some
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.commit.lines import RESTORE as RESTORE
from penstock.errors import StateError

Span = tuple[int, int]  # the first and the last version


@dataclass(frozen=True, slots=True)
class Finding:
    """What is known of one file."""

    file: str  # within the state directory
    ok: bool = True
    problem: str = ""
    remedy: str = ""
    size: int = 0

    def __str__(self) -> str:
        return f"{self.file}: {self.problem}; {self.remedy}" if self.problem else f"{self.file}: sound"


@dataclass(frozen=True, slots=True)
class Report:
    """A state directory: each of its files, and the versions that can be read."""

    path: Path
    findings: tuple[Finding, ...]
    versions: tuple[Span, ...]

    @property
    def damage(self) -> tuple[Finding, ...]:
        return tuple(found for found in self.findings if not found.ok)

    @property
    def notes(self) -> tuple[Finding, ...]:
        """What is odd, but does not matter."""
        return tuple(found for found in self.findings if found.ok and found.problem)

    @property
    def files(self) -> int:
        """How many are there: a finding may be of one that is missing."""
        return sum(1 for found in self.findings if not found.problem or found.size)

    @property
    def size(self) -> int:
        return sum(found.size for found in self.findings)


def problem_of(error: StateError, file: Path) -> str:
    """Of a sentence that begins with the file, and ends with a remedy, what lies between."""
    return str(error).partition("; ")[0].removeprefix(f"{file} ").replace(str(file), "it")


def versions(span: Span) -> str:
    return f"version {span[0]}" if span[0] == span[1] else f"versions {span[0]} to {span[1]}"
