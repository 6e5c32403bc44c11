"""A writer's own check of its directory, slowly, beside its commits: what lies still for long may rot unseen.

    open ── some minutes ──► pass ────────── hours ──────────► pass ──►
                             each file once, in any order, at RATE

A commit begins a pass that is due, so that a job of a few minutes pays nothing, and a thread lives no longer than its
pass. A pass reads each file that it finds at its beginning (verify.py); what is pruned meanwhile is passed over. As
soon as one does not hold, and once at the end, the directory is judged as a whole (judge.py), and what is new is told.

Invariants:
- Nothing is locked or written, and no commit waits: the thread shares nothing with the writer but the disk.
- Whatever goes wrong here stays here: the writer goes on.
- `stop` returns within a piece of a file.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.check.check import judge
from penstock.check.findings import Finding
from penstock.check.verify import to_verify, verify
from penstock.commit.disk import Disk
from penstock.errors import StateError

# Hours between the beginnings of two passes, unless the opener says otherwise.
SCRUB = 24.0
# Bytes a second: a tenth of what a slow disk gives, and 700 GB a day.
RATE = 8e6
# A job that is over by then is checked by whoever looks.
FIRST_S = 300.0


class Scrub:
    def __init__(
        self,
        disk: Disk,
        path: Path,
        hours: float | None,
        report: Callable[[tuple[Finding, ...]], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], bool] | None = None,
        chance: random.Random | None = None,
    ) -> None:
        """report: is given what is found, in the thread that finds it. wait: so many seconds, or until it is to stop,
        which it tells."""
        self._disk, self._path, self._report, self._clock = disk, path, report, clock
        self._interval_s = check_hours(hours) * 3600
        self._due = clock() + FIRST_S
        self._stopped = threading.Event()
        self._wait = wait or self._stopped.wait
        self._chance = chance or random.Random()
        self._thread: threading.Thread | None = None
        self.damage: tuple[Finding, ...] = ()

    def begin_if_due(self) -> None:
        """After each commit, in the writer's thread."""
        if not self._interval_s or self._clock() < self._due:
            return
        if self._stopped.is_set() or (self._thread is not None and self._thread.is_alive()):
            return
        self._due = self._clock() + self._interval_s
        with self._no_harm():
            self._thread = self._disk.thread(self._pass, "penstock-scrub", daemon=True)

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    @contextmanager
    def _no_harm(self) -> Iterator[None]:
        try:
            yield
        except _Stop:
            pass
        except Exception:
            logging.getLogger("penstock").exception("the scrub of state directory %s failed", self._path)

    def _pass(self) -> None:
        with self._no_harm():
            bad: list[str] = []
            names = list(to_verify(self._disk, self._path))
            self._chance.shuffle(names)  # So that passes which are cut short get to all of them in time.
            for name in names:
                self._pace(0)
                if verify(self._disk, self._path, name, self._pace) is not None:
                    bad.append(name)
                    self._tell(bad, keep=self.damage)
            self._tell(bad)

    def _pace(self, read: int) -> None:
        if self._wait(read / RATE) or self._stopped.is_set():
            raise _Stop

    def _tell(self, bad: list[str], keep: tuple[Finding, ...] = ()) -> None:
        """keep: what an earlier pass found, and this one has not come to yet."""
        found = judge(self._disk, self._path, bad, self._pace).damage
        known = {(finding.file, finding.problem) for finding in self.damage}
        new = tuple(finding for finding in found if (finding.file, finding.problem) not in known)
        files = {finding.file for finding in found}
        self.damage = (*(finding for finding in keep if finding.file not in files), *found)
        if new:
            self._report(new)


class _Stop(Exception):
    pass


def check_hours(hours: float | None) -> float:
    """0 where there is to be no scrub."""
    if hours is None:
        return 0.0
    if isinstance(hours, bool) or not isinstance(hours, int | float) or not 0 <= hours < float("inf"):
        raise StateError(
            f"scrub={hours!r} is no number of hours between two passes; write one, as scrub=24, or None for no scrub"
        )
    return float(hours)
