"""Reports of the last batches, beside the log: what only the writer knows, for whoever looks from another process.

    reports     512 slots; the report of version v is in slot v % 512

    slot        crc32, as 8 hexadecimal digits; a space; JSON: {"commit": the hash of its commit, …}; spaces

A report says how long the stages of a batch took, which policy ran it and why, and counts its events. Nothing depends
on it: it is not synced, a torn or missing one is none, and it is believed only of the very commit whose hash it has.
Writing one is a single `pwrite`; where that fails there is none.
"""

from __future__ import annotations

import json
import os
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.commit.disk import PRIVATE
from penstock.commit.identity import REPORTS
from penstock.observe.report import BatchReport

SLOTS, SLOT = 512, 2048
_CRC = 9  # bytes before the JSON
# What a report tells beside the version's outcomes, which name the app, the query and the cause.
_KEPT = (
    "version",
    "policy",
    "why",
    "events",
    "committed",
    "aborted",
    "late",
    "held",
    "duplicate",
    "rejected",
    "changes",
)


class Reports:
    """Where a writer leaves them."""

    def __init__(self, state: Path) -> None:
        self._file = state / REPORTS

    def add(self, report: BatchReport, commit: str | None) -> None:
        told: dict[str, Any] = {"commit": commit} | {name: getattr(report, name) for name in _KEPT}
        told |= {"threads": report.threads, "seconds": {stage: round(s, 7) for stage, s in report.seconds.items()}}
        slot = _slot(told)
        if slot is None:
            return
        with suppress(OSError):
            file = os.open(self._file, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE)
            try:
                os.pwrite(file, slot, report.version % SLOTS * SLOT)
            finally:
                os.close(file)


def _slot(told: dict[str, Any]) -> bytes | None:
    text = json.dumps(told).encode()
    if len(text) > SLOT - _CRC:  # many reasons to abort, or a long word about the policy
        text = json.dumps(told | {"why": told["why"][:200], "aborted": None}).encode()
    if len(text) > SLOT - _CRC:
        return None
    return (b"%08x " % zlib.crc32(text) + text).ljust(SLOT)


def read_report(state: Path, version: int, commit: str | None) -> dict[str, Any] | None:
    """The report of a version, made by the commit with this hash; None where there is none."""
    try:
        file = os.open(state / REPORTS, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            slot = os.pread(file, SLOT, version % SLOTS * SLOT)
        finally:
            os.close(file)
    except OSError:
        return None
    text = slot[_CRC:].rstrip()
    if slot[:_CRC] != b"%08x " % zlib.crc32(text):
        return None
    try:
        told = json.loads(text)
    except ValueError:
        return None
    if commit is None or not isinstance(told, dict) or (told.get("version"), told.get("commit")) != (version, commit):
        return None
    return told
